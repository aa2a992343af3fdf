"""Additive scores as `torch.compile` makes fast loops of them: each sum in registers, no pair kept.

`torch.cond` asks the guard of `_additive_blocks` inside the graph, and keeps the compiler from
merging these sums with what surrounds them, which would write the pairs to memory.
"""

import torch
from torch import Tensor

from course_lib.fused._additive_blocks import bound


def compiled_scores(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
    """Returns w . tanh(q + k) + sum(w), `(batch, n, m)`; the constant changes no softmax.

    Args:
        queries, keys: projected, `(batch, n, H)` and `(batch, m, H)`.
        w: `(H,)`.
    """
    if queries.device.type != "cpu":  # to choose a branch would stall the device
        return _scores_by(_sigmoids)(queries, keys, w)
    limit = bound(queries.dtype)
    are_small = (queries.abs().amax() <= limit) & (keys.abs().amax() <= limit)
    return _Scores.apply(queries, keys, w, are_small)


class _Scores(torch.autograd.Function):
    """The scores, with the pairs computed again in the backward pass."""

    @staticmethod
    def forward(ctx, queries, keys, w, are_small):
        ctx.save_for_backward(queries, keys, w, are_small)
        branches = _scores_by(_exponentials), _scores_by(_sigmoids)
        return torch.cond(are_small, *branches, (queries, keys, w))

    @staticmethod
    def backward(ctx, grad_scores):
        queries, keys, w, are_small = ctx.saved_tensors
        branches = _gradients_by(_exponentials), _gradients_by(_sigmoids)
        return *torch.cond(are_small, *branches, (queries, keys, w, grad_scores)), None


def _exponentials(queries, keys):
    """sigmoid(2 (q + k)) from n + m exponentials a feature."""
    return 1 / (1 + torch.exp(-2 * queries).unsqueeze(2) * torch.exp(-2 * keys).unsqueeze(1))


def _sigmoids(queries, keys):
    """sigmoid(2 (q + k)) for any q and k."""
    return torch.sigmoid(2 * (queries.unsqueeze(2) + keys.unsqueeze(1)))


def _scores_by(pairs):
    def scores(queries, keys, w):
        return 2 * (pairs(queries, keys) * w).sum(dim=-1)

    return scores


def _gradients_by(pairs):
    def gradients(queries, keys, w, grad_scores):
        """Two loops: sums over keys share one, the sum over queries has its own."""
        grad_scores, sigmas = grad_scores.unsqueeze(-1), pairs(queries, keys)
        first, second = (grad_scores * sigmas).sum(2), (grad_scores * sigmas * sigmas).sum(2)
        sigmas = pairs(queries, keys)
        grad_keys = (grad_scores * (sigmas - sigmas * sigmas)).sum(1)
        return 4 * w * (first - second), 4 * w * grad_keys, 2 * first.sum((0, 1))

    return gradients
