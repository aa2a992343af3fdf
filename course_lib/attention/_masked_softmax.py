"""Lesson 02: turning scores into weights when some keys must not be seen."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def stable_softmax(scores: Float[np.ndarray, "..."], axis: int = -1) -> Float[np.ndarray, "..."]:
    """Return the softmax along one axis in NumPy, for scores of any size.

    softmax(s)_j = exp(s_j) / sum_k exp(s_k), even where exp(s_j) alone would overflow.

    Args:
        scores: array of any shape, finite.
        axis: the axis that sums to 1 afterwards.

    Returns:
        A new array of the shape of `scores`, in its dtype, non-negative, summing to 1 along
        `axis`.

    Source: Blanchard, Higham & Higham 2021, section 3, https://doi.org/10.1093/imanum/draa038
    """
    shifted = scores - scores.max(axis=axis, keepdims=True)  # largest entry is 0
    exponentials = np.exp(shifted)
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@checked
def length_mask(valid_lens: Int[Tensor, "..."], max_len: int) -> Bool[Tensor, "... max_len"]:
    """Mark the keys that are real when each item holds a different number of them.

    Args:
        valid_lens: integers in `0..max_len`, of shape `(batch,)` with one length for each item,
            or `(batch, num_queries)` with one length for each query.
        max_len: the number of keys after padding.

    Returns:
        Bool mask on the device of `valid_lens`, True where the key is real: shape
        `(batch, max_len)` or `(batch, num_queries, max_len)`.
    """
    positions = torch.arange(max_len, device=valid_lens.device)  # (max_len,)
    return positions < valid_lens.unsqueeze(-1)  # (..., max_len)


@checked
def causal_mask(
    num_queries: int, num_keys: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "n m"]:
    """Let each query attend to its own and earlier positions; the last query sees all keys.

    The last query is aligned with the last key. This differs from torch's `is_causal=True`, which
    aligns the first query with the first key.

    Args:
        num_queries: n, at least 1.
        num_keys: m, at least 0; as many as queries if not given.
        device: device of the mask, as in `torch.ones`.

    Returns:
        Bool mask `(num_queries, num_keys)`, True = may attend.

    Source: Vaswani et al. 2017, section 3.2.3, https://arxiv.org/abs/1706.03762
    """
    if num_keys is None:
        num_keys = num_queries
    everything = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return everything.tril(diagonal=num_keys - num_queries)


@checked
def combine_masks(*masks: Bool[Tensor, "..."] | None) -> Bool[Tensor, "..."] | None:
    """Allow a key only where every given mask allows it.

    Args:
        *masks: bool masks, True = may attend, broadcastable to each other; None allows all.

    Returns:
        The masks ANDed, in their broadcast shape; None if none was given.
    """
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined


@checked
def additive_mask(mask: Bool[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Turn a bool mask into numbers that can be added to scores before the softmax.

    Args:
        mask: True = may attend, any shape.
        dtype: the floating dtype of the scores.

    Returns:
        Tensor of the shape and device of `mask`: 0 where kept, -inf where dropped.
    """
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, -math.inf)


@checked
def masked_softmax(
    scores: Float[Tensor, "*batch num_queries num_keys"],
    valid_lens: Int[Tensor, "..."] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch num_queries num_keys"]:
    """Return the softmax over the allowed keys; the other keys get weight 0.

    A query with no allowed key gets zeros, and its gradient is zero as well.

    Args:
        scores: one score for each query and key.
        valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`, the
            same for every head of an item; for scores with a leading batch dimension.
        mask: True = may attend, broadcastable to `scores`. With both given, a key must be
            allowed by both.

    Returns:
        Weights of the shape of `scores`; each row sums to 1, or to 0 if no key is allowed.

    Source: Vaswani et al. 2017, section 3.2.3, https://arxiv.org/abs/1706.03762
    """
    if valid_lens is not None:
        max_len = scores.shape[-1]
        real = length_mask(valid_lens, max_len)
        num_queries = real.shape[1] if valid_lens.dim() == 2 else 1
        heads = [1] * (scores.dim() - 3)
        real = real.reshape(len(real), *heads, num_queries, max_len)  # (batch, ..., n or 1, m)
        mask = real if mask is None else real & mask
    if mask is None:
        return torch.softmax(scores, dim=-1)
    empty = ~mask.any(dim=-1, keepdim=True)  # (..., n or 1, 1)
    scores = scores.masked_fill(~mask, -math.inf)
    scores = scores.masked_fill(empty, 0.0)  # a row of nothing but -inf would give NaN
    return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)
