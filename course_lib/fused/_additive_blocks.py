"""Additive attention over blocks of pairs: what stays in the cache is never written to memory.

A block holds sigma = sigmoid(2 (q + k)) for some items, queries and keys. `_additive_passes`
computes from it what the forward and the backward pass need.
"""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

CPU_BLOCK = 2**18  # numbers; a megabyte stays in the second-level cache
CUDA_BLOCK = 2**25


class Masking(NamedTuple):
    """Which pairs count: lengths `(batch, n or 1)`, a bool mask `(batch, n, m)`, and dropout."""

    lengths: Tensor | None
    mask: Tensor | None
    dropout: float = 0.0
    seed: int = 0

    def is_open(self) -> bool:
        """Whether every pair counts."""
        return self.lengths is None and self.mask is None

    def allowed(self, block: "Block", num_keys: int) -> Tensor:
        """Bool `(items, rows or 1, num_keys)`, of a masking that is not open."""
        parts = []
        if self.lengths is not None:
            rows = block.rows if self.lengths.shape[1] > 1 else slice(None)
            positions = torch.arange(num_keys, device=self.lengths.device)
            parts.append(positions < self.lengths[block.items, rows, None])
        if self.mask is not None:
            parts.append(self.mask[block.items, block.rows])
        return functools.reduce(torch.logical_and, parts)

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Draws the same numbers in the forward and in the backward pass."""
        return torch.Generator(device).manual_seed(self.seed) if self.dropout else None

    def kept(
        self, like: Tensor, shape: tuple[int, ...], draw: torch.Generator | None
    ) -> Tensor | None:
        """What dropout multiplies weights by: 0, or 1 / (1 - p)."""
        if not self.dropout:
            return None
        kept = like.new_empty(shape).bernoulli_(1 - self.dropout, generator=draw)
        return kept.div_(1 - self.dropout) if self.dropout < 1 else kept


class Block(NamedTuple):
    """Some items, some of their queries; `num_keys` keys that count, `width` of them at a time."""

    items: slice
    rows: slice
    number: int
    num_keys: int
    width: int
    allowed: Tensor | None

    def columns(self) -> Iterator[slice]:
        """The keys that count, block by block."""
        for start in range(0, self.num_keys, self.width):
            yield slice(start, min(start + self.width, self.num_keys))


class Sigmas:
    """sigmoid(2 (q + k)) for all pairs of a block, in one buffer that is used again and again.

    sigmoid(2 (q + k)) = 1 / (1 + exp(-2q) exp(-2k)): `(n + m) H` exponentials instead of
    `n m H`. Beyond |q|, |k| = 40 (350 in float64) one factor could be 0 and the other infinite,
    so there, and on CUDA, where looking would stall the device, each pair has its own sigmoid.
    So it has for a single query, where nothing is saved.
    """

    def __init__(self, queries: Tensor, keys: Tensor):
        """Takes projected queries `(batch, n, H)` and keys `(batch, m, H)` of one dtype."""
        self.queries, self.keys = queries, keys
        self.by_exponentials = queries.shape[1] > 1 and are_small(queries) and are_small(keys)
        self.num_hiddens = queries.shape[-1]
        self.size = CPU_BLOCK if queries.device.type == "cpu" else CUDA_BLOCK
        self.one = queries.new_ones(self.num_hiddens)
        self.buffer = queries.new_empty(0)

    def blocks(self, masking: Masking) -> Iterator[Block]:
        """All blocks, in a fixed order; those whose keys are all masked have `num_keys` 0."""
        batch, n, _ = self.queries.shape
        m, size = self.keys.shape[1], self.size // self.num_hiddens
        width = min(m, max(1, size // min(n, 8)))
        rows = min(n, max(1, size // width))
        items = max(1, size // (n * m)) if rows == n and width == m else 1
        self.buffer = self.buffer.new_empty(min(items, batch) * rows * width * self.num_hiddens)
        for item in range(0, batch, items):
            these = slice(item, min(item + items, batch))
            self._enter(these, rows)
            for number, row in enumerate(range(0, n, rows)):
                block = Block(these, slice(row, min(row + rows, n)), number, m, width, None)
                yield block if masking.is_open() else _less_masked(block, masking, m)

    def scores_are_small(self, w: Tensor) -> bool:
        """Whether exp(2 w . sigma) is far from overflow, so that no maximum need be found."""
        return w.device.type == "cpu" and float(w.abs().sum()) <= 30

    def _enter(self, items: slice, rows: int) -> None:
        """Turns to other items; views are made once for all their blocks."""
        queries, keys = self.queries[items], self.keys[items]
        if self.by_exponentials:
            queries, keys = queries.mul(-2).exp_(), keys.mul(-2).exp_()
        self.of_queries = queries.unsqueeze(2).split(rows, dim=1)  # (items, rows, 1, H) each
        self.of_keys = keys.unsqueeze(1)  # (items, 1, m, H)
        self.views = {}

    def __call__(self, block: Block, columns: slice) -> Tensor:
        """Fills and returns the buffer as `(items, rows, columns, H)`."""
        q = self.of_queries[block.number]
        at = q.shape[1], columns.start, columns.stop
        if at not in self.views:
            k = self.of_keys[:, :, columns]
            shape = (*q.shape[:2], k.shape[2], self.num_hiddens)
            self.views[at] = k, self.buffer[: math.prod(shape)].view(shape)
        k, pairs = self.views[at]
        if self.by_exponentials:
            return torch.addcmul(self.one, q, k, out=pairs).reciprocal_()
        return torch.add(2 * q, k, alpha=2, out=pairs).sigmoid_()


def _less_masked(block: Block, masking: Masking, num_keys: int) -> Block:
    """The block without the keys behind the last that counts, and its mask if it still has one."""
    allowed = masking.allowed(block, num_keys)
    if allowed.device.type == "cpu":
        seen = allowed.flatten(0, 1).any(dim=0).nonzero()
        num_keys = int(seen[-1]) + 1 if len(seen) else 0
        allowed = allowed[..., :num_keys]
        if allowed.shape[:2] == (1, 1) and len(seen) == num_keys:
            allowed = None
    return block._replace(num_keys=num_keys, allowed=allowed)


def are_small(projected: Tensor) -> bool:
    """Whether exp(-2x) of these and of others like them can be multiplied safely."""
    if projected.device.type != "cpu":
        return False
    low, high = projected.aminmax()
    return -bound(projected.dtype) <= float(low) and float(high) <= bound(projected.dtype)


def bound(dtype: torch.dtype) -> int:
    """The largest |q| and |k| at which exp(-2q) exp(-2k) neither overflows nor underflows."""
    return 350 if dtype == torch.float64 else 40
