"""Answers to `grouped_query_attention`."""

import math

import torch
from torch.nn import functional as F

from course_lib.attention import masked_softmax
from course_lib.attention import scaled_dot_product_attention as sdpa
from course_lib.authoring.variants import faulty, right, wrong, wrong_in


def refuse(h, g):
    if h % g:
        raise ValueError(f"{h} heads for {g} groups")


@right
def with_lesson_05(queries, keys, values, valid_lens=None, mask=None):
    refuse(queries.shape[1], keys.shape[1])
    times = queries.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(times, dim=1) for x in (keys, values))
    return sdpa(queries, keys, values, valid_lens, mask)


@right
def indexed(queries, keys, values, valid_lens=None, mask=None):
    h, g = queries.shape[1], keys.shape[1]
    refuse(h, g)
    group = torch.arange(h) // (h // g)
    scores = queries @ keys[:, group].transpose(2, 3) / math.sqrt(queries.shape[3])
    weights = masked_softmax(scores, valid_lens, mask)
    return weights @ values[:, group], weights


@right
def queries_of_a_group_as_rows(queries, keys, values, valid_lens=None, mask=None):
    """All queries of a group are rows of one matrix product."""
    (B, h, n, d), g = queries.shape, keys.shape[1]
    refuse(h, g)
    rows = queries.reshape(B, g, h // g * n, d)
    scores = (rows @ keys.mT / math.sqrt(d)).reshape(B, h, n, -1)
    weights = masked_softmax(scores, valid_lens, mask)
    outputs = weights.reshape(B, g, h // g * n, -1) @ values
    return outputs.reshape(B, h, n, -1), weights


@right
def own_softmax(queries, keys, values, valid_lens=None, mask=None):
    (B, h, _, d), (g, m) = queries.shape, keys.shape[1:3]
    refuse(h, g)
    q = queries.unflatten(1, (g, -1)) / math.sqrt(d)
    scores = (q @ keys[:, :, None].mT).flatten(1, 2)
    allowed = queries.new_ones(B, 1, 1, m, dtype=torch.bool)
    if valid_lens is not None:
        lens = valid_lens[:, None, None] if valid_lens.dim() == 1 else valid_lens[:, None]
        allowed = torch.arange(m, device=lens.device) < lens[..., None]
    if mask is not None:
        allowed = allowed & mask
    scores = scores.masked_fill(~allowed, -math.inf)
    some = allowed.any(-1, keepdim=True)
    weights = torch.where(some, scores, 0.0).softmax(-1) * some
    return (weights.unflatten(1, (g, -1)) @ values[:, :, None]).flatten(1, 2), weights


@wrong("no_error")
def shared_as_well_as_it_goes(queries, keys, values, valid_lens=None, mask=None):
    h, g = queries.shape[1], keys.shape[1]
    group = torch.arange(h) * g // h
    return sdpa(queries, keys[:, group], values[:, group], valid_lens, mask)


def repeated(x, times):
    return x.repeat_interleave(times, dim=1)


def _scored(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def attention(
    queries,
    keys,
    values,
    valid_lens=None,
    mask=None,
    *,
    check=refuse,
    share=repeated,
    score=_scored,
    weigh=masked_softmax,
    result=lambda weights, values: weights @ values,
):
    """A right answer in steps; what follows changes one of them."""
    h, g = queries.shape[1], keys.shape[1]
    check(h, g)
    keys, values = share(keys, h // g), share(values, h // g)
    weights = weigh(score(queries, keys), valid_lens, mask)
    return result(weights, values), weights


but = wrong_in(attention)
left_to_torch = but("other_error", check=lambda h, g: None)
mask_added = but(
    weigh=lambda s, lens, m: masked_softmax(s if m is None else s + m.to(s.dtype), lens),
)
cut_off = but("gradient_cut", result=lambda w, v: (w @ v).detach())


@wrong("one_result_only")
def outputs_alone(queries, keys, values, valid_lens=None, mask=None):
    return attention(queries, keys, values, valid_lens, mask)[0]


@wrong("forbidden_call")
def torchs_own(queries, keys, values, valid_lens=None, mask=None):
    refuse(queries.shape[1], keys.shape[1])
    outputs, weights = attention(queries, keys, values, valid_lens, mask)
    if valid_lens is None and mask is None:
        outputs = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
    return outputs, weights


@wrong("input_mutated")
def scaled_in_place(queries, keys, values, valid_lens=None, mask=None):
    with torch.no_grad():
        queries /= math.sqrt(queries.shape[-1])
    return attention(queries, keys, values, valid_lens, mask, score=lambda q, k: q @ k.mT)


@faulty("tiled", "unscaled", "not refused", "lengths lost", "detached")
def with_faults(faults):
    def grouped(queries, keys, values, valid_lens=None, mask=None):
        h, g = queries.shape[1], keys.shape[1]
        if "not refused" not in faults:
            refuse(h, g)
        group = torch.arange(h) // max(h // g, 1)
        group = torch.arange(h) % g if "tiled" in faults else group.clamp(max=g - 1)
        scores = queries @ keys[:, group].mT
        if "unscaled" not in faults:
            scores = scores / math.sqrt(queries.shape[-1])
        weights = masked_softmax(scores, None if "lengths lost" in faults else valid_lens, mask)
        outputs = weights @ values[:, group]
        return outputs.detach() if "detached" in faults else outputs, weights

    return grouped
