"""Masked softmax in one pass more than the softmax itself.

Lengths become a table of 0 and -inf that is added to the scores, a mask is one `where`; the softmax
overwrites that sum. The backward pass is the softmax's own: where a weight is 0, so is the gradient
of its score. A query without keys gives NaN, and so does NaN in a dropped key after adding -inf.
It spreads over its row, so one look at the first weight of each row tells whether the taught form
must compute them again.
"""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd import forward_ad

from course_lib.attention._masked_softmax import masked_softmax as taught_masked_softmax
from course_lib.fused._quick import quickly_checked


@quickly_checked
def masked_softmax(
    scores: Float[Tensor, "*batch num_queries num_keys"],
    valid_lens: Int[Tensor, "..."] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch num_queries num_keys"]:
    """Softmax over the keys that may be attended; the other keys get weight 0.

    Same arguments, numbers and gradients as `course_lib.attention.masked_softmax`. On a CUDA
    device and under `torch.compile`, where looking at the weights would stall the device or
    break the graph, it is that function.

    Args:
        scores: one score for each query and key.
        valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`.
        mask: True = may attend, broadcastable to `scores`; combined with `valid_lens` by AND.

    Returns:
        Weights of the shape of `scores`; each row sums to 1, or to 0 if no key is allowed.
    """
    return softmax_of_allowed(scores, valid_lens, mask)


def softmax_of_allowed(
    scores: Tensor, valid_lens: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """`masked_softmax` of arguments that have been checked."""
    if valid_lens is None and mask is None:
        return torch.softmax(scores, dim=-1)
    if may_look_at(scores):
        weights = _SoftmaxOfAllowed.apply(scores, valid_lens, mask)
        if not math.isnan(weights.detach()[..., :1].sum().item()):
            return weights
    return taught_masked_softmax(scores, mask=allowed_keys(scores, valid_lens, mask))


class _SoftmaxOfAllowed(torch.autograd.Function):
    """The weights, NaN in rows without a key."""

    @staticmethod
    def forward(ctx, scores, valid_lens, mask) -> Tensor:
        """Returns weights in the memory of the masked scores."""
        masked = _masked(scores, valid_lens, mask)
        weights = torch.softmax(masked, dim=-1, out=masked)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, *grads) -> tuple[Tensor, None, None]:
        """Differentiable again, as the weights are an output of this function."""
        (grad_weights,) = grads
        (weights,) = ctx.saved_tensors
        backward = torch._softmax_backward_data  # pyright: ignore[reportPrivateImportUsage] (torch.ops is slower)
        return backward(grad_weights, weights, -1, weights.dtype), None, None


def _masked(scores: Tensor, valid_lens: Tensor | None, mask: Tensor | None) -> Tensor:
    """A new tensor that holds the scores of allowed keys, and -inf or NaN in all other places."""
    num_keys = scores.shape[-1]
    lens = valid_lens if mask is None else None
    if lens is not None and lens.dim() == 2 and lens.numel() > num_keys:
        # Copying rows takes a third of the time of comparing each position with a length.
        table = scores.new_full((num_keys + 1, num_keys), -math.inf).triu()  # row l: l times 0
        heads = [1] * (scores.dim() - 3)
        bias = table[lens.long()].view(*lens.shape[:1], *heads, *scores.shape[-2:])
        return bias.add_(scores) if bias.shape == scores.shape else scores + bias
    allowed = allowed_keys(scores, valid_lens, mask)
    if allowed is None:
        return scores.clone()
    if allowed.dim() > 1 and allowed.shape[-2] == 1:
        return scores + torch.where(allowed, scores.new_zeros(()), -math.inf)
    return torch.where(allowed, scores, -math.inf)


def allowed_keys(scores: Tensor, valid_lens: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """The lengths and the mask as one mask, broadcastable to `scores`; None allows all keys."""
    if valid_lens is None:
        return mask
    num_queries = valid_lens.shape[1] if valid_lens.dim() == 2 else 1
    heads = [1] * (scores.dim() - 3)
    lengths = valid_lens.reshape(len(valid_lens), *heads, num_queries, 1)
    real = torch.arange(scores.shape[-1], device=lengths.device) < lengths  # (..., n or 1, m)
    return real if mask is None else real & mask


def may_look_at(tensor: Tensor) -> bool:
    """Whether Python may branch on the numbers: in eager CPU calls, outside of `torch.func`."""
    return tensor.device.type == "cpu" and not is_traced()


def is_traced() -> bool:
    """Whether `torch.compile`, `torch.export`, `torch.func` or forward mode runs this code."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def in_autocast() -> bool:
    """Whether `torch.autocast` chooses dtypes, on any kind of device."""
    return torch._C._is_any_autocast_enabled()


def without_autocast(device_type: str) -> AbstractContextManager:
    """Computes in the dtypes given, also on a device that autocast does not know, as "meta"."""
    return torch.autocast(device_type, enabled=False) if in_autocast() else nullcontext()
