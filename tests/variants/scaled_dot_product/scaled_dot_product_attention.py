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


def weighing(weigh):
    """Right but for the weights, which are `weigh(scores, lengths, mask)`."""

    def attention(queries, keys, values, valid_lens=None, mask=None):
        weights = weigh(_scored(queries, keys), valid_lens, mask)
        return weights @ values, weights

    return attention


def scoring(score):
    """Right but for the scores, which are `score(queries, keys)`."""

    def attention(queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(score(queries, keys), valid_lens, mask)
        return weights @ values, weights

    return attention


def returning(result):
    """Right but for what is returned: `result(scores, weights, values)`."""

    def attention(queries, keys, values, valid_lens=None, mask=None):
        scores = _scored(queries, keys)
        return result(scores, masked_softmax(scores, valid_lens, mask), values)

    return attention


def filled(scores, given, number=-math.inf):
    return scores.masked_fill(~allowed_of(scores, *given), number)


def _has(mask, axes):
    return mask is not None and mask.dim() == axes


_lengths_seen = {}


@wrong("zero_one_mask_added")
@weighing
def added(scores, valid_lens, mask):
    if mask is not None or valid_lens is not None:
        scores = scores + allowed_of(scores, valid_lens, mask).double()
    return torch.softmax(scores, dim=-1)


@wrong("inverted")
@weighing
def upside_down(scores, valid_lens, mask):
    if mask is None and valid_lens is None:
        return torch.softmax(scores, -1)
    return masked_softmax(scores, mask=~allowed_of(scores, valid_lens, mask))


@wrong("negative_weight")
@weighing
def divided_by_their_sum(scores, valid_lens, mask):
    scores = scores * allowed_of(scores, valid_lens, mask)
    return scores / scores.sum(dim=-1, keepdim=True)


@wrong("dropped_key_has_weight")
@weighing
def lengths_repeated_for_heads(scores, valid_lens, mask):
    if valid_lens is None or scores.dim() < 4:
        return masked_softmax(scores, valid_lens, mask)
    lens = valid_lens.repeat(scores.shape[1], *[1] * (valid_lens.dim() - 1))
    of_heads = None if mask is None else mask.expand_as(scores).flatten(0, 1)
    return masked_softmax(scores.flatten(0, 1), lens, of_heads).view_as(scores)


@wrong()
@weighing
def small_number_below(scores, valid_lens, mask):
    e = (scores - scores.amax(-1, keepdim=True)).exp() * allowed_of(scores, valid_lens, mask)
    return e / (e.sum(-1, keepdim=True) + 1e-12)


@wrong("allowed_key_has_no_weight")
@weighing
def maximum_of_the_row_then_masked(scores, valid_lens, mask):
    e = torch.exp(scores - scores.max(-1, keepdim=True).values)
    e = e * allowed_of(scores, valid_lens, mask)
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1)


@wrong("allowed_key_has_no_weight")
@weighing
def last_real_key_dropped(scores, valid_lens, mask):
    if valid_lens is not None:
        valid_lens = (valid_lens - 1).clamp(min=1).minimum(valid_lens)
    return masked_softmax(scores, valid_lens, mask)


@wrong()
@weighing
def lengths_of_the_first_call(scores, valid_lens, mask):
    if valid_lens is not None:
        valid_lens = _lengths_seen.setdefault((scores.shape, valid_lens.shape), valid_lens.clone())
    return masked_softmax(scores, valid_lens, mask)


@wrong("raised")
@scoring
def leading_axes_by_view(queries, keys):
    (*lead, n, d), m = queries.shape, keys.shape[-2]
    scores = torch.bmm(queries.view(-1, n, d), keys.view(-1, m, d).transpose(1, 2)) / math.sqrt(d)
    return scores.view(*lead, n, m)


@wrong()
def batch_unpacked(queries, keys, values, valid_lens=None, mask=None):
    batch, n, d = queries.shape
    weights = masked_softmax(queries @ keys.mT / math.sqrt(d), valid_lens, mask)
    return weights @ values, weights


@wrong("raised")
def transposes_1_and_2(queries, keys, values, valid_lens=None, mask=None):
    weights = masked_softmax(
        torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1]), valid_lens, mask
    )
    return torch.bmm(weights, values), weights


@wrong("input_mutated")
def divides_in_place(queries, keys, values, valid_lens=None, mask=None):
    queries /= math.sqrt(queries.shape[-1])
    weights = masked_softmax(queries @ keys.mT, valid_lens, mask)
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


