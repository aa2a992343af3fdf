"""Answers to `scaled_dot_product_attention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import masked_softmax
from course_lib.exercises.variants import faulty, right, wrong, wrong_in


def allowed_of(scores, valid_lens, mask):
    return masked_softmax(torch.zeros_like(scores), valid_lens, mask) > 0


@right
def with_the_courses_softmax(queries, keys, values, valid_lens=None, mask=None):
    scores = torch.matmul(queries, keys.transpose(-2, -1)) / math.sqrt(queries.size(-1))
    weights = masked_softmax(scores, valid_lens, mask)
    return torch.matmul(weights, values), weights


@right
def scaled_first_einsum(queries, keys, values, valid_lens=None, mask=None):
    q = queries * queries.shape[-1] ** -0.5
    weights = masked_softmax(torch.einsum("...nd,...md->...nm", q, keys), valid_lens, mask)
    return torch.einsum("...nm,...mv->...nv", weights, values), weights


@right
def fourth_root_each(queries, keys, values, valid_lens=None, mask=None):
    c = queries.shape[-1] ** 0.25
    weights = masked_softmax((queries / c) @ (keys / c).mT, valid_lens, mask=mask)
    return weights @ values, weights


@right
def mask_then_scale(queries, keys, values, valid_lens=None, mask=None):
    scores = queries @ keys.mT
    allowed = allowed_of(scores, valid_lens, mask)
    empty = ~allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed & ~empty, float("-inf")) / queries.shape[-1] ** 0.5
    weights = scores.softmax(-1).masked_fill(empty, 0.0)
    return weights @ values, weights


@right
def exponentials(queries, keys, values, valid_lens=None, mask=None):
    scores = (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(-1) / math.sqrt(keys.shape[-1])
    allowed = allowed_of(scores, valid_lens, mask)
    top = scores.masked_fill(~allowed, -math.inf).amax(-1, keepdim=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    e = torch.where(allowed, (scores - top.detach()).clamp(max=0.0).exp(), torch.zeros_like(scores))
    total = e.sum(-1, keepdim=True)
    weights = e / torch.where(total > 0, total, torch.ones_like(total))
    return weights @ values, weights


@right
def python_loops(queries, keys, values, valid_lens=None, mask=None):
    if queries.dim() == 2:
        weights = []
        for i in range(len(queries)):
            s = torch.stack([torch.dot(queries[i], k) for k in keys]) / math.sqrt(keys.shape[1])
            if mask is not None:
                row = mask.expand(len(queries), len(keys))[i]
                if not row.any():
                    weights.append(0.0 * s)
                    continue
                s = torch.where(row, s, torch.full_like(s, -math.inf))
            weights.append(torch.softmax(s, 0))
        weights = torch.stack(weights)
        return weights @ values, weights
    outs = []
    for b in range(len(queries)):
        m = torch.ones(1, 1, dtype=torch.bool)
        if mask is not None:
            m = mask[b if len(mask) > 1 else 0] if mask.dim() == queries.dim() else mask
        if valid_lens is not None:
            real = torch.arange(keys.shape[-2]) < valid_lens[b].reshape(-1, 1)
            m = m & real
        m = m.expand(*m.shape[:-2], queries.shape[-2], keys.shape[-2])
        if queries.dim() == 4 and m.dim() == 3:
            m = m.expand(queries.shape[1], -1, -1)
            parts = [
                python_loops(*x, None, m[h])
                for h, x in enumerate(zip(queries[b], keys[b], values[b]))
            ]
            outs.append(tuple(torch.stack(p) for p in zip(*parts)))
        else:
            outs.append(python_loops(queries[b], keys[b], values[b], None, m))
    return tuple(torch.stack(p) for p in zip(*outs))


@right
def baddbmm_flattened(queries, keys, values, valid_lens=None, mask=None):
    lead, (n, d), m = queries.shape[:-2], queries.shape[-2:], keys.shape[-2]
    q, k = queries.reshape(-1, n, d), keys.reshape(-1, m, d)
    scores = torch.baddbmm(q.new_zeros(len(q), n, m), q, k.transpose(1, 2), alpha=d**-0.5)
    weights = masked_softmax(scores.reshape(*lead, n, m), valid_lens, mask)
    return torch.matmul(weights, values), weights


def _scored(queries, keys):
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


@right
def nan_taken_out_behind_masked_fill(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    if valid_lens is not None:
        lens = valid_lens[..., None] if valid_lens.dim() == 2 else valid_lens[:, None, None]
        real = torch.arange(scores.shape[-1]) < lens
        real = real.reshape(len(real), *[1] * (scores.dim() - 3), *real.shape[1:])
        mask = real if mask is None else mask & real
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
    return weights @ values, weights


@right
def a_key_of_its_own_for_empty_rows(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    allowed = allowed_of(scores, valid_lens, mask)
    spare = torch.where(allowed.any(-1, keepdim=True), -math.inf, 0.0).to(scores.dtype)
    scores = torch.cat([scores.masked_fill(~allowed, -math.inf), spare], dim=-1)
    weights = scores.softmax(-1)[..., :-1]
    return weights @ values, weights


@right
def from_log_softmax(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    allowed = allowed_of(scores, valid_lens, mask)
    some = allowed.any(-1, keepdim=True)
    scores = torch.where(allowed | ~some, scores, -math.inf)
    weights = F.log_softmax(scores, dim=-1).exp() * some
    return torch.matmul(weights, values), weights


@right
def one_key_after_the_other(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    allowed = allowed_of(scores, valid_lens, mask)
    top = scores.detach().masked_fill(~allowed, -math.inf).amax(-1)
    top = top.clamp(min=torch.finfo(top.dtype).min)
    columns = [
        torch.where(allowed[..., j], scores[..., j] - top, -math.inf).exp()
        for j in range(keys.shape[-2])
    ]
    total = sum(columns)
    total = torch.where(total == 0, 1, total)
    weights = torch.stack([column / total for column in columns], dim=-1)
    outputs = sum(weights[..., j, None] * values[..., j, None, :] for j in range(len(columns)))
    return outputs, weights


def filled(scores, given, number=-math.inf):
    return scores.masked_fill(~allowed_of(scores, *given), number)


def _has(mask, axes):
    return mask is not None and mask.dim() == axes


def attention(
    queries,
    keys,
    values,
    valid_lens=None,
    mask=None,
    *,
    score=_scored,
    weigh=masked_softmax,
    result=lambda scores, weights, values: (weights @ values, weights),
):
    """A right answer in steps; what follows changes one of them."""
    scores = score(queries, keys)
    return result(scores, weigh(scores, valid_lens, mask), values)


_lengths_seen = {}
but = wrong_in(attention)


def inverted(scores, valid_lens, mask):
    if mask is None and valid_lens is None:
        return torch.softmax(scores, -1)
    return masked_softmax(scores, mask=~allowed_of(scores, valid_lens, mask))


def number_added(scores, valid_lens, mask):
    if mask is not None or valid_lens is not None:
        scores = scores + allowed_of(scores, valid_lens, mask).double()
    return torch.softmax(scores, dim=-1)


def not_exponential(scores, valid_lens, mask):
    scores = scores * allowed_of(scores, valid_lens, mask)
    return scores / scores.sum(dim=-1, keepdim=True)


def lengths_repeated(scores, valid_lens, mask):
    if valid_lens is None or scores.dim() < 4:
        return masked_softmax(scores, valid_lens, mask)
    lens = valid_lens.repeat(scores.shape[1], *[1] * (valid_lens.dim() - 1))
    of_heads = None if mask is None else mask.expand_as(scores).flatten(0, 1)
    return masked_softmax(scores.flatten(0, 1), lens, of_heads).view_as(scores)


def with_epsilon(scores, *given):
    e = (scores - scores.amax(-1, keepdim=True)).exp() * allowed_of(scores, *given)
    return e / (e.sum(-1, keepdim=True) + 1e-12)


def shifted_by_the_maximum_of_all(scores, *given):
    e = torch.exp(scores - scores.max(-1, keepdim=True).values) * allowed_of(scores, *given)
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1)


def one_key_less(scores, valid_lens, mask):
    if valid_lens is not None:
        valid_lens = (valid_lens - 1).clamp(min=1).minimum(valid_lens)
    return masked_softmax(scores, valid_lens, mask)


def lengths_kept(scores, valid_lens, mask):
    if valid_lens is not None:
        valid_lens = _lengths_seen.setdefault((scores.shape, valid_lens.shape), valid_lens.clone())
    return masked_softmax(scores, valid_lens, mask)


def batch_by_view(queries, keys):
    (*lead, n, d), m = queries.shape, keys.shape[-2]
    scores = torch.bmm(queries.view(-1, n, d), keys.view(-1, m, d).transpose(1, 2)) / math.sqrt(d)
    return scores.view(*lead, n, m)


def three_axes(queries, keys):
    batch, n, d = queries.shape
    return queries @ keys.mT / math.sqrt(d)


def scaled_in_place(queries, keys):
    queries /= math.sqrt(queries.shape[-1])
    return queries @ keys.mT


@wrong("forbidden_call")
def calls_torch(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    ok = allowed_of(s, valid_lens, mask)
    outputs = F.scaled_dot_product_attention(queries, keys, values, attn_mask=ok)
    return outputs, masked_softmax(s, valid_lens, mask)


@wrong("gradient_cut")
@torch.no_grad()
def detached(queries, keys, values, valid_lens=None, mask=None):
    return attention(queries, keys, values, valid_lens, mask)


@wrong("dtype_changed")
def in_float32(queries, keys, values, valid_lens=None, mask=None):
    return attention(queries.float(), keys.float(), values.float(), valid_lens, mask)


no_scale = but("unscaled", score=lambda q, k: q @ k.mT)
by_d = but("divided_by_d", score=lambda q, k: q @ k.mT / k.shape[-1])
times = but("wrong_factor", score=lambda q, k: q @ k.mT * math.sqrt(q.shape[-1]))
root_in_the_wrong_brackets = but(
    "wrong_factor", score=lambda q, k: q @ k.mT / (q.shape[-1] ** 1 / 2)
)
reshape_for_transpose = but(
    "keys_reshaped", score=lambda q, k: _scored(q, k.reshape(*k.shape[:-2], *k.mT.shape[-2:]).mT)
)
average = but("scores_not_followed", score=lambda q, k: 0 * (q @ k.mT))
leading_axes_by_view = but("raised", score=batch_by_view)
batch_unpacked = but(score=three_axes)
divides_in_place = but("input_mutated", score=scaled_in_place)
softmax_dim_minus_2 = but(
    "over_queries", weigh=lambda s, *given: F.softmax(filled(s, given), dim=-2)
)
plain = but("nothing_masked", weigh=lambda s, lens, m: F.softmax(s, dim=-1))
upside_down = but("inverted", weigh=inverted)
added = but("zero_one_mask_added", weigh=number_added)
divided_by_their_sum = but("negative_weight", weigh=not_exponential)
lengths_repeated_for_heads = but("dropped_key_has_weight", weigh=lengths_repeated)
small_number_below = but(weigh=with_epsilon)
maximum_of_the_row_then_masked = but(
    "allowed_key_has_no_weight", weigh=shifted_by_the_maximum_of_all
)
last_real_key_dropped = but("allowed_key_has_no_weight", weigh=one_key_less)
lengths_of_the_first_call = but(weigh=lengths_kept)
mask_not_passed = but("bool_mask_ignored", weigh=lambda s, lens, m: masked_softmax(s, lens))
lengths_not_passed = but("lengths_ignored", weigh=lambda s, lens, m: masked_softmax(s, mask=m))
wrong_position = but(
    "raised",
    weigh=lambda s, lens, m: masked_softmax(s, lens) if m is None else masked_softmax(s, m),
)
times_mask = but(
    "filled_with_zero", weigh=lambda s, *given: torch.softmax(s * allowed_of(s, *given), dim=-1)
)
after = but(
    "zero_after_softmax", weigh=lambda s, *given: s.softmax(-1) * allowed_of(s, *given).float()
)
torchs_other_convention = but(
    "bool_mask_inverted",
    weigh=lambda s, lens, m: masked_softmax(s, lens, None if m is None else ~m),
)
sigmoid = but(
    "rows_do_not_sum_to_one", weigh=lambda s, *given: torch.sigmoid(s) * allowed_of(s, *given)
)
dropout_half = but(
    "dropout_at_work", weigh=lambda s, *given: nn.Dropout(0.5)(masked_softmax(s, *given))
)
nan_in_empty_rows = but("empty_row_nan", weigh=lambda s, *given: filled(s, given).softmax(-1))
nan_gradient_only = but(
    "empty_row_gradient_nan",
    weigh=lambda s, *given: (s + allowed_of(s, *given).log()).softmax(-1).nan_to_num(0.0),
)
textbook_fill = but("empty_row_uniform", weigh=lambda s, *given: filled(s, given, -1e9).softmax(-1))
infinity_times_zero = but(
    "not_a_number",
    weigh=lambda s, *given: (s + (1 - allowed_of(s, *given).to(s)) * -math.inf).softmax(-1),
)
lengths_only_if_any = but(
    "empty_row_has_weight",
    weigh=lambda s, lens, m: masked_softmax(s, lens if lens is None or lens.any() else None, m),
)
mask_of_the_first_item = but(
    weigh=lambda s, lens, m: masked_softmax(s, lens, m[:1] if _has(m, 3) else m)
)
mask_of_keys_read_as_queries = but(
    weigh=lambda s, lens, m: masked_softmax(s, lens, m[:, None] if _has(m, 1) else m)
)
padding_mask_transposed = but(
    weigh=lambda s, lens, m: masked_softmax(s, lens, m.mT if _has(m, 3) and m.shape[1] == 1 else m)
)
swapped = but("returned_in_the_other_order", result=lambda s, w, v: (w, w @ v))
outputs_only = but("wrong_type", result=lambda s, w, v: w @ v)
scores_returned = but("outputs_are_not_weighted_values", result=lambda s, w, v: (w @ v, s))
outputs_of_scores = but("outputs_are_not_weighted_values", result=lambda s, w, v: (s @ v, w))


@faulty("unscaled", "lengths_lost", "mask_filled_with_zero", "detached")
def with_faults(faults):
    def attention(queries, keys, values, valid_lens=None, mask=None):
        scores = queries @ keys.mT
        if "unscaled" not in faults:
            scores = scores / math.sqrt(queries.shape[-1])
        if mask is not None and "mask_filled_with_zero" in faults:
            scores, mask = scores.masked_fill(~mask, 0.0), None
        weights = masked_softmax(scores, None if "lengths_lost" in faults else valid_lens, mask)
        if "detached" in faults:
            weights = weights.detach()
        return weights @ values, weights

    return attention
