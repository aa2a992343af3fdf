"""Answers to `scaled_dot_product_attention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import length_mask, masked_softmax
from course_lib.authoring.variants import faulty, right, wrong, wrong_in


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
def exponentials(queries, keys, values, valid_lens=None, mask=None):
    scores = (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(-1) / math.sqrt(keys.shape[-1])
    allowed = allowed_of(scores, valid_lens, mask)
    top = scores.masked_fill(~allowed, -math.inf).amax(-1, keepdim=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    e = torch.where(allowed, (scores - top.detach()).clamp(max=0.0).exp(), torch.zeros_like(scores))
    total = e.sum(-1, keepdim=True)
    weights = e / torch.where(total > 0, total, torch.ones_like(total))
    return weights @ values, weights


def _scored(queries, keys):
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


def filled(scores, given, number=-math.inf):
    return scores.masked_fill(~allowed_of(scores, *given), number)


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


def lengths_kept(scores, valid_lens, mask):
    if valid_lens is not None:
        valid_lens = _lengths_seen.setdefault((scores.shape, valid_lens.shape), valid_lens.clone())
    return masked_softmax(scores, valid_lens, mask)


def lengths_before_the_queries(scores, valid_lens, mask):
    """Right for three and four axes."""
    if valid_lens is None or scores.dim() < 5:
        return masked_softmax(scores, valid_lens, mask)
    return masked_softmax(scores, mask=length_mask(valid_lens, scores.shape[-1])[:, None, None])


def query_lengths_before_one_axis(scores, valid_lens, mask):
    """Right for three and four axes."""
    if valid_lens is None or valid_lens.dim() == 1 or scores.dim() < 5:
        return masked_softmax(scores, valid_lens, mask)
    return masked_softmax(scores, mask=length_mask(valid_lens, scores.shape[-1])[:, None])


def empty_in_one_of_them(scores, valid_lens, mask):
    """Look for empty rows in the lengths and in the mask, but not in both together."""
    weights = filled(scores, (valid_lens, mask)).softmax(-1)
    for given in ((valid_lens, None), (None, mask)):
        weights = torch.where(allowed_of(scores, *given).any(-1, keepdim=True), weights, 0.0)
    return weights


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


divides_in_place = but("input_mutated", score=scaled_in_place)
lengths_of_the_first_call = but(weigh=lengths_kept)
lengths_of_the_third_axis_of_five = but(weigh=lengths_before_the_queries)
query_lengths_of_the_second_axis_of_five = but(weigh=query_lengths_before_one_axis)
empty_rows_before_combining = but("not_a_number", weigh=empty_in_one_of_them)
dropout_half = but(
    "rows_do_not_sum_to_one", weigh=lambda s, *given: nn.Dropout(0.5)(masked_softmax(s, *given))
)
largest_number_subtracted = but(
    "dropped_key_has_weight",
    weigh=lambda s, *given: (
        torch.where(allowed_of(s, *given), s, s - torch.finfo(s.dtype).max).softmax(-1)
        * allowed_of(s, *given).any(-1, keepdim=True)
    ),
)
swapped = but("results_in_another_order", result=lambda s, w, v: (w, w @ v))
outputs_only = but("one_result_only", result=lambda s, w, v: w @ v)


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
