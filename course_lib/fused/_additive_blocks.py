"""Additive attention over blocks of pairs: what stays in the cache is never written to memory.

A block holds sigma = sigmoid(2 (q + k)) for some items, queries and keys; from it come
score = w . tanh(q + k) = 2 w . sigma - sum(w), whose last term the softmax cancels, and, with D
the gradient of the scores and dtanh = 4 (sigma - sigma^2), the gradients
dw = sum_ij D (2 sigma - 1), dq_i = w sum_j D dtanh, dk_j = w sum_i D dtanh.
Of the forward pass only the sum of each row is kept.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

CPU_BLOCK = 2**18  # numbers; a megabyte stays in the second-level cache
CUDA_BLOCK = 2**25
FEW_WEIGHTS = 2**20  # up to so many weights are kept for the backward pass in any case
LONG_ROW = 2**14  # numbers in the pairs of one query from which a loop over queries pays


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
        allowed = None
        if self.lengths is not None:
            rows = block.rows if self.lengths.shape[1] > 1 else slice(None)
            positions = torch.arange(num_keys, device=self.lengths.device)
            allowed = positions < self.lengths[block.items, rows, None]
        if self.mask is not None:
            part = self.mask[block.items, block.rows]
            allowed = part if allowed is None else allowed & part
        return allowed

    def generator(self, device: torch.device) -> torch.Generator:
        """Draws the same numbers in the forward and in the backward pass."""
        return torch.Generator(device).manual_seed(self.seed)

    def kept(self, like: Tensor, shape: tuple[int, ...], draw: torch.Generator) -> Tensor | None:
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


def scores_step_by_step(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
    """w . tanh(q + k) of all pairs, `(batch, n, m)`, in one buffer that stays in the cache.

    For few queries at a time, whose backward pass nobody wants.

    Args:
        queries, keys: projected, `(batch, n, H)` and `(batch, m, H)`.
        w: `(H,)`.
    """
    (batch, n, num_hiddens), m = queries.shape, keys.shape[1]
    size = max(1, CPU_BLOCK // (n * num_hiddens))  # keys of a block
    width, items = min(m, size), min(batch, max(1, size // m))
    buffer = queries.new_empty(items * n * width * num_hiddens)
    scores = queries.new_empty(batch, n, m)
    for item in range(0, batch, items):
        q = queries[item : item + items].unsqueeze(2)
        for start in range(0, m, width):
            k = keys[item : item + items, start : start + width].unsqueeze(1)
            shape = len(q), n, k.shape[2], num_hiddens
            features = torch.add(q, k, out=buffer[: math.prod(shape)].view(shape)).tanh_()
            part = torch.mv(features.view(-1, num_hiddens), w)
            scores[item : item + items, :, start : start + width] = part.view(shape[:3])
    return scores


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


class Sums(NamedTuple):
    """What the backward pass needs of each row: weight = exp(score - shift) / total."""

    totals: Tensor  # (batch, n, 1), 1 for a query without keys
    shifts: Tensor | None  # (batch, n, 1); None if no score can overflow as it is
    weights: Tensor | None = None  # (batch, n, m) if they are kept


def averages(
    sigmas: Sigmas,
    w: Tensor,
    values: Tensor,
    masking: Masking,
    want_weights: bool,
    want_backward: bool,
):
    """Returns outputs `(batch, n, v)` and the `Sums`."""
    (batch, n, _), m = sigmas.queries.shape, sigmas.keys.shape[1]
    want_weights = want_weights or (want_backward and batch * n * m <= FEW_WEIGHTS)
    outputs = values.new_zeros(batch, n, values.shape[-1])
    totals = values.new_zeros(batch, n, 1)
    shifts = None if sigmas.scores_are_small(w) else values.new_zeros(batch, n, 1)
    weights = values.new_zeros(batch, n, m) if want_weights else None
    draw = masking.generator(values.device)
    twice_w = 2 * w
    for block in sigmas.blocks(masking):
        if not block.num_keys:
            continue  # the outputs and the weights stay 0
        parts = [_scores(sigmas(block, at), twice_w, block, at) for at in block.columns()]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        at = block.items, block.rows
        if shifts is not None:
            largest = scores.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(w.dtype).min)
            shifts[at] = largest  # finite also without a key
            scores.sub_(largest)
        scores.exp_()  # (items, rows, num_keys)
        torch.sum(scores, dim=-1, keepdim=True, out=totals[at])
        if weights is not None:
            weights[at][..., : block.num_keys] = scores
        kept = masking.kept(values, scores.shape, draw)
        if kept is not None:
            scores.mul_(kept)
        torch.bmm(scores, values[block.items, : block.num_keys], out=outputs[at])
    totals.masked_fill_(totals == 0, 1)
    if weights is not None:
        weights.div_(totals)
    return outputs.div_(totals), Sums(totals, shifts, weights)


def _scores(pairs: Tensor, twice_w: Tensor, block: Block, columns: slice) -> Tensor:
    """The scores of a block, more by sum(w) than those taught, -inf where masked."""
    scores = torch.mv(pairs.view(-1, len(twice_w)), twice_w).view(pairs.shape[:3])
    if block.allowed is not None:
        scores.masked_fill_(~block.allowed[..., columns], -math.inf)
    return scores  # (items, rows, columns)


def gradients(
    sigmas: Sigmas,
    w: Tensor,
    values: Tensor,
    masking: Masking,
    outputs: Tensor,
    sums: Sums,
    grad_outputs: Tensor,
    want_values: bool,
) -> list[Tensor | None]:
    """Returns the gradients of projected queries and keys, of w, and, if wanted, of the values."""
    grads = [torch.zeros_like(x) for x in (sigmas.queries, sigmas.keys, w)]
    grads.append(torch.zeros_like(values) if want_values else None)
    grads[2] = grads[2].double()  # many small terms that nearly cancel
    if sums.weights is None:  # exp(score - shift) stands for them
        grad_outputs = grad_outputs / sums.totals
    deltas = (grad_outputs * outputs).sum(dim=-1, keepdim=True)  # (batch, n, 1)
    draw = masking.generator(values.device)
    twice_w = 2 * w
    for block in sigmas.blocks(masking):
        at = block.items, block.rows
        grad_rows = grad_outputs[at]
        kept = masking.kept(values, (*grad_rows.shape[:2], block.num_keys), draw)
        for columns in block.columns():
            pairs = sigmas(block, columns)  # (items, rows, columns, H)
            weights = _weights_again(pairs, twice_w, block, columns, sums)
            value_part = values[block.items, columns]
            if kept is None:
                dropped, grad_scores = weights, grad_rows @ value_part.mT
            else:
                dropped = weights * kept[..., columns]
                grad_scores = (grad_rows @ value_part.mT).mul_(kept[..., columns])
            if want_values:
                grads[3][block.items, columns].baddbmm_(dropped.mT, grad_rows)
            grad_scores.sub_(deltas[at]).mul_(weights)
            _add_gradients(grads, block, columns, pairs, grad_scores)
    grads[0].mul_(4 * w)
    grads[1].mul_(4 * w)
    return grads


def _weights_again(pairs, twice_w, block: Block, columns: slice, sums: Sums) -> Tensor:
    """The weights of a block, or exp(score - shift), `(items, rows, columns)`."""
    at = block.items, block.rows
    if sums.weights is not None:
        return sums.weights[(*at, columns)]
    scores = _scores(pairs, twice_w, block, columns)
    return (scores if sums.shifts is None else scores.sub_(sums.shifts[at])).exp_()


def _add_gradients(grads: list[Tensor], block: Block, columns: slice, pairs, grad_scores) -> None:
    """Adds what the pairs of one block say about q, k and w; overwrites `pairs`."""
    items, _, width, num_hiddens = pairs.shape
    flat = pairs.view(-1, width, num_hiddens), grad_scores.view(-1, 1, width)
    summed = torch.mv(flat[0].view(-1, num_hiddens).mT, flat[1].view(-1))
    grads[2].add_(summed, alpha=2)  # sum_ij D is 0
    pairs.addcmul_(pairs, pairs, value=-1)  # sigma - sigma^2
    grads[0][block.items, block.rows].view(-1, 1, num_hiddens).baddbmm_(flat[1], flat[0])
    grad_keys = grads[1][block.items, columns]
    if items * width * num_hiddens >= LONG_ROW and pairs.device.type == "cpu":
        for pairs_row, grad_row in zip(
            pairs.unbind(1), grad_scores.unsqueeze(-1).unbind(1), strict=True
        ):
            grad_keys.addcmul_(pairs_row, grad_row)
    else:
        grad_keys += pairs.mul_(grad_scores.unsqueeze(-1)).sum(dim=1)


def all_kept(queries: Tensor, keys: Tensor, values: Tensor, masking: Masking) -> Tensor | None:
    """What dropout multiplied all weights by, `(batch, n, m)`: drawn again block by block."""
    if not masking.dropout:
        return None
    kept = values.new_zeros(*queries.shape[:2], keys.shape[1])
    draw = masking.generator(values.device)
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    for block in Sigmas(queries.detach(), keys.detach()).blocks(masking):
        shape = (*kept[block.items, block.rows].shape[:2], block.num_keys)
        part = masking.kept(values.new_empty(0, dtype=wide), shape, draw)
        kept[block.items, block.rows, : block.num_keys] = part
    return kept
