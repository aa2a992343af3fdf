"""Checks of blocks that arrive one at a time, kept out of the solutions pasted into lessons."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor

from course_lib.attention._checked import describe_type


def checked_blocks(function: Callable) -> Callable:
    """Wrap an exercise so that each block is checked when the iterator yields it.

    Raises:
        TypeError: `blocks` cannot be iterated over, or a block is no floating tensor, or has
            another dtype than the first.
        ValueError: there is no block, or one has other rows, another device or no column.
    """

    @functools.wraps(function)
    def call(blocks) -> Any:
        if not isinstance(blocks, Iterable):
            raise TypeError(
                f"`blocks` must be an iterable of tensors; got a {describe_type(blocks)}."
            )
        return function(_looked_at(blocks))

    return call


def _looked_at(blocks: Iterable) -> Iterator[Tensor]:
    first = None
    for block in blocks:
        if not isinstance(block, Tensor) or not block.is_floating_point():
            raise TypeError(f"each block must be a floating tensor; got {describe_type(block)}.")
        if not block.dim() or not block.shape[-1]:
            raise ValueError(
                f"each block must have shape (*rows, block_size >= 1); got {tuple(block.shape)}."
            )
        first = block if first is None else first
        if block.shape[:-1] != first.shape[:-1]:
            raise ValueError(
                f"each block must have the rows {tuple(first.shape[:-1])} of the first; "
                f"got {tuple(block.shape[:-1])}."
            )
        if block.dtype != first.dtype:
            raise TypeError(f"each block must have dtype {first.dtype}; got {block.dtype}.")
        if block.device != first.device:
            raise ValueError(f"each block must be on {first.device}; got {block.device}.")
        yield block
    if first is None:
        raise ValueError("`blocks` must hold >= 1 block; got 0.")
