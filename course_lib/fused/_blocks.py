"""Attention for one block of queries at a time: kernel pooling and additive attention."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib import attention as taught
from course_lib.attention._checked import checked
from course_lib.fused._masked_softmax import allowed_keys, softmax_of_allowed

# Numbers per block. On a CPU, a block should fit the cache. A GPU needs large blocks, since
# starting its many small kernels takes longer than computing them.
BLOCK, BLOCK_ON_GPU = 2**20, 2**26

Average = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


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


class AdditiveAttention(taught.AdditiveAttention):
    """`course_lib.attention.AdditiveAttention` without weights: `attention_weights` stays None.

    The taught module stores `num_hiddens` features for every pair of a query and a key. Here they
    are stored for one block of queries at a time, and the backward pass recomputes them.

    Source: Bahdanau, Cho & Bengio 2015, appendix A.1.2, https://arxiv.org/abs/1409.0473
    """

    attention_weights = None

    @checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries query_size"],
        keys: Float[Tensor, "batch num_keys key_size"],
        values: Float[Tensor, "batch num_keys value_size"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch num_queries value_size"]:
        """Average the values with weights from additive scores.

        Args:
            queries, keys, values, valid_lens, mask: as in
                `course_lib.attention.AdditiveAttention`.

        Returns:
            One average of the values for each query; zeros for a query without an allowed key.
        """
        w_v = self.w_v.weight[0]  # (num_hiddens,)
        allowed = allowed_keys((*queries.shape[:2], keys.shape[1]), valid_lens, mask)

        def average(queries, keys, values, allowed) -> Tensor:
            pairs = queries.unsqueeze(2) + keys.unsqueeze(1)
            scores = pairs.tanh_() @ w_v  # (items, rows, num_keys)
            return self.dropout(softmax_of_allowed(scores, allowed)) @ values

        numbers_per_query = keys.shape[1] * len(w_v)
        return in_blocks(
            average, numbers_per_query, self.W_q(queries), self.W_k(keys), values, allowed
        )


def in_blocks(
    average: Average,
    numbers_per_query: int,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    allowed: Tensor | None = None,
) -> Tensor:
    """Call `average` for blocks of queries and join the outputs.

    The backward pass recomputes each block, so it needs no more memory than the forward pass.

    Args:
        average: maps the queries, keys, values and mask of a block to its outputs.
        numbers_per_query: how many numbers `average` stores for one query of one batch item.
        queries, keys, values: `(batch, ..., num_positions, features)`.
        allowed: mask broadcastable to `(batch, ..., num_queries, num_keys)`, or None.

    Returns:
        Tensor `(batch, ..., num_queries, v)`.
    """
    batch, num_queries = queries.shape[0], queries.shape[-2]
    size = BLOCK if queries.device.type == "cpu" else BLOCK_ON_GPU
    rows = max(1, size // max(1, numbers_per_query))
    items = max(1, size // max(1, num_queries * numbers_per_query))
    if rows >= num_queries and items >= batch:
        return average(queries, keys, values, allowed)
    if allowed is not None:
        allowed = allowed.expand(*queries.shape[:-1], keys.shape[-2])
    outputs = []
    for i in range(0, batch, items):
        item = slice(i, i + items)
        of_item = []
        for row in range(0, num_queries, rows):
            part = ..., slice(row, row + rows), slice(None)
            block = queries[item][part], keys[item], values[item]
            mask = None if allowed is None else allowed[item][part]
            if torch.is_grad_enabled():
                of_item.append(checkpoint(average, *block, mask, use_reentrant=False))
            else:
                of_item.append(average(*block, mask))
        outputs.append(torch.cat(of_item, dim=-2))
    return torch.cat(outputs)
