"""Nadaraya-Watson regression that stores the weights of one block of queries at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib import attention as taught
from course_lib.attention._checked import checked
from course_lib.fused._blocks import in_blocks


@checked
def kernel_pooling(
    queries: Float[Tensor, "num_queries d"],
    keys: Float[Tensor, "num_keys d"],
    values: Float[Tensor, "num_keys v"],
    bandwidth: int | float | Tensor,
    *,
    need_weights: bool = True,
) -> tuple[Float[Tensor, "num_queries v"], Float[Tensor, "num_queries num_keys"] | None]:
    """Return for each query the average of all values, weighted by how near their keys are.

    Args:
        queries, keys, values, bandwidth: as in `course_lib.attention.kernel_pooling`.
        need_weights: whether to return the weights. Without them, memory grows with
            `num_queries + num_keys`.

    Returns:
        `(outputs, attention_weights)`, or `(outputs, None)` without weights.

    Raises:
        ValueError: `values` does not have two axes.

    Source: Nadaraya 1964, https://doi.org/10.1137/1109020; Watson 1964,
        https://www.jstor.org/stable/25049340
    """
    if need_weights:
        return taught.kernel_pooling(queries, keys, values, bandwidth)

    def average(queries, keys, values, _) -> Tensor:
        differences = queries.unsqueeze(-2) - keys.unsqueeze(-3)  # (1, rows, num_keys, d)
        scores = -differences.square().sum(dim=-1) / (2 * bandwidth**2)
        return torch.softmax(scores, dim=-1) @ values

    outputs = in_blocks(average, keys.numel(), queries[None], keys[None], values[None])
    return outputs[0], None
