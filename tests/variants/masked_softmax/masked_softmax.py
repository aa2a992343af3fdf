"""Answers to `masked_softmax`, as different hands would write them."""

import math

import torch
from torch.nn import functional as F

from course_lib.checks.matrix import right, wrong


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


@wrong("mask_ignored")
def plain_softmax(scores, valid_lens=None, mask=None):
    return F.softmax(scores, -1)


@wrong("bool_mask_ignored")
def lengths_only(scores, valid_lens=None, mask=None):
    return fill_and_zero(scores, valid_lens)


@wrong("lengths_ignored")
def mask_only(scores, valid_lens=None, mask=None):
    return fill_and_zero(scores, None, mask)


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


@wrong("scores_overwritten_with_1e6")
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


@wrong("empty_row_gradient_nan")
def where_after_added_mask(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    added = torch.zeros_like(scores).masked_fill(~keep, -math.inf)
    return torch.where(keep, torch.softmax(scores + added, -1), 0.0)


@wrong("leaks_1e6")
def minus_one_million(scores, valid_lens=None, mask=None):
    return torch.softmax(torch.where(keep_of(scores, valid_lens, mask), scores, -1e6), -1)


@wrong("leaks_1e9")
def minus_one_billion(scores, valid_lens=None, mask=None):
    return torch.softmax(torch.where(keep_of(scores, valid_lens, mask), scores, -1e9), -1)


@wrong("gradient_cut")
def through_data(scores, valid_lens=None, mask=None):
    return fill_and_zero(scores.data, valid_lens, mask)


@wrong("lengths_required")
def needs_lengths(scores, valid_lens=None, mask=None):
    columns = valid_lens.reshape(len(valid_lens), -1, 1)
    keep = torch.arange(scores.shape[-1]) < columns
    if scores.dim() == 4:
        keep = keep.unsqueeze(1)
    if mask is not None:
        keep = keep & mask
    return finfo_then_zero(scores, None, keep)


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


@wrong("dtype_changed")
def in_float32(scores, valid_lens=None, mask=None):
    return finfo_then_zero(scores.float(), valid_lens, mask)


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
def empty_rows_become_uniform_without_nan(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    weights = torch.softmax(scores.masked_fill(~keep, -math.inf), -1)
    return weights.nan_to_num(1 / scores.shape[-1])


@wrong()
def sharpened(scores, valid_lens=None, mask=None):
    return finfo_then_zero(scores * 1.5, valid_lens, mask)


@wrong()
def argmax(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    best = scores.masked_fill(~keep, -math.inf).argmax(-1)
    return F.one_hot(best, scores.shape[-1]).to(scores.dtype) * keep


@wrong()
def epsilon_in_the_sum(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * keep
    return e / (e.sum(-1, keepdim=True) + 1e-6)


@wrong()
def rounded(scores, valid_lens=None, mask=None):
    return (finfo_then_zero(scores, valid_lens, mask) * 1e4).round() / 1e4


@wrong()
def first_item_for_all(scores, valid_lens=None, mask=None):
    if valid_lens is not None:
        valid_lens = valid_lens[:1].expand_as(valid_lens)
    return finfo_then_zero(scores, valid_lens, mask)


@wrong()
def noisy(scores, valid_lens=None, mask=None):
    return finfo_then_zero(scores + 1e-5 * torch.randn_like(scores), valid_lens, mask)


@wrong("global_rng_used")
def draws_and_forgets(scores, valid_lens=None, mask=None):
    torch.rand(1)
    return finfo_then_zero(scores, valid_lens, mask)
