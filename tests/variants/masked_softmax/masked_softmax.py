"""Answers to `masked_softmax`, as different hands would write them."""

import math

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong


def keep_of(scores, valid_lens, mask):
    """Which keys may be attended, as a bool tensor of the shape of the scores."""
    keep = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        shape = [scores.shape[0]] + [1] * (scores.dim() - 1)
        if valid_lens.dim() == 2:
            shape[-2] = valid_lens.shape[1]
        positions = torch.arange(scores.shape[-1], device=scores.device)
        keep = keep & (positions < valid_lens.reshape(shape))
    if mask is not None:
        keep = keep & mask
    return keep


@right
def fill_and_zero(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    weights = torch.softmax(scores.masked_fill(~keep, -math.inf), -1)
    return torch.where(keep.any(-1, keepdim=True), weights, torch.zeros_like(weights))


@right
def infinity_then_zero(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    filled = scores.masked_fill(~keep & keep.any(-1, keepdim=True), -math.inf)
    return torch.softmax(filled, -1) * keep


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
def through_attention_with_identity_values(scores, valid_lens=None, mask=None):
    keep = keep_of(scores, valid_lens, mask)
    empty = ~keep.any(-1, keepdim=True)
    bias = torch.where(keep | empty, scores, -math.inf)
    queries, keys = (torch.zeros_like(s[..., :1]) for s in (scores, scores.mT))
    values = torch.eye(scores.shape[-1]).to(scores).expand(*scores.shape[:-2], -1, -1)
    weights = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
    return weights.masked_fill(empty, 0.0)


@wrong("input_mutated")
def textbook(scores, valid_lens=None, mask=None):
    if valid_lens is None and mask is None:
        return F.softmax(scores, dim=-1)
    scores[~keep_of(scores, valid_lens, mask)] = -1e6
    return F.softmax(scores, dim=-1)


@wrong()
def query_lengths_given_to_heads(scores, valid_lens=None, mask=None):
    if valid_lens is not None and valid_lens.shape == scores.shape[:2] and scores.dim() == 4:
        keep = torch.arange(scores.shape[-1]) < valid_lens[..., None, None]
        return infinity_then_zero(scores, None, keep if mask is None else keep & mask)
    return infinity_then_zero(scores, valid_lens, mask)


def by_what_is_kept(weigh):
    """An answer that needs to know only which keys are kept: `weigh(scores, keep)`."""
    return lambda scores, valid_lens=None, mask=None: weigh(
        scores, keep_of(scores, valid_lens, mask)
    )


def of_other_inputs(change):
    """The right weights of what `change(scores, valid_lens, mask)` makes of the inputs."""
    return lambda scores, valid_lens=None, mask=None: infinity_then_zero(
        *change(scores, valid_lens, mask)
    )


def filled(scores, keep, number=-math.inf):
    return scores.masked_fill(~keep, number)


@wrong("input_mutated")
@of_other_inputs
def mask_in_place(scores, lens, mask):
    keep = keep_of(scores, lens, mask)
    if mask is not None and mask.shape == scores.shape:
        mask &= keep
    return scores, None, keep


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
    by_what_is_kept(lambda s, keep: infinity_then_zero(s, None, _seen.setdefault(s.shape, keep)))
)


looks_for_empty_rows_before_combining = wrong("not_a_number")(
    lambda s, valid_lens=None, mask=None: (
        filled(s, keep_of(s, valid_lens, mask))
        .masked_fill(~keep_of(s, valid_lens, None).any(-1, keepdim=True), 0.0)
        .masked_fill(~keep_of(s, None, mask).any(-1, keepdim=True), 0.0)
        .softmax(-1)
        * keep_of(s, valid_lens, mask)
    )
)
through_data = wrong("gradient_cut")(of_other_inputs(lambda s, lens, mask: (s.data, lens, mask)))
in_float32 = wrong("dtype_changed")(of_other_inputs(lambda s, lens, mask: (s.float(), lens, mask)))
squeezed = wrong("squeezed")(lambda *args, **given: infinity_then_zero(*args, **given).squeeze())


@faulty("mask_ignored", "empty_rows", "detached")
def several_faults(faults):
    def masked_softmax(scores, valid_lens=None, mask=None):
        keep = keep_of(scores, valid_lens, None if "mask_ignored" in faults else mask)
        scores = scores.detach() if "detached" in faults else scores
        if "empty_rows" in faults:
            return torch.softmax(scores.masked_fill(~keep, -1e9), -1)
        return infinity_then_zero(scores, None, keep)

    return masked_softmax
