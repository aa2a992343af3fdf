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


@wrong("scores_overwritten")
def textbook(scores, valid_lens=None, mask=None):
    if valid_lens is None and mask is None:
        return F.softmax(scores, dim=-1)
    scores[~keep_of(scores, valid_lens, mask)] = -1e6
    return F.softmax(scores, dim=-1)


@wrong()
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


@wrong()
def three_dimensional_lengths_only(scores, valid_lens=None, mask=None):
    if valid_lens is not None:
        lengths = valid_lens.reshape(len(valid_lens), -1, 1)
        keep = torch.arange(scores.shape[-1]) < lengths
        mask = keep if mask is None else keep & mask
    return finfo_then_zero(scores, None, mask)


@wrong()
def query_lengths_given_to_heads(scores, valid_lens=None, mask=None):
    if valid_lens is not None and valid_lens.shape == scores.shape[:2] and scores.dim() == 4:
        keep = torch.arange(scores.shape[-1]) < valid_lens[..., None, None]
        return finfo_then_zero(scores, None, keep if mask is None else keep & mask)
    return finfo_then_zero(scores, valid_lens, mask)


@wrong("raised")
def view_of_whatever_comes(scores, valid_lens=None, mask=None):
    flat = scores.view(-1, scores.shape[-1])
    return finfo_then_zero(flat.reshape(scores.shape), valid_lens, mask)


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


@right
def zeros_at_once_if_nothing_is_allowed(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    return fill_and_zero(scores, None, keep) if keep.any() else scores * 0


@right
def lengths_to_int64_first(scores, valid_lens=None, mask=None):
    lengths = None if valid_lens is None else valid_lens.long()
    return finfo_then_zero(scores, lengths, mask)


@right
def query_lengths_for_four_axes_at_most(scores, valid_lens=None, mask=None):
    assert valid_lens is None or valid_lens.dim() == 1 or scores.dim() < 5
    return finfo_then_zero(scores, valid_lens, mask)


@wrong("query_axis_forgotten")
def lengths_laid_over_as_they_are(scores, valid_lens=None, mask=None):
    keep = torch.ones(scores.shape, dtype=torch.bool)
    if valid_lens is not None:
        keep = keep & (torch.arange(scores.size(-1)) < valid_lens.unsqueeze(-1))
    return fill_and_zero(scores, None, keep if mask is None else keep & mask)


@wrong("dropped_key_has_weight")
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


def by_what_is_kept(weigh):
    """An answer that needs to know only which keys are kept: `weigh(scores, keep)`."""
    return lambda scores, valid_lens=None, mask=None: weigh(
        scores, keep_of(scores, valid_lens, mask)
    )


def of_other_inputs(change):
    """The right weights of what `change(scores, valid_lens, mask)` makes of the inputs."""
    return lambda scores, valid_lens=None, mask=None: finfo_then_zero(
        *change(scores, valid_lens, mask)
    )


def filled(scores, keep, number=-math.inf):
    return scores.masked_fill(~keep, number)


@wrong("inverted")
def drops_the_kept(scores, valid_lens=None, mask=None):
    if valid_lens is None and mask is None:
        return torch.softmax(scores, -1)
    return filled(scores, ~keep_of(scores, valid_lens, mask)).softmax(-1).nan_to_num(0)


@wrong()
@of_other_inputs
def head_mask_tiled(scores, lens, mask):
    if mask is not None and mask.dim() == 4 and mask.shape[1] == 1:
        mask = mask[:, 0].repeat(scores.shape[1], 1, 1).reshape(scores.shape)
    return scores, lens, mask


@wrong()
@of_other_inputs
def int64_lengths_only(scores, lens, mask):
    assert lens is None or lens.dtype == torch.int64
    return scores, lens, mask


@wrong("input_mutated")
@of_other_inputs
def mask_in_place(scores, lens, mask):
    keep = keep_of(scores, lens, mask)
    if mask is not None and mask.shape == scores.shape:
        mask &= keep
    return scores, None, keep


@wrong()
@by_what_is_kept
def epsilon_in_the_sum(scores, keep):
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * keep
    return e / (e.sum(-1, keepdim=True) + 1e-6)


@wrong()
@by_what_is_kept
def empty_only_if_the_whole_item_is(scores, keep):
    empty = ~keep.any(-1, keepdim=True).any(-2, keepdim=True)
    return filled(scores, keep).masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)


