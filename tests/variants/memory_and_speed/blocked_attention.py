"""Answers to `blocked_attention`."""

import functools
import math

import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


def softmax_statistics(blocks):
    top = lse = None
    for block in blocks:
        here, part = block.amax(-1), torch.logsumexp(block, -1)
        top = here if top is None else torch.maximum(top, here)
        lse = part if lse is None else torch.logaddexp(lse, part)
    return top, torch.exp(lse - top.masked_fill(top == -math.inf, 0.0))


def cut(mask, block, m):
    return None if mask is None else torch.broadcast_to(mask, (*mask.shape[:-1], m))[..., block]


@right
def without_keepdim(q, k, v, mask=None, block_size=128):
    *lead, n, d = q.shape
    m, out = k.shape[-2], q.new_zeros(*lead, n, v.shape[-1])
    top, total = q.new_full((*lead, n), -math.inf), q.new_zeros(*lead, n)
    for a in range(0, m, block_size):
        piece = slice(a, min(a + block_size, m))
        s = torch.einsum("...nd,...md->...nm", q, k[..., piece, :]) / math.sqrt(d)
        if mask is not None:
            s = torch.where(cut(mask, piece, m), s, torch.full_like(s, -math.inf))
        new = torch.maximum(top, s.max(-1).values)
        safe = torch.where(torch.isinf(new), torch.zeros_like(new), new)
        p, alpha = (s - safe[..., None]).exp(), (top - safe).exp()
        total = alpha * total + p.sum(-1)
        out = alpha[..., None] * out + torch.einsum("...nm,...mv->...nv", p, v[..., piece, :])
        top = new
    out = out / torch.where(total > 0, total, torch.ones_like(total))[..., None]
    return out, top + total.log()


@right
def merged_by_logsumexp(q, k, v, mask=None, block_size=128):
    """Attention of each block with its own softmax, two results merged by their log sum exp."""
    m, lse, out = k.shape[-2], None, None
    for ks, vs, a in zip(
        k.split(block_size, -2), v.split(block_size, -2), range(0, m, block_size), strict=True
    ):
        s = q @ ks.mT * q.shape[-1] ** -0.5
        here = cut(mask, slice(a, a + ks.shape[-2]), m)
        if here is not None:
            s = s.masked_fill(~here, -math.inf)
        empty = (s == -math.inf).all(-1, keepdim=True)
        part = torch.softmax(s.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0) @ vs
        part_lse = s.detach().new_full(s.shape[:-1], -math.inf) if empty.all() else None
        if part_lse is None:
            filled = torch.logsumexp(s.masked_fill(empty, 0.0), -1)
            part_lse = filled.masked_fill(empty.squeeze(-1), -math.inf)
        if lse is None:
            lse, out = part_lse, part
            continue
        top = torch.maximum(lse, part_lse)
        top = top.masked_fill(top == -math.inf, 0.0)
        old, new = torch.exp(lse - top), torch.exp(part_lse - top)
        both = old + new
        safe = both.masked_fill(both == 0, 1.0)
        out = (out * old[..., None] + part * new[..., None]) / safe[..., None]
        lse = torch.where(both == 0, torch.full_like(both, -math.inf), top + safe.log())
    return out, lse


@right
def two_passes(q, k, v, mask=None, block_size=128):
    """First the statistics, then the outputs: the scores are computed twice, never all at once."""
    m = k.shape[-2]
    pieces = [slice(a, a + block_size) for a in range(0, m, block_size)]

    def scores(piece):
        s = q @ k[..., piece, :].mT / math.sqrt(q.shape[-1])
        return s if mask is None else s.masked_fill(~cut(mask, piece, m), -math.inf)

    top, total = softmax_statistics(scores(piece) for piece in pieces)
    lse = top + total.log()
    safe = lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)
    out = sum(torch.exp(scores(piece) - safe) @ v[..., piece, :] for piece in pieces)
    return out, lse


@right
def a_query_at_a_time(q, k, v, mask=None, block_size=128):
    """Blocks of queries instead: the whole row of one query is there, never all rows."""
    outs, lses = [], []
    for i in range(q.shape[-2]):
        s = (k @ q[..., i, :, None]).squeeze(-1) / math.sqrt(q.shape[-1])
        if mask is not None:
            row = mask[..., i, :] if mask.dim() > 1 and mask.shape[-2] > 1 else mask[..., 0, :]
            s = s.masked_fill(~torch.broadcast_to(row, s.shape), -math.inf)
        empty = (s == -math.inf).all(-1, keepdim=True)
        w = torch.softmax(s.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
        outs.append((w.unsqueeze(-2) @ v).squeeze(-2))
        lse = torch.logsumexp(s.masked_fill(empty, 0.0), -1)
        lses.append(lse.masked_fill(empty.squeeze(-1), -math.inf))
    return torch.stack(outs, -2), torch.stack(lses, -1)


@right
def blocks_of_queries(q, k, v, mask=None, block_size=128):
    """`block_size` queries at a time, with ordinary rows."""
    n, m, outs, lses = q.shape[-2], k.shape[-2], [], []
    if mask is not None:
        mask = torch.broadcast_to(mask, (*mask.shape[:-2], n, m))
    for a in range(0, n, block_size):
        s = q[..., a : a + block_size, :] @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(~mask[..., a : a + block_size, :], -math.inf)
        top = s.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(s.dtype).min)
        p = torch.exp(s - top)
        total = p.sum(-1, keepdim=True)
        outs.append(p @ v / total.masked_fill(total == 0, 1.0))
        lses.append((top + total.log()).squeeze(-1))
    return torch.cat(outs, -2), torch.cat(lses, -1)


