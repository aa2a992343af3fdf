"""Masked softmax with one masking pass forward and none backward."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention import length_mask
from course_lib.attention._checked import checked


@checked
def masked_softmax(
    scores: Float[Tensor, "*batch num_queries num_keys"],
    valid_lens: Int[Tensor, "..."] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch num_queries num_keys"]:
    """Return softmax weights over the allowed keys; the other keys get weight 0.

    Differs from `course_lib.attention.masked_softmax` only in speed. The backward pass needs the
    weights and no mask, because a score whose weight is 0 has a gradient of 0.

    Args:
        scores: one score for each query and key.
        valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`.
        mask: True = may attend, broadcastable to `scores`. With both given, a key must be
            allowed by both.

    Returns:
        Weights of the shape of `scores`; each row sums to 1, or to 0 if no key is allowed.
    """
    return softmax_of_allowed(scores, allowed_keys(scores.shape, valid_lens, mask))


def softmax_of_allowed(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Return softmax weights over the allowed keys, or over all keys if `allowed` is None."""
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    return _SoftmaxOfAllowed.apply(scores, allowed)


class _SoftmaxOfAllowed(torch.autograd.Function):
    """Softmax over the allowed keys, with zeros in rows without one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, allowed: Tensor) -> Tensor:
        """Return the weights, of the shape of `scores`."""
        weights = torch.softmax(torch.where(allowed, scores, -math.inf), dim=-1)
        return weights.masked_fill_(~allowed.any(dim=-1, keepdim=True), 0.0)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        """Save the weights."""
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, *grads) -> tuple[Tensor, None]:
        """Return the gradient of the scores, which can be differentiated again."""
        (weights,) = ctx.saved_tensors
        backward = torch.ops.aten._softmax_backward_data
        return backward(grads[0], weights, -1, weights.dtype), None


def allowed_keys(
    shape: tuple[int, ...], valid_lens: Tensor | None, mask: Tensor | None
) -> Tensor | None:
    """Combine lengths and mask into one mask, True = may attend.

    Args:
        shape: shape of the weights, `(*batch, num_queries, num_keys)`.
        valid_lens: `(batch,)` or `(batch, num_queries)`.
        mask: broadcastable to `shape`.

    Returns:
        A mask broadcastable to `shape`, or None if every key is allowed.
    """
    if valid_lens is None:
        return mask
    real = length_mask(valid_lens, shape[-1])
    num_queries = shape[-2] if valid_lens.dim() == 2 else 1
    real = real.reshape(shape[0], *[1] * (len(shape) - 3), num_queries, shape[-1])
    return real if mask is None else real & mask
