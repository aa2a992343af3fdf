"""Answers to `masked_softmax`, as different hands would write them."""

import math

import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong


def keep_of(scores, valid_lens, mask):
    """Which keys may be attended, as a bool tensor of the shape of the scores."""
    keep = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        shape = [scores.shape[0]] + [1] * (scores.dim() - 1)
        if valid_lens.dim() == 2:
            shape[-2] = valid_lens.shape[1]
        keep = keep & (torch.arange(scores.shape[-1]) < valid_lens.reshape(shape))
    if mask is not None:
        keep = keep & mask
    return keep


@right
def fill_and_zero(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    weights = torch.softmax(scores.masked_fill(~keep, -math.inf), -1)
    return torch.where(keep.any(-1, keepdim=True), weights, torch.zeros_like(weights))


@right
def finfo_then_zero(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    filled = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    return torch.softmax(filled, -1) * keep


@right
def exp_times_mask(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    top = scores.masked_fill(~keep, -math.inf).amax(-1, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top).detach()
    e = torch.exp(torch.where(keep, scores - top, -math.inf))
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


@right
def logsumexp_form(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    empty = ~keep.any(-1, keepdim=True)
    safe = torch.where(keep | empty, scores, -math.inf)
    weights = torch.exp(safe - torch.logsumexp(safe, -1, keepdim=True))
    return torch.where(empty, 0.0, weights)


@right
def row_loop(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask).reshape(-1, scores.shape[-1])
    rows = []
    for row, allowed in zip(scores.reshape(-1, scores.shape[-1]), keep, strict=True):
        out = torch.zeros_like(row)
        if allowed.any():
            out = out.masked_scatter(allowed, F.softmax(row[allowed], dim=0))
        rows.append(out + 0 * row.sum() if not allowed.any() else out)
    return torch.stack(rows).reshape(scores.shape)


@right
def added_finite_mask_then_zero(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    empty = ~keep.any(-1, keepdim=True)
    added = torch.where(keep | empty, 0.0, -math.inf).to(scores.dtype)
    return F.softmax(scores + added, dim=-1) * ~empty


@right
def copies_then_writes(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    work = scores.clone()
    work[~keep] = -math.inf
    return torch.softmax(work, dim=-1).masked_fill(~keep.any(-1, keepdim=True), 0)


@right
def sigmoid_of_differences(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    gaps = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    gaps = torch.where(keep.unsqueeze(-2), -gaps, -math.inf)
    weights = torch.exp(-torch.logsumexp(torch.where(keep[..., None], gaps, 0.0), -1))
    return torch.where(keep, weights, 0.0)


@wrong("allowed_key_has_no_weight")
def softmax_zero_renormalise(scores, valid_lens=None, mask=None):
    kept = torch.softmax(scores, -1) * keep_of(scores, valid_lens, mask)
    total = kept.sum(-1, keepdim=True)
    return kept / torch.where(total == 0, 1.0, total)


@right
def sorted_and_scattered_back(scores, valid_lens=None, mask=None):
    ordered, order = scores.sort(-1)
    keep = keep_of(scores, valid_lens, mask).gather(-1, order)
    weights = finfo_then_zero(ordered, None, keep)
    return torch.zeros_like(scores).scatter(-1, order, weights)


@right
def through_attention_with_identity_values(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    empty = ~keep.any(-1, keepdim=True)
    bias = torch.where(keep | empty, scores, -math.inf)
    queries, keys = (torch.zeros_like(s[..., :1]) for s in (scores, scores.mT))
    values = torch.eye(scores.shape[-1]).to(scores).expand(*scores.shape[:-2], -1, -1)
    weights = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
    return weights.masked_fill(empty, 0.0)


@right
def row_by_row_with_vmap(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask).reshape(-1, scores.shape[-1])
    rows = torch.vmap(lambda s, k: finfo_then_zero(s, None, k))(scores.reshape(keep.shape), keep)
    return rows.reshape(scores.shape)


@right
def sparse_softmax(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask).reshape(-1, scores.shape[-1])
    kept = torch.sparse_coo_tensor(keep.nonzero().T, scores.reshape(keep.shape)[keep], keep.shape)
    return torch.sparse.softmax(kept, 1).to_dense().reshape(scores.shape)


class _MaskedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, keep):
        weights = finfo_then_zero(scores, None, keep)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, grad):
        (weights,) = ctx.saved_tensors
        return weights * (grad - (weights * grad).sum(-1, keepdim=True)), None


@right
def own_backward(scores, valid_lens=None, mask=None):
    return _MaskedSoftmax.apply(scores, keep_of(scores, valid_lens, mask))


@right
def strict_about_its_arguments(scores, valid_lens=None, mask=None):
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError("mask must be bool")
    if valid_lens is not None and int(valid_lens.max()) > scores.shape[-1]:
        raise ValueError("a length beyond the number of keys")
    return finfo_then_zero(scores, valid_lens, mask)


@right
def strides_of_its_own(scores, valid_lens=None, mask=None):
    return finfo_then_zero(scores, valid_lens, mask).mT.contiguous().mT


@right
def prints_on_the_way(*args, **kwargs):
    print("scores", args[0])
    return finfo_then_zero(*args, **kwargs)


@wrong("filled_with_zero")
def times_mask_before(scores, valid_lens=None, mask=None):
    return torch.softmax(scores * keep_of(scores, valid_lens, mask), -1)


@wrong("zero_after_softmax")
def times_mask_after(scores, valid_lens=None, mask=None):
    return torch.softmax(scores, -1) * keep_of(scores, valid_lens, mask)


@wrong("over_queries")
def dim_minus_two(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~keep, -math.inf), -2).nan_to_num(0)


@wrong("inverted")
def drops_the_kept(scores, valid_lens=None, mask=None):
    if valid_lens is None and mask is None:
        return torch.softmax(scores, -1)
    keep = keep_of(scores, valid_lens, mask)
    weights = torch.softmax(scores.masked_fill(keep, -math.inf), -1)
    return weights.nan_to_num(0)


@wrong("scores_overwritten")
def textbook(scores, valid_lens=None, mask=None):
    if valid_lens is None and mask is None:
        return F.softmax(scores, dim=-1)
    scores[~keep_of(scores, valid_lens, mask)] = -1e6
    return F.softmax(scores, dim=-1)


@wrong("empty_row_nan")
def nan_rows(scores, valid_lens=None, mask=None):
    return F.softmax(torch.where(keep_of(scores, valid_lens, mask), scores, -math.inf), -1)


@wrong("empty_row_gradient_nan")
def nan_gradient(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    weights = torch.softmax(scores + torch.log(keep.to(scores.dtype)), -1)
    return torch.nan_to_num(weights, nan=0.0)


@wrong("leaks_1e9")
def minus_one_billion(scores, valid_lens=None, mask=None):
    return torch.softmax(torch.where(keep_of(scores, valid_lens, mask), scores, -1e9), -1)


@wrong("lengths_tiled")
def repeated(scores, valid_lens=None, mask=None):
    if valid_lens is not None and valid_lens.dim() == 1:
        rows = scores.shape[:-1].numel()
        flat = valid_lens.repeat(rows // len(valid_lens))
        keep = torch.arange(scores.shape[-1]) < flat[:, None]
        keep = keep.reshape(scores.shape)
        mask = keep if mask is None else keep & mask
        valid_lens = None
    return fill_and_zero(scores, valid_lens, mask)


@wrong()
def repeats_without_interleave_after_head_flattening(scores, valid_lens=None, mask=None):
    if scores.dim() == 4 and valid_lens is not None:
        batch, heads, n, m = scores.shape
        flat = valid_lens.repeat(heads) if valid_lens.dim() == 1 else valid_lens.repeat(heads, 1)
        flat_mask = None if mask is None else mask.expand(scores.shape).reshape(-1, n, m)
        out = finfo_then_zero(scores.reshape(-1, n, m), flat, flat_mask)
        return out.reshape(scores.shape)
    return finfo_then_zero(scores, valid_lens, mask)


@wrong("head_axis_forgotten")
def three_dimensional_lengths_only(scores, valid_lens=None, mask=None):
    if valid_lens is not None:
        lengths = valid_lens.reshape(len(valid_lens), -1, 1)
        keep = torch.arange(scores.shape[-1]) < lengths
        mask = keep if mask is None else keep & mask
    return finfo_then_zero(scores, None, mask)


@wrong("empty_row_uniform")
def empty_rows_become_uniform_without_nan(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    weights = torch.softmax(scores.masked_fill(~keep, -math.inf), -1)
    return weights.nan_to_num(1 / scores.shape[-1])


@wrong()
def epsilon_in_the_sum(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * keep
    return e / (e.sum(-1, keepdim=True) + 1e-6)


@wrong()
def head_mask_tiled(scores, valid_lens=None, mask=None):
    if mask is not None and mask.dim() == 4 and mask.shape[1] == 1:
        mask = mask[:, 0].repeat(scores.shape[1], 1, 1).reshape(scores.shape)
    return finfo_then_zero(scores, valid_lens, mask)


@wrong()
def query_lengths_given_to_heads(scores, valid_lens=None, mask=None):
    if valid_lens is not None and valid_lens.shape == scores.shape[:2] and scores.dim() == 4:
        keep = torch.arange(scores.shape[-1]) < valid_lens[..., None, None]
        return finfo_then_zero(scores, None, keep if mask is None else keep & mask)
    return finfo_then_zero(scores, valid_lens, mask)


@wrong()
def a_fill_that_float32_lacks(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~keep, -1e300), -1) * keep


@wrong()
def int64_lengths_only(scores, valid_lens=None, mask=None):
    assert valid_lens is None or valid_lens.dtype == torch.int64
    return finfo_then_zero(scores, valid_lens, mask)


@wrong()
def empty_only_if_the_whole_item_is(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    empty = ~keep.any(-1, keepdim=True).any(-2, keepdim=True)
    filled = scores.masked_fill(~keep, -math.inf).masked_fill(empty, 0.0)
    return torch.softmax(filled, -1).masked_fill(empty, 0.0)


@wrong("not_exponential")
def scaled_by_the_number_of_keys(scores, valid_lens=None, mask=None):
    return finfo_then_zero(scores / math.sqrt(scores.shape[-1]), valid_lens, mask)


@wrong("wrong_gradient")
def sum_taken_as_constant(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    e = torch.where(keep, torch.exp(finfo_free(scores, keep)), 0.0)
    total = e.sum(-1, keepdim=True).detach()
    return e / torch.where(total == 0, 1.0, total)


def finfo_free(scores, keep):
    """Scores less the largest kept one of each row; 0 where nothing is kept."""
    top = scores.detach().masked_fill(~keep, -math.inf).amax(-1, keepdim=True)
    return torch.where(keep, scores - torch.where(top.isinf(), 0.0, top), 0.0)


@wrong("input_mutated")
def mask_in_place(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    if mask is not None and mask.shape == scores.shape:
        mask &= keep
    return finfo_then_zero(scores, None, keep)


_seen = {}


@wrong()
def remembers_by_shape(scores, valid_lens=None, mask=None):
    keep = _seen.setdefault(scores.shape, keep_of(scores, valid_lens, mask))
    return finfo_then_zero(scores, None, keep)


@wrong("raised")
def view_of_whatever_comes(scores, valid_lens=None, mask=None):
    flat = scores.view(-1, scores.shape[-1])
    return finfo_then_zero(flat.reshape(scores.shape), valid_lens, mask)


@wrong("wrong_type")
def numpy_result(scores, valid_lens=None, mask=None):
    return finfo_then_zero(scores, valid_lens, mask).detach().numpy()


@right
def one_more_key_for_empty_rows(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    nobody = torch.where(keep.any(-1, keepdim=True), -math.inf, 0.0).to(scores.dtype)
    longer = torch.cat([scores.masked_fill(~keep, -math.inf), nobody], dim=-1)
    return longer.softmax(-1)[..., :-1]


@right
def far_below_the_smallest_score(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    return torch.softmax(torch.where(keep, scores, scores.min() - 50), -1) * keep


@wrong("very_negative_scores_lose")
def minus_one_hundred(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    return torch.softmax(scores.masked_fill(~keep, -100.0), -1) * keep


@right
def zeros_at_once_if_nothing_is_allowed(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    return fill_and_zero(scores, None, keep) if keep.any() else scores * 0


@right
def lengths_to_int64_first(scores, valid_lens=None, mask=None):
    lengths = None if valid_lens is None else valid_lens.long()
    return finfo_then_zero(scores, lengths, mask)


@wrong("empty_row_has_weight")
def any_for_is_none(scores, valid_lens=None, mask=None):
    lengths = valid_lens if valid_lens is not None and valid_lens.any() else None
    return finfo_then_zero(scores, lengths, mask)


@right
def query_lengths_for_four_axes_at_most(scores, valid_lens=None, mask=None):
    assert valid_lens is None or valid_lens.dim() == 1 or scores.dim() < 5
    return finfo_then_zero(scores, valid_lens, mask)


@wrong("rows_do_not_sum_to_one")
def dim_minus_two_with_1e9(scores, valid_lens=None, mask=None):
    return scores.masked_fill(~keep_of(scores, valid_lens, mask), -1e9).softmax(-2)


@wrong("dropped_key_has_weight")
def adds_1e9(scores, valid_lens=None, mask=None):
    return (scores + (1 - keep_of(scores, valid_lens, mask).to(scores)) * -1e9).softmax(-1)


@wrong("query_axis_forgotten")
def lengths_laid_over_as_they_are(scores, valid_lens=None, mask=None):
    keep = torch.ones(scores.shape, dtype=torch.bool)
    if valid_lens is not None:
        keep = keep & (torch.arange(scores.size(-1)) < valid_lens.unsqueeze(-1))
    return fill_and_zero(scores, None, keep if mask is None else keep & mask)


@wrong("zero_one_mask_added")
def bool_mask_added(scores, valid_lens=None, mask=None):
    if mask is not None:
        scores = scores + mask
    return finfo_then_zero(scores, valid_lens)


@wrong("allowed_key_has_no_weight")
def exp_of_all_less_the_largest(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    shifted = scores - scores.max(dim=-1, keepdim=True).values
    kept = shifted.exp() * keep
    total = kept.sum(dim=-1, keepdim=True)
    return kept / total.masked_fill(total == 0, 1.0)


@wrong("leaks_1e9")
def from_a_book(scores, valid_lens=None, mask=None):
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e6)
    if valid_lens is None:
        return F.softmax(scores, dim=-1)
    shape = scores.shape
    if valid_lens.dim() == 1:
        valid_lens = torch.repeat_interleave(valid_lens, shape[1])
    else:
        valid_lens = valid_lens.reshape(-1)
    rows = scores.reshape(-1, shape[-1])
    real = torch.arange(rows.size(1))[None, :] < valid_lens[:, None]
    rows[~real] = -1e6
    return F.softmax(rows.reshape(shape), dim=-1)


@wrong("bool_mask_inverted")
def torch_polarity_for_the_mask(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, None)
    return fill_and_zero(scores, None, keep if mask is None else keep & ~mask)


plain_softmax = wrong("nothing_masked")(
    lambda scores, valid_lens=None, mask=None: F.softmax(scores, -1)
)
lengths_only = wrong("bool_mask_ignored")(
    lambda scores, valid_lens=None, mask=None: fill_and_zero(scores, valid_lens)
)
through_data = wrong("gradient_cut")(
    lambda scores, valid_lens=None, mask=None: fill_and_zero(scores.data, valid_lens, mask)
)
in_float32 = wrong("dtype_changed")(
    lambda scores, valid_lens=None, mask=None: finfo_then_zero(scores.float(), valid_lens, mask)
)
squeezed = wrong("wrong_shape")(
    lambda scores, valid_lens=None, mask=None: finfo_then_zero(scores, valid_lens, mask).squeeze()
)
mask_comes_first = wrong()(
    lambda scores, mask=None, valid_lens=None: finfo_then_zero(scores, valid_lens, mask)
)


@faulty("finite_fill", "head_axis", "in_place", "lengths_required")
def slips_of_a_fill(faults):
    def masked_softmax(scores, valid_lens=None, mask=None):
        if "lengths_required" in faults:
            assert valid_lens.dim() < 3
        keep = torch.ones(scores.shape, dtype=torch.bool)
        if valid_lens is not None:
            real = torch.arange(scores.shape[-1]) < valid_lens.reshape(len(valid_lens), -1, 1)
            if scores.dim() == 4 and "head_axis" not in faults:
                real = real.unsqueeze(1)
            keep = keep & real
        if mask is not None:
            keep = keep & mask
        number = -1e9 if "finite_fill" in faults else torch.finfo(scores.dtype).min
        if "in_place" in faults:
            scores[~keep] = number
        else:
            scores = scores.masked_fill(~keep, number)
        weights = scores.softmax(-1)
        return weights if "finite_fill" in faults else weights * keep

    return masked_softmax


@faulty("nan_gradient", "head_axis", "mask_ignored", "int64_only")
def slips_of_a_sum(faults):
    def masked_softmax(scores, valid_lens=None, mask=None):
        added = torch.zeros_like(scores)
        if valid_lens is not None:
            assert valid_lens.dtype == torch.int64 or "int64_only" not in faults
            heads = [1] * (0 if "head_axis" in faults else scores.dim() - 3)
            drop = torch.arange(scores.shape[-1]) >= valid_lens.reshape(
                len(valid_lens), *heads, -1, 1
            )
            added = added.masked_fill(drop, -math.inf)
        if mask is not None and "mask_ignored" not in faults:
            added = added.masked_fill(~mask, -math.inf)
        empty = added.isneginf().all(-1, keepdim=True)
        if "nan_gradient" not in faults:
            added = added.masked_fill(empty, 0.0)
        return torch.where(empty, 0.0, torch.softmax(scores + added, -1))

    return masked_softmax
