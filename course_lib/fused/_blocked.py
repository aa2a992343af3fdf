"""Dot-product attention over blocks of queries, for what no fused kernel does: dropout on a CPU.

A row of weights needs all keys but no other query, so `(rows, num_keys)` scores at a time are
enough. Nothing of that size is kept: the backward pass computes the weights again, and draws the
same dropout again from the same seed. With G the gradient of the outputs O, D what dropout
multiplies by (0 or 1 / (1 - p)) and W the weights: dV = (D W)^T G, dW = D * (G V^T),
dS = W * (dW - rowsum(G * O)), dQ = dS K / sqrt(d), dK = dS^T Q / sqrt(d).
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_SIZE = 2**18  # scores in a block; this megabyte stays in the cache


class BlockedAttention(torch.autograd.Function):
    """Attention of `(batch, num_heads, num_positions, features)` with dropout, memory linear in n.

    First derivatives only. `mask` is None or bool with four axes, each 1 or full.
    """

    @staticmethod
    def forward(ctx, queries, keys, values, mask, dropout) -> Tensor:
        """Returns `(batch, num_heads, num_queries, v)`."""
        flat = [x.flatten(0, 1) for x in (queries, keys, values)]
        ctx.shapes, ctx.dropout = [x.shape for x in (queries, keys, values)], dropout
        ctx.seed = int(torch.randint(2**62, ()))  # from the global generator, as dropout's own
        outputs = flat[0].new_empty(*flat[0].shape[:2], flat[2].shape[-1])
        draw = torch.Generator().manual_seed(ctx.seed)
        for items, rows, allowed in _blocks(ctx.shapes, mask):
            weights = _weights(flat[0][items, rows], flat[1][items], allowed)
            weights *= _kept(weights, dropout, draw)
            outputs[items, rows] = weights @ flat[2][items]
        outputs *= _amplification(dropout)
        ctx.save_for_backward(*flat, outputs, mask)
        return outputs.unflatten(0, queries.shape[:2])

    @staticmethod
    def backward(ctx, *grads_given) -> tuple[Tensor | None, ...]:
        """Computes the weights of each block again, and from them all three gradients."""
        (grad_outputs,) = grads_given
        if torch.is_grad_enabled():  # by create_graph=True
            raise RuntimeError(
                "dropout without weights has first derivatives only; call with need_weights=True."
            )
        queries, keys, values, outputs, mask = ctx.saved_tensors
        grad_outputs = grad_outputs.flatten(0, 1)
        row_sums = (grad_outputs * outputs).sum(dim=-1, keepdim=True)
        grad_outputs = grad_outputs * _amplification(ctx.dropout)
        grads = [torch.empty_like(queries), torch.zeros_like(keys), torch.zeros_like(values)]
        draw = torch.Generator().manual_seed(ctx.seed)
        scale = 1 / math.sqrt(queries.shape[-1])
        for items, rows, allowed in _blocks(ctx.shapes, mask):
            weights = _weights(queries[items, rows], keys[items], allowed)
            kept = _kept(weights, ctx.dropout, draw)
            grad_block = grad_outputs[items, rows]
            grads[2][items] += (weights * kept).mT @ grad_block
            grad_scores = (grad_block @ values[items].mT).mul_(kept)
            grad_scores.sub_(row_sums[items, rows]).mul_(weights).mul_(scale)
            grads[0][items, rows] = grad_scores @ keys[items]
            grads[1][items] += grad_scores.mT @ queries[items, rows]
        found = (g.unflatten(0, s[:2]) for g, s in zip(grads, ctx.shapes, strict=True))
        return *found, None, None


def _blocks(shapes, mask) -> Iterator[tuple[slice, slice, Tensor | None]]:
    """Yields the items (batch times heads), the rows and the part of the mask of each block."""
    (batch, heads, num_queries, _), (_, _, num_keys, _), _ = shapes
    if mask is not None:
        mask = mask.expand(batch, heads, num_queries, num_keys)
    size = heads * num_queries * num_keys
    if size <= BLOCK_SIZE:  # whole examples, as many as fit
        step = BLOCK_SIZE // max(size, 1)
        for b in range(0, batch, step):
            allowed = None if mask is None else mask[b : b + step].flatten(0, 1)
            yield slice(b * heads, (b + step) * heads), slice(None), allowed
        return
    step = max(BLOCK_SIZE // num_keys, 1)
    for item in range(batch * heads):
        for row in range(0, num_queries, step):
            rows = slice(row, row + step)
            allowed = None if mask is None else mask[item // heads, item % heads, rows]
            yield slice(item, item + 1), rows, allowed


def _weights(queries, keys, allowed) -> Tensor:
    """Softmax of the scores of one block; zeros where nothing is allowed."""
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.mT
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    weights = torch.softmax(scores.masked_fill_(~allowed, -math.inf), dim=-1)
    return weights.masked_fill_(~allowed, 0.0)  # an empty row is NaN until here


def _amplification(dropout: float) -> float:
    """What the weights that are kept are multiplied by, so that their mean stays."""
    return 1 / (1 - dropout) if dropout < 1 else 0.0


def _kept(weights: Tensor, dropout: float, draw: torch.Generator) -> Tensor:
    """1 for a weight to keep, 0 for one to drop, in the dtype of `weights`.

    A random integer holds two draws of 32 bits, which takes a third of the time of `bernoulli_`.
    """
    bits = torch.empty(weights.numel() // 2 + 1, dtype=torch.int64)
    draws = bits.random_(-(2**63), None, generator=draw).view(torch.int32)[: weights.numel()]
    threshold = min(int(dropout * 2**32) - 2**31, 2**31 - 1)
    return (draws >= threshold).view(weights.shape).to(weights.dtype)
