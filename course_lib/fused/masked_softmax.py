"""Masked softmax in two passes over the scores where two are enough.

Lengths of shape `(batch,)` become -inf added to a whole column of keys, so that autograd stores
and visits nothing for the mask; other masks are one `where`. Both give NaN for a query without
keys, and adding -inf does for NaN in a dropped key. It spreads over its row, so one look at the
first weight of each row tells whether the taught form must compute them again.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention.masked_softmax import masked_softmax as taught_masked_softmax
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
    allowed = allowed_keys(scores, valid_lens, mask)
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    if may_look_at(scores):
        if allowed.dim() > 1 and allowed.shape[-2] == 1:
            masked = scores + torch.where(allowed, scores.new_zeros(()), -math.inf)
        else:
            masked = torch.where(allowed, scores, -math.inf)
        weights = torch.softmax(masked, dim=-1)  # (*batch, num_queries, num_keys)
        if not math.isnan(weights.detach()[..., :1].sum().item()):
            return weights
    return taught_masked_softmax(scores, mask=allowed)


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
    """Whether `torch.compile`, `torch.export` or `torch.func` runs this code."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
