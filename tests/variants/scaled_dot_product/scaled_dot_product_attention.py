"""Answers to `scaled_dot_product_attention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import masked_softmax as lesson_02
from course_lib.exercises.variants import faulty, right, wrong

masked_softmax = lesson_02.masked_softmax


def allowed_of(scores, valid_lens, mask):
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        real = torch.arange(scores.shape[-1]) < valid_lens.unsqueeze(-1)
        if valid_lens.dim() == 1:
            real = real[:, None]
        while real.dim() < scores.dim():
            real = real[:, None]
        allowed = allowed & real
    return allowed if mask is None else allowed & mask


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
        rows, weights = [], []
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


@wrong("unscaled")
def no_scale(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT, valid_lens, mask)
    return weights @ values, weights


@wrong("divided_by_d")
def by_d(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(
        torch.einsum("...nd,...md->...nm", queries, keys) / keys.shape[-1], valid_lens, mask
    )
    return weights @ values, weights


@wrong("wrong_factor")
def times(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT * math.sqrt(queries.shape[-1]), valid_lens, mask)
    return weights @ values, weights


@wrong("wrong_factor")
def root_m(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT
    weights = masked_softmax(s / s.shape[-1] ** 0.5, valid_lens, mask)
    return weights @ values, weights


@wrong("over_queries")
def softmax_dim_minus_2(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    allowed = allowed_of(s, valid_lens, mask)
    weights = F.softmax(s.masked_fill(~allowed, -math.inf), dim=-2)
    return weights @ values, weights


@wrong("nothing_masked")
def plain(queries, keys, values, valid_lens=None, mask=None):
    weights = F.softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), dim=-1)
    return weights @ values, weights


@wrong("bool_mask_ignored")
def mask_not_passed(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens)
    return weights @ values, weights


@wrong("lengths_ignored")
def lengths_not_passed(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), mask=mask)
    return weights @ values, weights


@wrong("raised")
def wrong_position(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = masked_softmax(s, valid_lens) if mask is None else masked_softmax(s, mask)
    return weights @ values, weights


@wrong("filled_with_zero")
def times_mask(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = torch.softmax(s * allowed_of(s, valid_lens, mask), dim=-1)
    return weights @ values, weights


@wrong("zero_after_softmax")
def after(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = torch.softmax(s, dim=-1) * allowed_of(s, valid_lens, mask).float()
    return weights @ values, weights


@wrong("zero_one_mask_added")
def added(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if mask is not None or valid_lens is not None:
        s = s + allowed_of(s, valid_lens, mask).double()
    weights = torch.softmax(s, dim=-1)
    return weights @ values, weights


@wrong("inverted")
def upside_down(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if mask is None and valid_lens is None:
        weights = torch.softmax(s, -1)
    else:
        weights = masked_softmax(s, mask=~allowed_of(s, valid_lens, mask))
    return weights @ values, weights


@wrong("bool_mask_inverted")
def torchs_other_convention(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = masked_softmax(s, valid_lens, None if mask is None else ~mask)
    return weights @ values, weights


@wrong("rows_do_not_sum_to_one")
def sigmoid(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = torch.sigmoid(s) * allowed_of(s, valid_lens, mask)
    return weights @ values, weights


@wrong("negative_weight")
def divided_by_their_sum(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    s = s * allowed_of(s, valid_lens, mask)
    weights = s / s.sum(dim=-1, keepdim=True)
    return weights @ values, weights


@wrong("keys_reshaped")
def reshape_for_transpose(queries, keys, values, valid_lens=None, mask=None):
    turned = keys.contiguous().view(*keys.shape[:-2], keys.size(-1), keys.size(-2))
    weights = masked_softmax(queries @ turned / math.sqrt(queries.shape[-1]), valid_lens, mask)
    return weights @ values, weights


@wrong("scores_not_followed")
def average(queries, keys, values, valid_lens=None, mask=None):
    s = queries.new_zeros(*queries.shape[:-1], keys.shape[-2]) + 0 * queries.sum()
    weights = masked_softmax(s, valid_lens, mask)
    return weights @ values, weights


@wrong("dropout_at_work")
def dropout_half(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask)
    weights = nn.Dropout(0.5)(weights)
    return weights @ values, weights


@wrong("input_mutated")
def divides_in_place(queries, keys, values, valid_lens=None, mask=None):
    queries /= math.sqrt(queries.shape[-1])
    weights = masked_softmax(queries @ keys.mT, valid_lens, mask)
    return weights @ values, weights


@wrong("raised")
def transposes_1_and_2(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(
        torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1]), valid_lens, mask
    )
    return torch.bmm(weights, values), weights


@wrong()
def batch_unpacked(queries, keys, values, valid_lens=None, mask=None):
    batch, n, d = queries.shape
    weights = masked_softmax(queries @ keys.mT / math.sqrt(d), valid_lens, mask)
    return weights @ values, weights


@wrong("empty_row_nan")
def nan_in_empty_rows(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    s = s.masked_fill(~allowed_of(s, valid_lens, mask), -math.inf)
    weights = s.softmax(-1)
    return weights @ values, weights


@wrong("empty_row_gradient_nan")
def nan_gradient_only(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    s = s + torch.zeros_like(s).masked_fill(~allowed_of(s, valid_lens, mask), -math.inf)
    weights = torch.where(s.isneginf(), torch.zeros_like(s), s.softmax(-1))
    return weights @ values, weights


@wrong("empty_row_uniform")
def textbook_fill(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    s = s.masked_fill(~allowed_of(s, valid_lens, mask), -1e9)
    weights = s.softmax(-1)
    return weights @ values, weights


@wrong("gradient_cut")
def detached(queries, keys, values, valid_lens=None, mask=None):
    with torch.no_grad():
        weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask)
        return weights @ values, weights


@wrong("dtype_changed")
def in_float32(queries, keys, values, valid_lens=None, mask=None):
    queries, keys, values = queries.float(), keys.float(), values.float()
    weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask)
    return weights @ values, weights


@wrong("forbidden_call")
def calls_torch(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = masked_softmax(s, valid_lens, mask)
    outputs = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=allowed_of(s, valid_lens, mask)
    )
    return outputs, weights


@wrong("returned_in_the_other_order")
def swapped(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask)
    return weights, weights @ values


@wrong("wrong_type")
def outputs_only(queries, keys, values, valid_lens=None, mask=None):
    return (
        masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask) @ values
    )


@wrong("outputs_are_not_weighted_values")
def scores_returned(queries, keys, values, valid_lens=None, mask=None):
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    return masked_softmax(s, valid_lens, mask) @ values, s


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


@wrong("raised")
def leading_axes_by_view(queries, keys, values, valid_lens=None, mask=None):
    (*lead, n, d), m = queries.shape, keys.shape[-2]
    scores = torch.bmm(queries.view(-1, n, d), keys.view(-1, m, d).transpose(1, 2)) / math.sqrt(d)
    weights = masked_softmax(scores.view(*lead, n, m), valid_lens, mask)
    return weights @ values, weights


@wrong("empty_row_has_weight")
def lengths_only_if_any(queries, keys, values, valid_lens=None, mask=None):
    if valid_lens is not None and not valid_lens.any():
        valid_lens = None
    weights = masked_softmax(_scored(queries, keys), valid_lens, mask)
    return weights @ values, weights


_lengths_seen = {}


@wrong()
def lengths_of_the_first_call(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    if valid_lens is not None:
        valid_lens = _lengths_seen.setdefault((scores.shape, valid_lens.shape), valid_lens.clone())
    weights = masked_softmax(scores, valid_lens, mask)
    return weights @ values, weights


@wrong("dropped_key_has_weight")
def lengths_repeated_for_heads(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    if valid_lens is not None and scores.dim() == 4:
        lens = valid_lens.repeat(scores.shape[1], *[1] * (valid_lens.dim() - 1))
        of_heads = None if mask is None else mask.expand_as(scores).flatten(0, 1)
        weights = masked_softmax(scores.flatten(0, 1), lens, of_heads).view_as(scores)
    else:
        weights = masked_softmax(scores, valid_lens, mask)
    return weights @ values, weights


@wrong("rows_do_not_sum_to_one")
def scaled_after_the_softmax(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(queries @ keys.mT, valid_lens, mask) / math.sqrt(queries.shape[-1])
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


@wrong("wrong_factor")
def root_in_the_wrong_brackets(queries, keys, values, valid_lens=None, mask=None):
    scores = queries @ keys.mT / (queries.shape[-1] ** 1 / 2)
    weights = masked_softmax(scores, valid_lens, mask)
    return weights @ values, weights


@wrong("not_a_number")
def infinity_times_zero(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    allowed = allowed_of(scores, valid_lens, mask).to(scores.dtype)
    weights = torch.softmax(scores + (1 - allowed) * -math.inf, dim=-1)
    return weights @ values, weights


# right but for some shape of lengths or mask


def _reading(read):
    """Right, for what `read(scores, valid_lens, mask)` leaves of lengths and mask."""

    def attention(queries, keys, values, valid_lens=None, mask=None):
        scores = _scored(queries, keys)
        weights = masked_softmax(scores, *read(scores, valid_lens, mask))
        return weights @ values, weights

    return attention


def _has(mask, axes):
    return mask is not None and mask.dim() == axes


@wrong()
def small_number_below(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    allowed = masked_softmax(torch.zeros_like(scores), valid_lens, mask) > 0
    e = (scores - scores.amax(-1, keepdim=True)).exp() * allowed
    weights = e / (e.sum(-1, keepdim=True) + 1e-12)
    return weights @ values, weights


@wrong("allowed_key_has_no_weight")
def maximum_of_the_row_then_masked(queries, keys, values, valid_lens=None, mask=None):
    scores = queries @ keys.mT * queries.shape[-1] ** -0.5
    e = torch.exp(scores - scores.max(-1, keepdim=True).values)
    e = e * allowed_of(scores, valid_lens, mask)
    total = e.sum(-1, keepdim=True)
    weights = e / total.masked_fill(total == 0, 1)
    return weights @ values, weights


@wrong("outputs_are_not_weighted_values")
def outputs_of_scores(queries, keys, values, valid_lens=None, mask=None):
    scores = _scored(queries, keys)
    return scores @ values, masked_softmax(scores, valid_lens, mask)


@wrong("allowed_key_has_no_weight")
def last_real_key_dropped(queries, keys, values, valid_lens=None, mask=None):
    if valid_lens is not None:
        valid_lens = (valid_lens - 1).clamp(min=1).minimum(valid_lens)
    weights = masked_softmax(_scored(queries, keys), valid_lens, mask)
    return weights @ values, weights


mask_of_the_first_item = wrong()(_reading(lambda s, lens, m: (lens, m[:1] if _has(m, 3) else m)))
mask_of_keys_read_as_queries = wrong()(
    _reading(lambda s, lens, m: (lens, m[:, None] if _has(m, 1) else m))
)
padding_mask_transposed = wrong()(
    _reading(lambda s, lens, m: (lens, m.mT if _has(m, 3) and m.shape[1] == 1 else m))
)
future_masked_unasked = wrong("allowed_key_has_no_weight")(
    _reading(lambda s, lens, m: (lens, s.new_ones(s.shape[-2:]).bool().tril() & (m is None or m)))
)


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
