"""The right attention in blocks in steps, and what wrong models put in their place."""

import math
from collections.abc import Callable, Mapping

import torch

from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.steps import Stepped


def finite(x) -> torch.Tensor:
    """-inf becomes 0, a number that can be subtracted."""
    return x.masked_fill(x == -math.inf, 0.0)


def columns(mask, num_keys, block) -> torch.Tensor:
    """The part of a mask that belongs to a block, whatever it is broadcast from."""
    return mask.expand(*mask.shape[:-1], num_keys)[..., block]


def starts(num_keys: int, block_size: int) -> range:
    """Where the blocks begin, the last and short one included."""
    return range(0, num_keys, block_size)


def full_blocks(num_keys: int, block_size: int) -> range:
    """Where the full blocks begin."""
    return range(0, num_keys // block_size * block_size, block_size)


def no_fill(scores, allowed) -> torch.Tensor:
    """The mask changes nothing."""
    return scores


def infinity(scores, allowed) -> torch.Tensor:
    """What is not allowed gets -inf."""
    return scores.masked_fill(~allowed, -math.inf)


def masked(scores, mask, num_keys, block, fill=infinity, part=columns) -> torch.Tensor:
    """The scores of a block, filled where its part of the mask forbids."""
    return (
        scores if mask is None else fill(scores, part(mask, num_keys, block).expand(scores.shape))
    )


class Blocked(Stepped):
    """Attention in blocks, in steps; product, root and own are those of any attention."""

    product, root, own = Attention.product, Attention.root, Attention.own
    blocks, part = staticmethod(starts), staticmethod(columns)
    fill, shift_of = staticmethod(infinity), staticmethod(finite)
    fade_totals = fade_outputs = True

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        steps = cls.changed(changes)()
        return lambda queries, keys, values, mask=None, block_size=128: steps.attend(
            (queries, keys, values), mask, block_size
        )

    def score(self, q, k) -> torch.Tensor:
        return self.product(q, k) / self.root(q)

    @staticmethod
    def divide(outputs, totals) -> torch.Tensor:
        return outputs / totals.masked_fill(totals == 0, 1.0)

    @staticmethod
    def end(maxima, totals) -> torch.Tensor:
        return maxima + totals.log()

    def attend(self, inputs, mask, block_size) -> tuple[torch.Tensor, torch.Tensor]:
        queries, keys, values = inputs
        num_keys = keys.shape[-2]
        mask = None if mask is None else self.own(None, mask)
        maxima = torch.full_like(queries[..., :1], -math.inf)
        totals, outputs = torch.zeros_like(maxima), maxima.new_zeros(())
        for start in self.blocks(num_keys, block_size):
            block = slice(start, start + block_size)
            scores = self.score(queries, keys[..., block, :])
            scores = masked(scores, mask, num_keys, block, self.fill, self.part)
            larger = torch.maximum(maxima, scores.amax(-1, True))
            shift = self.shift_of(larger)
            weights, factor = torch.exp(scores - shift), torch.exp(maxima - shift)
            totals = (totals * factor if self.fade_totals else totals) + weights.sum(-1, True)
            old = outputs * factor if self.fade_outputs else outputs
            outputs = old + weights @ values[..., block, :]
            maxima = larger
        return self.divide(outputs, totals), self.end(maxima, totals).squeeze(-1)


def at_once(queries, keys, values, mask=None, block_size=128) -> tuple[torch.Tensor, torch.Tensor]:
    """The plain way, with all scores in one tensor."""
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    scores = scores.masked_fill(~allowed, -math.inf)
    logsumexp = scores.logsumexp(-1)
    return torch.exp(scores - finite(logsumexp).unsqueeze(-1)) @ values, logsumexp


def sliced_without_expanding(mask, num_keys, block) -> torch.Tensor:
    """The columns of the mask as it is: one column that stands for all is gone after a block."""
    return mask[..., block]


def weights_again(scores, kept) -> torch.Tensor:
    """The weights from scores and the log sum exp that was kept."""
    return torch.exp(scores - kept.unsqueeze(-1))


def row_sums_kept(grad, outputs, weights, grad_weights) -> torch.Tensor:
    """The row sums of weights times their gradient, over all blocks."""
    return (grad * outputs).sum(-1, True)


class Recomputed(Blocked):
    """The same in an own function, with steps of the backward pass."""

    blocks_again, fill_again = staticmethod(starts), staticmethod(infinity)
    shift_again, weigh = staticmethod(finite), staticmethod(weights_again)
    row_sums = staticmethod(row_sums_kept)
    add_queries, keep_weights = True, False

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        steps = cls.changed(changes)()

        class RecomputedAttention(torch.autograd.Function):
            @staticmethod
            def forward(ctx, queries, keys, values, mask=None, block_size=128) -> torch.Tensor:
                outputs, kept = steps.attend((queries, keys, values), mask, block_size)
                ctx.save_for_backward(queries, keys, values, mask, outputs, kept)
                ctx.block_size = block_size
                ctx.weights = steps.keep_weights and at_once_weights(queries, keys, mask)
                return outputs

            @staticmethod
            def backward(ctx, *grad_outputs) -> tuple:
                return *steps.gradients(ctx, grad_outputs[0]), None, None

        return RecomputedAttention

    def root_again(self, q) -> float:
        return self.root(q)

    def gradients(self, ctx, grad) -> tuple:
        queries, keys, values, mask, outputs, kept = ctx.saved_tensors
        mask = None if mask is None else self.own(None, mask)
        grads = [torch.zeros_like(x) for x in (queries, keys, values)]
        for start in self.blocks_again(keys.shape[-2], ctx.block_size):
            block = slice(start, start + ctx.block_size)
            k, grad_weights = keys[..., block, :], grad @ values[..., block, :].mT
            scores = self.score(queries, k)
            scores = masked(scores, mask, keys.shape[-2], block, self.fill_again)
            weights = self.weigh(scores, self.shift_again(kept))
            grad_weights = grad_weights - self.row_sums(grad, outputs, weights, grad_weights)
            grad_scores = weights * grad_weights / self.root_again(queries)
            grads[0] = grad_scores @ k + (grads[0] if self.add_queries else 0.0)
            grads[1][..., block, :] = grad_scores.mT @ queries
            grads[2][..., block, :] = weights.mT @ grad
        return tuple(grads)


def at_once_weights(queries, keys, mask) -> torch.Tensor:
    """All weights."""
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return torch.exp(scores - finite(scores.logsumexp(-1)).unsqueeze(-1))


def gradients_at_once(self, ctx, grad) -> tuple:
    """In the place of the step gradients: everything is computed again at the same time."""
    queries, keys, values, mask, _, _ = ctx.saved_tensors
    weights, grad_weights = at_once_weights(queries, keys, mask), grad @ values.mT
    sums = (weights * grad_weights).sum(-1, keepdim=True)
    grad_scores = weights * (grad_weights - sums) / math.sqrt(queries.shape[-1])
    return grad_scores @ keys, grad_scores.mT @ queries, weights.mT @ grad