@wrong("allowed_key_has_no_weight")
@by_what_is_kept
def softmax_zero_renormalise(scores, keep):
    kept = torch.softmax(scores, -1) * keep
    total = kept.sum(-1, keepdim=True)
    return kept / torch.where(total == 0, 1.0, total)


@wrong("wrong_gradient")
@by_what_is_kept
def sum_taken_as_constant(scores, keep):
    top = filled(scores.detach(), keep).amax(-1, keepdim=True)
    top = torch.where(top.isinf(), 0.0, top)
    e = torch.where(keep, torch.exp(torch.where(keep, scores - top, 0.0)), 0.0)
    total = e.sum(-1, keepdim=True).detach()
    return e / torch.where(total == 0, 1.0, total)


_seen = {}
remembers_by_shape = wrong()(
    by_what_is_kept(lambda s, keep: finfo_then_zero(s, None, _seen.setdefault(s.shape, keep)))
)
plain_softmax = wrong("nothing_masked")(by_what_is_kept(lambda s, keep: F.softmax(s, -1)))
times_mask_before = wrong("filled_with_zero")(
    by_what_is_kept(lambda s, keep: torch.softmax(s * keep, -1))
)
times_mask_after = wrong("zero_after_softmax")(
    by_what_is_kept(lambda s, keep: torch.softmax(s, -1) * keep)
)
nan_rows = wrong("empty_row_nan")(
    by_what_is_kept(lambda s, keep: F.softmax(torch.where(keep, s, -math.inf), -1))
)
nan_gradient = wrong("empty_row_gradient_nan")(
    by_what_is_kept(lambda s, keep: (s + keep.to(s).log()).softmax(-1).nan_to_num(nan=0.0))
)
empty_rows_become_uniform_without_nan = wrong("empty_row_uniform")(
    by_what_is_kept(lambda s, keep: filled(s, keep).softmax(-1).nan_to_num(1 / s.shape[-1]))
)
dim_minus_two = wrong("over_queries")(
    by_what_is_kept(lambda s, keep: filled(s, keep).softmax(-2).nan_to_num(0))
)
dim_minus_two_with_1e9 = wrong("rows_do_not_sum_to_one")(
    by_what_is_kept(lambda s, keep: filled(s, keep, -1e9).softmax(-2))
)
minus_one_billion = wrong("leaks_1e9")(
    by_what_is_kept(lambda s, keep: torch.softmax(torch.where(keep, s, -1e9), -1))
)
adds_1e9 = wrong("dropped_key_has_weight")(
    by_what_is_kept(lambda s, keep: (s + (1 - keep.to(s)) * -1e9).softmax(-1))
)
minus_one_hundred = wrong("very_negative_scores_lose")(
    by_what_is_kept(lambda s, keep: filled(s, keep, -100.0).softmax(-1) * keep)
)
a_fill_that_float32_lacks = wrong()(
    by_what_is_kept(lambda s, keep: filled(s, keep, -1e300).softmax(-1) * keep)
)
scaled_by_the_number_of_keys = wrong("not_exponential")(
    of_other_inputs(lambda s, lens, mask: (s / math.sqrt(s.shape[-1]), lens, mask))
)
lengths_only = wrong("bool_mask_ignored")(of_other_inputs(lambda s, lens, mask: (s, lens, None)))
torch_polarity_for_the_mask = wrong("bool_mask_inverted")(
    of_other_inputs(lambda s, lens, mask: (s, lens, None if mask is None else ~mask))
)
bool_mask_added = wrong("zero_one_mask_added")(
    of_other_inputs(lambda s, lens, mask: (s if mask is None else s + mask, lens, None))
)
any_for_is_none = wrong("empty_row_has_weight")(
    of_other_inputs(lambda s, lens, m: (s, lens if lens is not None and lens.any() else None, m))
)
through_data = wrong("gradient_cut")(of_other_inputs(lambda s, lens, mask: (s.data, lens, mask)))
in_float32 = wrong("dtype_changed")(of_other_inputs(lambda s, lens, mask: (s.float(), lens, mask)))
squeezed = wrong("wrong_shape")(lambda *args, **given: finfo_then_zero(*args, **given).squeeze())
numpy_result = wrong("wrong_type")(
    lambda *args, **given: finfo_then_zero(*args, **given).detach().numpy()
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