@wrong("gradient_cut")
def detached(queries, keys, values, valid_lens=None, mask=None):
    with torch.no_grad():
        weights = masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask)
        return weights @ values, weights


no_scale = wrong("unscaled")(scoring(lambda q, k: q @ k.mT))
by_d = wrong("divided_by_d")(scoring(lambda q, k: q @ k.mT / k.shape[-1]))
times = wrong("wrong_factor")(scoring(lambda q, k: q @ k.mT * math.sqrt(q.shape[-1])))
root_m = wrong("wrong_factor")(scoring(lambda q, k: q @ k.mT / k.shape[-2] ** 0.5))
root_in_the_wrong_brackets = wrong("wrong_factor")(
    scoring(lambda q, k: q @ k.mT / (q.shape[-1] ** 1 / 2))
)
reshape_for_transpose = wrong("keys_reshaped")(
    scoring(lambda q, k: q @ k.reshape(*k.shape[:-2], *k.mT.shape[-2:]) / math.sqrt(q.shape[-1]))
)
average = wrong("scores_not_followed")(scoring(lambda q, k: 0 * (q @ k.mT)))
softmax_dim_minus_2 = wrong("over_queries")(
    weighing(lambda s, *given: F.softmax(filled(s, given), dim=-2))
)
plain = wrong("nothing_masked")(weighing(lambda s, lens, m: F.softmax(s, dim=-1)))
mask_not_passed = wrong("bool_mask_ignored")(weighing(lambda s, lens, m: masked_softmax(s, lens)))
lengths_not_passed = wrong("lengths_ignored")(
    weighing(lambda s, lens, m: masked_softmax(s, mask=m))
)
wrong_position = wrong("raised")(
    weighing(lambda s, lens, m: masked_softmax(s, lens) if m is None else masked_softmax(s, m))
)
times_mask = wrong("filled_with_zero")(
    weighing(lambda s, *given: torch.softmax(s * allowed_of(s, *given), dim=-1))
)
after = wrong("zero_after_softmax")(
    weighing(lambda s, *given: torch.softmax(s, dim=-1) * allowed_of(s, *given).float())
)
torchs_other_convention = wrong("bool_mask_inverted")(
    weighing(lambda s, lens, m: masked_softmax(s, lens, None if m is None else ~m))
)
sigmoid = wrong("rows_do_not_sum_to_one")(
    weighing(lambda s, *given: torch.sigmoid(s) * allowed_of(s, *given))
)
dropout_half = wrong("dropout_at_work")(
    weighing(lambda s, *given: nn.Dropout(0.5)(masked_softmax(s, *given)))
)
nan_in_empty_rows = wrong("empty_row_nan")(weighing(lambda s, *given: filled(s, given).softmax(-1)))
nan_gradient_only = wrong("empty_row_gradient_nan")(
    weighing(lambda s, *given: (s + allowed_of(s, *given).log()).softmax(-1).nan_to_num(0.0))
)
textbook_fill = wrong("empty_row_uniform")(
    weighing(lambda s, *given: filled(s, given, -1e9).softmax(-1))
)
infinity_times_zero = wrong("not_a_number")(
    weighing(lambda s, *given: (s + (1 - allowed_of(s, *given).to(s)) * -math.inf).softmax(-1))
)
lengths_only_if_any = wrong("empty_row_has_weight")(
    weighing(lambda s, lens, m: masked_softmax(s, lens if lens is None or lens.any() else None, m))
)
mask_of_the_first_item = wrong()(
    weighing(lambda s, lens, m: masked_softmax(s, lens, m[:1] if _has(m, 3) else m))
)
mask_of_keys_read_as_queries = wrong()(
    weighing(lambda s, lens, m: masked_softmax(s, lens, m[:, None] if _has(m, 1) else m))
)
padding_mask_transposed = wrong()(
    weighing(
        lambda s, lens, m: masked_softmax(s, lens, m.mT if _has(m, 3) and m.shape[1] == 1 else m)
    )
)
future_masked_unasked = wrong("allowed_key_has_no_weight")(
    weighing(
        lambda s, lens, m: masked_softmax(
            s, lens, torch.ones_like(s).bool().tril() & (m is None or m)
        )
    )
)
swapped = wrong("returned_in_the_other_order")(returning(lambda s, w, v: (w, w @ v)))
outputs_only = wrong("wrong_type")(returning(lambda s, w, v: w @ v))
scores_returned = wrong("outputs_are_not_weighted_values")(returning(lambda s, w, v: (w @ v, s)))
outputs_of_scores = wrong("outputs_are_not_weighted_values")(returning(lambda s, w, v: (s @ v, w)))


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