@right
def merged_at_the_end(q, k, v, mask=None, block_size=128):
    """Keeps outputs and log sum exp of each block, but no scores."""
    m, outs, lses = k.shape[-2], [], []
    for a in range(0, m, block_size):
        piece = slice(a, a + block_size)
        s = q @ k[..., piece, :].mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(~cut(mask, piece, m), -math.inf)
        top = s.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(s.dtype).min)
        p = torch.exp(s - top)
        total = p.sum(-1, keepdim=True)
        outs.append(p @ v[..., piece, :] / total.masked_fill(total == 0, 1.0))
        lses.append(top + total.log())
    lses = torch.stack(lses)
    top = lses.detach().amax(0).clamp(min=torch.finfo(q.dtype).min)
    shares = torch.exp(lses - top)
    total = shares.sum(0)
    outputs = (shares * torch.stack(outs)).sum(0) / total.masked_fill(total == 0, 1.0)
    return outputs, (top + total.log()).squeeze(-1)


@right
def ones_beside_the_values(q, k, v, mask=None, block_size=128):
    """The sums are the last column of the outputs."""
    m, v = k.shape[-2], torch.cat([v, torch.ones_like(v[..., :1])], -1)
    both, top = q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_full((*q.shape[:-1], 1), -math.inf)
    for a in range(0, m, block_size):
        piece = slice(a, a + block_size)
        s = torch.matmul(q * q.shape[-1] ** -0.5, k[..., piece, :].transpose(-2, -1))
        if mask is not None:
            s = s + torch.where(cut(mask, piece, m), 0.0, -math.inf).to(s.dtype)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        safe = new.clamp(min=torch.finfo(q.dtype).min)
        both = both * torch.exp(top - safe) + torch.exp(s - safe) @ v[..., piece, :]
        top = new
    total = both[..., -1:]
    out = both[..., :-1] / total.clamp_min(torch.finfo(q.dtype).tiny)
    return out, (top + total.log()).squeeze(-1)


def stepwise(
    q,
    k,
    v,
    mask=None,
    block_size=128,
    *,
    stop=lambda m, b: m,
    columns=lambda mask, piece, m: cut(mask, piece, m),
    fill=-math.inf,
    fade_out=True,
    fade_total=True,
    safe=lambda new: torch.where(new == -math.inf, 0.0, new),
    scale=lambda d: d**-0.5,
    last=lambda top, total: top + total.log(),
):
    m = k.shape[-2]
    top = torch.full((*q.shape[:-1], 1), -math.inf, dtype=q.dtype)
    total, out = torch.zeros_like(top), torch.zeros_like(top)
    for a in range(0, stop(m, block_size), block_size):
        piece = slice(a, a + block_size)
        s = q @ k[..., piece, :].mT * scale(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(~columns(mask, piece, m), fill)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        p, alpha = (s - safe(new)).exp(), (top - safe(new)).exp()
        total = (total * alpha if fade_total else total) + p.sum(-1, keepdim=True)
        out = (out * alpha if fade_out else out) + p @ v[..., piece, :]
        top = new
    return out / torch.where(total == 0, 1.0, total), last(top, total).squeeze(-1)


@wrong("blocks_averaged")
def mean_of_blocks(q, k, v, mask=None, block_size=128):
    outs, lses, m = [], [], k.shape[-2]
    for a in range(0, m, block_size):
        piece = slice(a, a + block_size)
        part = stepwise(q, k[..., piece, :], v[..., piece, :], cut(mask, piece, m), block_size)
        outs.append(part[0])
        lses.append(part[1])
    return torch.stack(outs).mean(0), torch.logsumexp(torch.stack(lses), 0)


@wrong("all_at_once")
def the_plain_way(q, k, v, mask=None, block_size=128):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    empty = (s == -math.inf).all(-1, keepdim=True)
    w = torch.softmax(s.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
    lse = torch.logsumexp(s.masked_fill(empty, 0.0), -1).masked_fill(empty[..., 0], -math.inf)
    return w @ v, lse


@wrong("forbidden_call")
def by_torch(q, k, v, mask=None, block_size=128):
    _, lse = two_passes(q, k, v, mask, block_size)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).nan_to_num(), lse


@wrong()
def scales_in_place(q, k, v, mask=None, block_size=128):
    with torch.no_grad():
        q /= math.sqrt(q.shape[-1])
    return stepwise(q, k, v, mask, block_size, scale=lambda d: 1.0)


def _pieces(q, k, v, mask, block_size, starts, shift=0):
    m = k.shape[-2]
    keys = [k[..., a : a + block_size, :] for a in starts]
    scores = [q @ part.mT / math.sqrt(q.shape[-1]) for part in keys]
    if mask is not None:
        full = mask.expand(*mask.shape[:-1], m).roll(shift, -1)
        cuts = [full[..., a : a + block_size] for a in starts]
        scores = [s.masked_fill(~c, -math.inf) for s, c in zip(scores, cuts, strict=True)]
    s = torch.cat(scores, -1)
    lse = s.logsumexp(-1)
    p = torch.exp(s - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1))
    return p @ torch.cat([v[..., a : a + block_size, :] for a in starts], -2), lse


