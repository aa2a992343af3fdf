"""Attention in blocks, and its backward pass, in steps."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.steps import Stepped


def finite(x) -> Tensor:
    """Return x with -inf replaced by 0, which can be subtracted."""
    return x.masked_fill(x == -math.inf, 0.0)


class Blocked(Stepped):
    """`blocked_attention` in steps. Product, root and own are those of any attention."""

    product, root, own = Attention.product, Attention.root, Attention.own
    fade_outputs = True
    fade_block = False

    @classmethod
    def answer(cls) -> Callable:
        steps = cls()
        return lambda queries, keys, values, mask=None, block_size=128: steps.attend(
            (queries, keys, values), mask, block_size
        )

    def blocks(self, num_keys, block_size) -> range:
        return range(0, num_keys, block_size)

    def shift(self, larger) -> Tensor:
        return finite(larger)

    def end(self, maxima, totals) -> Tensor:
        return maxima + totals.log()

    def scores(self, queries, keys, mask, block) -> Tensor:
        scores = self.product(queries, keys[..., block, :]) / self.root(queries)
        allowed = None if mask is None else self.own(None, mask)
        if allowed is None:
            return scores
        columns = allowed.expand(*allowed.shape[:-1], keys.shape[-2])[..., block]
        return scores.masked_fill(~columns, -math.inf)

    def attend(self, inputs, mask, block_size) -> tuple[Tensor, Tensor]:
        queries, keys, values = inputs
        maxima = torch.full_like(queries[..., :1], -math.inf)
        totals = torch.zeros_like(maxima)
        outputs = maxima.new_zeros(*queries.shape[:-1], values.shape[-1])
        for start in self.blocks(keys.shape[-2], block_size):
            block = slice(start, start + block_size)
            scores = self.scores(queries, keys, mask, block)
            larger = torch.maximum(maxima, scores.amax(-1, True))
            shift = self.shift(larger)
            weights, factor = torch.exp(scores - shift), torch.exp(maxima - shift)
            totals = totals * factor + weights.sum(-1, True)
            old = outputs * factor if self.fade_outputs else outputs
            new = weights @ values[..., block, :]
            outputs = old + (new * factor if self.fade_block else new)
            maxima = larger
        return self.over(outputs, totals), self.end(maxima, totals).squeeze(-1)

    def over(self, outputs, totals) -> Tensor:
        return outputs / totals.masked_fill(totals == 0, 1.0)


class Recomputed(Blocked):
    """`RecomputedAttention` in steps. The names of the backward pass's steps end in `_again`."""

    @classmethod
    def answer(cls) -> Callable:
        steps = cls()

        class RecomputedAttention(torch.autograd.Function):
            @staticmethod
            def forward(ctx, queries, keys, values, mask=None, block_size=128) -> Tensor:
                outputs, kept = steps.attend((queries, keys, values), mask, block_size)
                ctx.save_for_backward(queries, keys, values, mask, outputs, kept)
                ctx.block_size = block_size
                return outputs

            @staticmethod
            def backward(ctx, *grad_outputs) -> tuple:
                return *steps.gradients(ctx, grad_outputs[0]), None, None

        return RecomputedAttention

    adds_blocks = True

    def root_again(self, q) -> float:
        return self.root(q)

    def root_for_queries(self, q) -> float:
        return 1.0

    def scores_again(self, queries, keys, mask, block) -> Tensor:
        return self.scores(queries, keys, mask, block)

    def weights_again(self, scores, kept) -> Tensor:
        return torch.exp(scores - finite(kept).unsqueeze(-1))

    def row_sums(self, grad, outputs, weights, grad_weights) -> Tensor:
        return (grad * outputs).sum(-1, True)

    def gradients(self, ctx, grad) -> tuple:
        queries, keys, values, mask, outputs, kept = ctx.saved_tensors
        grads = [torch.zeros_like(x) for x in (queries, keys, values)]
        for start in range(0, keys.shape[-2], ctx.block_size):
            block = slice(start, start + ctx.block_size)
            grad_weights = grad @ values[..., block, :].mT
            weights = self.weights_again(self.scores_again(queries, keys, mask, block), kept)
            grad_weights = grad_weights - self.row_sums(grad, outputs, weights, grad_weights)
            grad_scores = weights * grad_weights / self.root_again(queries)
            for_queries = grad_scores @ keys[..., block, :] * self.root_for_queries(queries)
            grads[0] = grads[0] + for_queries if self.adds_blocks else for_queries
            grads[1][..., block, :] = grad_scores.mT @ queries
            grads[2][..., block, :] = weights.mT @ grad
        return tuple(grads)
