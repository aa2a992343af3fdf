"""Attention for one block of queries at a time, and the mask that it needs."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.attention import length_mask

# Numbers per block. On a CPU, a block should fit the cache. A GPU needs large blocks, since
# starting its many small kernels takes longer than computing them.
BLOCK, BLOCK_ON_GPU = 2**20, 2**26

Average = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


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