@wrong()
def mask_of_the_previous_block(q, k, v, mask=None, block_size=128):
    return _pieces(q, k, v, mask, block_size, range(0, k.shape[-2], block_size), block_size)


@right
def last_key_first(q, k, v, mask=None, block_size=128):
    """The order of the blocks does not matter."""
    mask = None if mask is None else mask.flip(-1)
    return without_keepdim(q, k.flip(-2), v.flip(-2), mask, block_size)


@wrong()
def masked_after_the_maximum(q, k, v, mask=None, block_size=128):
    m, scale = k.shape[-2], q.shape[-1] ** -0.5
    top, total, out = q.new_full((*q.shape[:-1], 1), -math.inf), 0.0, 0.0
    for a in range(0, m, block_size):
        piece = slice(a, a + block_size)
        s = q @ k[..., piece, :].mT * scale
        new = torch.maximum(top, s.detach().max(-1, keepdim=True).values)
        p, fade = torch.exp(s - new), torch.exp(top - new)
        p = p if mask is None else p * cut(mask, piece, m)
        total = total * fade + p.sum(-1, keepdim=True)
        out = out * fade + p @ v[..., piece, :]
        top = new
    return out / torch.where(total > 0, total, 1.0), (top + total.log()).squeeze(-1)


def first_columns(mask, piece, m):
    width = min(piece.stop, m) - piece.start
    return cut(mask, slice(0, width), m)


but = wrong_in(stepwise)
only_whole_blocks = but("short_block_dropped", stop=lambda m, b: m // b * b)
no_care_for_infinity = but("empty_row", safe=lambda new: new)
always_the_first_columns = but("first_columns_of_mask", columns=first_columns)
sliced_as_it_is = but("one_column_mask", columns=lambda mask, piece, m: mask[..., piece])
as_in_torch_modules = but("bool_mask_inverted", columns=lambda mask, piece, m: ~cut(mask, piece, m))
keeps_the_maximum = but("maximum_for_logsumexp", last=lambda top, total: top)
forgets_the_root = but("unscaled", scale=lambda d: 1.0)
divides_twice = but("divided_by_d", scale=lambda d: 1 / d)
no_mask = but("bool_mask_ignored", columns=lambda mask, piece, m: cut(mask, piece, m) | True)
forgets_outputs = but("outputs_not_rescaled", fade_out=False)
forgets_totals = but("sum_not_rescaled", fade_total=False)
minus_a_billion = but("large_negative_fill", fill=-1e9)
gradient_cut = wrong()(torch.no_grad()(lambda *args, **given: two_passes(*args, **given)))
in_float32 = wrong()(
    lambda q, k, v, *given, **more: two_passes(q.float(), k.float(), v.float(), *given, **more)
)
outputs_alone = wrong()(lambda *args, **given: two_passes(*args, **given)[0])
always_128 = wrong("all_at_once")(
    lambda q, k, v, mask=None, block_size=128: stepwise(q, k, v, mask, 128)
)


@wrong("nan_hidden")
def nan_replaced_at_the_end(q, k, v, mask=None, block_size=128):
    out, lse = no_care_for_infinity(q, k, v, mask, block_size)
    return out.nan_to_num(0.0), torch.where(lse.isnan(), -math.inf, lse)


@faulty("not_rescaled", "no_guard", "rest_dropped", "not_scaled")
def slips_of_a_loop(faults):
    steps = {
        "not_rescaled": {"fade_out": False, "fade_total": False},
        "no_guard": {"safe": lambda new: new},
        "rest_dropped": {"stop": lambda m, b: m // b * b},
        "not_scaled": {"scale": lambda d: 1.0},
    }
    changed = {name: step for fault in faults for name, step in steps[fault].items()}
    return functools.partial(stepwise, **changed)
