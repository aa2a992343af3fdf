"""Wrong models of lesson 08: attention in blocks, with one step at a time replaced."""

import math
from collections.abc import Callable, Mapping

import torch

from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.steps import changed


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


def first_columns(mask, num_keys, block) -> torch.Tensor:
    """The first columns of the mask for every block."""
    size = len(range(num_keys)[block])
    return columns(mask, num_keys, slice(0, size))


class Blocked:
    """The steps that attention in blocks shares with any other: product, root, own."""

    product, root, own = Attention.product, Attention.root, Attention.own

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        return blocked(changed(cls, changes)())

    def score(self, q, k) -> torch.Tensor:
        return self.product(q, k) / self.root(q)


class Recomputed(Blocked):
    """The same steps, in the forward and in the backward pass."""

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        return recomputed(changed(cls, changes)())


def blocked(
    shared: Blocked | None = None,
    blocks: Callable = starts,
    part: Callable = columns,
    fill: Callable = infinity,
    shift_of: Callable = finite,
    fade_totals: bool = True,
    fade_outputs: bool = True,
    divide: Callable = lambda outputs, totals: outputs / totals.masked_fill(totals == 0, 1.0),
    end: Callable = lambda maxima, totals: maxima + totals.log(),
) -> Callable:
    """Attention in blocks; every argument is one step of it."""
    shared = shared or Blocked()

    def blocked_attention(
        queries, keys, values, mask=None, block_size=128
    ) -> tuple[torch.Tensor, torch.Tensor]:
        num_keys = keys.shape[-2]
        mask = None if mask is None else shared.own(None, mask)
        maxima = torch.full_like(queries[..., :1], -math.inf)
        totals, outputs = torch.zeros_like(maxima), maxima.new_zeros(())
        for start in blocks(num_keys, block_size):
            block = slice(start, start + block_size)
            scores = shared.score(queries, keys[..., block, :])
            scores = masked(scores, mask, num_keys, block, fill, part)
            larger = torch.maximum(maxima, scores.amax(-1, True))
            shift = shift_of(larger)
            weights, factor = torch.exp(scores - shift), torch.exp(maxima - shift)
            totals = (totals * factor if fade_totals else totals) + weights.sum(-1, keepdim=True)
            old = outputs * factor if fade_outputs else outputs
            outputs = old + weights @ values[..., block, :]
            maxima = larger
        return divide(outputs, totals), end(maxima, totals).squeeze(-1)

    return blocked_attention


def one_block(which: int) -> Callable:
    """Only one of the blocks: 0 the first, -1 the last."""
    return blocked(blocks=lambda m, b: [starts(m, b)[which]])


def each_apart(combine: Callable) -> Callable:
    """Attention within each block by itself, the blocks' outputs combined."""

    def blocked_attention(
        queries, keys, values, mask=None, block_size=128
    ) -> tuple[torch.Tensor, torch.Tensor]:
        results = []
        for start in starts(keys.shape[-2], block_size):
            block = slice(start, start + block_size)
            allowed = None if mask is None else columns(mask, keys.shape[-2], block)
            inside = keys[..., block, :], values[..., block, :], allowed, block_size
            results.append(blocked()(queries, *inside))
        outputs = combine(torch.stack([result[0] for result in results]))
        return outputs, torch.stack([result[1] for result in results]).logsumexp(0)

    return blocked_attention


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


def in_order(*grads) -> tuple:
    """The gradients as `forward` takes its arguments."""
    return grads


def recomputed(
    shared: Blocked | None = None, *, forward: Callable | None = None, keep: bool = False, **steps
) -> type:
    """An own function with attention in blocks, forward and backward; each argument is a step."""
    around = shared or Blocked()

    class RecomputedAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, queries, keys, values, mask=None, block_size=128) -> torch.Tensor:
            outputs, kept = (forward or blocked(around))(queries, keys, values, mask, block_size)
            ctx.save_for_backward(queries, keys, values, mask, outputs, kept)
            ctx.block_size, ctx.weights = block_size, keep and at_once_weights(queries, keys, mask)
            return outputs

        @staticmethod
        def backward(ctx, *grad_outputs) -> tuple:
            return *_backward(around, ctx, grad_outputs[0], **steps), None, None

    return RecomputedAttention


def _backward(
    shared: Blocked,
    ctx,
    grad,
    *,
    weigh: Callable = weights_again,
    blocks: Callable = starts,
    root: Callable | None = None,
    score: Callable | None = None,
    fill: Callable = infinity,
    shift_of: Callable = finite,
    row_sums: Callable = row_sums_kept,
    add_queries: bool = True,
    order: Callable = in_order,
) -> tuple:
    queries, keys, values, mask, outputs, kept = ctx.saved_tensors
    mask = None if mask is None else shared.own(None, mask)
    grads = [torch.zeros_like(x) for x in (queries, keys, values)]
    for start in blocks(keys.shape[-2], ctx.block_size):
        block = slice(start, start + ctx.block_size)
        k, grad_weights = keys[..., block, :], grad @ values[..., block, :].mT
        scores = masked((score or shared.score)(queries, k), mask, keys.shape[-2], block, fill)
        weights = weigh(scores, shift_of(kept))
        grad_weights = grad_weights - row_sums(grad, outputs, weights, grad_weights)
        grad_scores = weights * grad_weights / (root or shared.root)(queries)
        grads[0] = grad_scores @ k + (grads[0] if add_queries else 0.0)
        grads[1][..., block, :] = grad_scores.mT @ queries
        grads[2][..., block, :] = weights.mT @ grad
    return order(*grads)


def at_once_weights(queries, keys, mask) -> torch.Tensor:
    """All weights."""
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return torch.exp(scores - finite(scores.logsumexp(-1)).unsqueeze(-1))


class AllAtOnce(torch.autograd.Function):
    """Keeps little and computes everything again, but all of it at the same time."""

    @staticmethod
    def forward(ctx, queries, keys, values, mask=None, block_size=128) -> torch.Tensor:
        outputs, _ = blocked()(queries, keys, values, mask, block_size)
        ctx.save_for_backward(queries, keys, values, mask)
        return outputs

    @staticmethod
    def backward(ctx, *grad_outputs) -> tuple:
        queries, keys, values, mask = ctx.saved_tensors
        weights, (grad,) = at_once_weights(queries, keys, mask), grad_outputs
        grad_weights = grad @ values.mT
        sums = (weights * grad_weights).sum(-1, keepdim=True)
        grad_scores = weights * (grad_weights - sums) / math.sqrt(queries.shape[-1])
        grads = grad_scores @ keys, grad_scores.mT @ queries, weights.mT @ grad
        return *grads, None, None
