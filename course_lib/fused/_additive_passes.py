"""The forward and the backward pass of additive attention, block by block.

From a block of sigma = sigmoid(2 (q + k)) comes score = w . tanh(q + k) = 2 w . sigma - sum(w),
whose last term the softmax cancels, and, with D the gradient of the scores and
dtanh = 4 (sigma - sigma^2), the gradients
dw = sum_ij D (2 sigma - 1), dq_i = w sum_j D dtanh, dk_j = w sum_i D dtanh.
Of the forward pass only the sum of each row is kept.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.fused import _additive_blocks
from course_lib.fused._additive_blocks import Block, Masking, Sigmas

FEW_WEIGHTS = 2**20  # up to so many weights are kept for the backward pass in any case
LONG_ROW = 2**14  # numbers in the pairs of one query from which a loop over queries pays


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
) -> tuple[Tensor, Sums]:
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
    grad_values = torch.zeros_like(values) if want_values else None
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
            if grad_values is not None:
                grad_values[block.items, columns].baddbmm_(dropped.mT, grad_rows)
            grad_scores.sub_(deltas[at]).mul_(weights)
            _add_gradients(grads, block, columns, pairs, grad_scores)
    grads[0].mul_(4 * w)
    grads[1].mul_(4 * w)
    return [*grads, grad_values]


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
        if part is not None:
            kept[block.items, block.rows, : block.num_keys] = part
    return kept


def scores_step_by_step(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
    """w . tanh(q + k) of all pairs, `(batch, n, m)`, in one buffer that stays in the cache.

    For few queries at a time, whose backward pass nobody wants.

    Args:
        queries, keys: projected, `(batch, n, H)` and `(batch, m, H)`.
        w: `(H,)`.
    """
    (batch, n, num_hiddens), m = queries.shape, keys.shape[1]
    size = max(1, _additive_blocks.CPU_BLOCK // (n * num_hiddens))  # keys of a block
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
