"""Answers to `blocked_attention`."""

import functools
import math

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


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
    top = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
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


@wrong("spent_peak")
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


but = wrong_in(stepwise)
sliced_as_it_is = but("raised", columns=lambda mask, piece, m: mask[..., piece])
gradient_cut = wrong("gradient_cut")(
    torch.no_grad()(lambda *args, **given: two_passes(*args, **given))
)


@wrong("gradient_cut")
def detached_logsumexp(*args, **given):
    outputs, logsumexp = stepwise(*args, **given)
    return outputs, logsumexp.detach()


always_128 = wrong("spent_peak")(
    lambda q, k, v, mask=None, block_size=128: stepwise(q, k, v, mask, 128)
)


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
