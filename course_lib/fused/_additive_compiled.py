"""Additive scores as `torch.compile` makes fast loops of them: each sum in registers, no pair kept.

`torch.cond` asks the guard of `_additive_blocks` inside the graph, and keeps the compiler from
merging these sums with what surrounds them, which would write the pairs to memory.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.fused._additive_blocks import bound

SigmasOf = Callable[[Tensor, Tensor], list[Tensor]]


def compiled_scores(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
    """Returns w . tanh(q + k) + sum(w), `(batch, n, m)`; the constant changes no softmax.

    Args:
        queries, keys: projected, `(batch, n, H)` and `(batch, m, H)`.
        w: `(H,)`.
    """
    if queries.device.type != "cpu":  # to choose a branch would stall the device
        return _scores_by(_sigmoids)(queries, keys, w)
    limit = bound(queries.dtype) / 4  # the product of two must be finite, too
    are_small = (queries.abs().amax() <= limit) & (keys.abs().amax() <= limit)
    return _Scores.apply(queries, keys, w, are_small)


class _Scores(torch.autograd.Function):
    """The scores, with the pairs computed again in the backward pass."""

    @staticmethod
    def forward(ctx, queries, keys, w, are_small) -> Tensor:
        ctx.save_for_backward(queries, keys, w, are_small)
        branches = _scores_by(_exponentials), _scores_by(_sigmoids)
        return torch.cond(are_small, *branches, (queries, keys, w))

    @staticmethod
    def backward(ctx, *grads) -> tuple[Tensor | None, ...]:
        (grad_scores,) = grads
        queries, keys, w, are_small = ctx.saved_tensors
        branches = _gradients_by(_exponentials), _gradients_by(_sigmoids)
        return *torch.cond(are_small, *branches, (queries, keys, w, grad_scores)), None


def _exponentials(queries: Tensor, keys: Tensor) -> list[Tensor]:
    """sigmoid(2 (q + k)) from n + m exponentials a feature, and a division for two features.

    With x and y for 1 + exp(-2q) exp(-2k) of a feature of either half, 1/x = y/(xy): in
    registers two products take less time than a division.
    """
    exps = zip(_halves(torch.exp(-2 * queries)), _halves(torch.exp(-2 * keys)), strict=True)
    x, y = (1 + q.unsqueeze(2) * k.unsqueeze(1) for q, k in exps)
    inverse = 1 / (x * y)
    return [y * inverse, x * inverse]


def _halves(features: Tensor) -> list[Tensor]:
    """The features in two parts of one size; what is missing in the second is 0."""
    num_hiddens = features.shape[-1]
    half = (num_hiddens + 1) // 2
    return [*F.pad(features, (0, 2 * half - num_hiddens)).split(half, dim=-1)]


def _sigmoids(queries: Tensor, keys: Tensor) -> list[Tensor]:
    """sigmoid(2 (q + k)) for any q and k, in one part."""
    return [torch.sigmoid(2 * (queries.unsqueeze(2) + keys.unsqueeze(1)))]


def _scores_by(sigmas_of: SigmasOf) -> Callable[..., Tensor]:
    def scores(queries: Tensor, keys: Tensor, w: Tensor) -> Tensor:
        sigmas = sigmas_of(queries, keys)
        parts = [w] if len(sigmas) == 1 else _halves(w)
        terms = [sigma * part for sigma, part in zip(sigmas, parts, strict=True)]
        return 2 * functools.reduce(torch.add, terms).sum(-1)

    return scores


def _gradients_by(sigmas_of: SigmasOf) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def gradients(
        queries: Tensor, keys: Tensor, w: Tensor, grad_scores: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Two loops: sums over keys share one, the sum over queries has its own."""
        grad, num_hiddens = grad_scores.unsqueeze(-1), len(w)

        def whole(halves: list[Tensor]) -> Tensor:
            return torch.cat(halves, dim=-1)[..., :num_hiddens]

        sigmas = sigmas_of(queries, keys)
        first = whole([(grad * sigma).sum(2) for sigma in sigmas])
        second = whole([(grad * sigma * sigma).sum(2) for sigma in sigmas])
        sigmas = sigmas_of(queries, keys)
        grad_keys = whole([(grad * (sigma - sigma * sigma)).sum(1) for sigma in sigmas])
        return 4 * w * (first - second), 4 * w * grad_keys, 2 * first.sum((0, 1))

    return gradients
