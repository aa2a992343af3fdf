"""Lesson 08: attention without the n x m matrix, its backward pass, and fewer exponentials."""

# torch documents one gradient for each output of `forward`; its stub says `*grad_outputs`.
# pyright: reportIncompatibleMethodOverride=false
import math
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.attention._checked import checked


def softmax_statistics(
    blocks: Iterable[Float[Tensor, "*rows block_size"]],
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    """Return the largest score of each row, and the sum of exp(score - largest), in one pass.

    The softmax of a row needs these two numbers and nothing else. The scores come in blocks of
    columns, each once, so only one block is in memory at a time.

    Args:
        blocks: at least one tensor `(*rows, block_size)`, from left to right; sizes may differ,
            and scores may be -inf.

    Returns:
        `(maxima, totals)`, each `(*rows)`; a row of nothing but -inf gives -inf and 0.

    Source: Milakov & Gimelshein 2018, algorithm 3, https://arxiv.org/abs/1805.02867
    """
    maxima, totals = torch.tensor(-math.inf), torch.tensor(0.0)  # scalars fit any rows
    for block in blocks:
        larger = torch.maximum(maxima, block.amax(dim=-1))  # (*rows)
        shift = larger.masked_fill(larger == -math.inf, 0.0)  # -inf - (-inf) would be NaN
        summed = torch.exp(block - shift.unsqueeze(-1)).sum(dim=-1)
        totals = totals * torch.exp(maxima - shift) + summed
        maxima = larger
    return maxima, totals


@checked
def blocked_attention(
    queries: Float[Tensor, "*batch num_queries d"],
    keys: Float[Tensor, "*batch num_keys d"],
    values: Float[Tensor, "*batch num_keys v"],
    mask: Bool[Tensor, "..."] | None = None,
    block_size: int = 128,
) -> tuple[Float[Tensor, "*batch num_queries v"], Float[Tensor, "*batch num_queries"]]:
    """Compute scaled dot-product attention, one block of keys after the other.

    Also return the log-sum-exp of each query's scores.

    Unlike FlashAttention, it uses each block for all queries at once. There, queries come in
    blocks too, and scores never leave the chip's own memory.

    Args:
        queries, keys: d features each; `*batch` is any number of axes, the same in all three.
        values: one row for each key, of any length.
        mask: True = may attend, broadcastable to `(*batch, num_queries, num_keys)`.
        block_size: how many keys at a time, at least 1; the last block may be shorter.

    Returns:
        `(outputs, logsumexp)`; a query with no allowed key gets zeros, and -inf.

    Source: Dao 2023, algorithm 1, https://arxiv.org/abs/2307.08691
    """
    *rows, d = queries.shape
    queries = queries / math.sqrt(d)
    maxima = queries.new_full((*rows, 1), -math.inf)  # (*batch, num_queries, 1)
    totals = torch.zeros_like(maxima)
    outputs = queries.new_zeros(*rows, values.shape[-1])  # (*batch, num_queries, v)
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], keys.shape[-2])  # one column may stand for all
    for start in range(0, keys.shape[-2], block_size):
        block = slice(start, start + block_size)
        scores = queries @ keys[..., block, :].mT  # (*batch, num_queries, block_size)
        if mask is not None:
            scores = scores.masked_fill(~mask[..., block], -math.inf)
        larger = torch.maximum(maxima, scores.amax(dim=-1, keepdim=True))
        shift = larger.masked_fill(larger == -math.inf, 0.0)
        weights, fading = torch.exp(scores - shift), torch.exp(maxima - shift)
        totals = totals * fading + weights.sum(dim=-1, keepdim=True)
        outputs = outputs * fading + weights @ values[..., block, :]
        maxima = larger
    outputs = outputs / totals.masked_fill(totals == 0, 1.0)
    return outputs, (maxima + totals.log()).squeeze(-1)


class RecomputedAttention(torch.autograd.Function):
    """Attention that keeps no weights for the backward pass, but computes them again.

    Call it as `RecomputedAttention.apply(queries, keys, values, mask, block_size)`.

    Source: Dao 2023, algorithm 2, https://arxiv.org/abs/2307.08691
    """

    @staticmethod
    @checked
    def forward(
        ctx,
        queries: Float[Tensor, "*batch num_queries d"],
        keys: Float[Tensor, "*batch num_keys d"],
        values: Float[Tensor, "*batch num_keys v"],
        mask: Bool[Tensor, "..."] | None = None,
        block_size: int = 128,
    ) -> Float[Tensor, "*batch num_queries v"]:
        """Return the outputs of `blocked_attention`; save only tensors that grow with n or m alone.

        Args:
            ctx: remembers tensors (`ctx.save_for_backward`) and numbers (its attributes).
            queries, keys, values, mask, block_size: as in `blocked_attention`.
        """
        outputs, logsumexp = blocked_attention(queries, keys, values, mask, block_size)
        ctx.save_for_backward(queries, keys, values, mask, outputs, logsumexp)
        ctx.block_size = block_size
        return outputs

    @staticmethod
    def backward(ctx, grad_outputs) -> tuple[Tensor | None, ...]:
        """Return a gradient for each argument of `forward`, None for mask and block size.

        Args:
            ctx: what `forward` remembered.
            grad_outputs: gradient of the loss with respect to the outputs.
        """
        queries, keys, values, mask, outputs, logsumexp = ctx.saved_tensors
        root = math.sqrt(queries.shape[-1])
        row_sums = (grad_outputs * outputs).sum(dim=-1, keepdim=True)
        shift = logsumexp.masked_fill(logsumexp == -math.inf, 0.0).unsqueeze(-1)
        grads = [torch.zeros_like(x) for x in (queries, keys, values)]
        if mask is not None:
            mask = mask.expand(*mask.shape[:-1], keys.shape[-2])
        for start in range(0, keys.shape[-2], ctx.block_size):
            block = slice(start, start + ctx.block_size)
            k, v = keys[..., block, :], values[..., block, :]
            scores = queries / root @ k.mT  # (*batch, num_queries, block_size)
            if mask is not None:
                scores = scores.masked_fill(~mask[..., block], -math.inf)
            weights = torch.exp(scores - shift)
            grad_scores = weights * (grad_outputs @ v.mT - row_sums) / root
            grads[0] += grad_scores @ k
            grads[1][..., block, :] = grad_scores.mT @ queries
            grads[2][..., block, :] = weights.mT @ grad_outputs
        return *grads, None, None


@checked
def factored_additive_scores(
    projected_queries: Float[Tensor, "batch num_queries num_hiddens"],
    projected_keys: Float[Tensor, "batch num_keys num_hiddens"],
    w_v: Float[Tensor, "num_hiddens"],
) -> Float[Tensor, "batch num_queries num_keys"]:
    """Return additive scores with an exponential for each query and key, none for their pairs.

    So `(n + m) num_hiddens` exponentials serve `n m num_hiddens` features. Where one of them would
    leave the range of the dtype, the scores are made another way.

    Args:
        projected_queries, projected_keys: `W_q` of the queries and `W_k` of the keys.
        w_v: one weight for each hidden feature.

    Returns:
        w_v . tanh(q + k) for each query and key.
    """
    limit = -0.5 * math.log(torch.finfo(w_v.dtype).tiny)  # exp(-2 * limit) is a normal number
    inputs = projected_queries.unsqueeze(2), projected_keys.unsqueeze(1)
    if all((x.abs() <= limit).all() for x in inputs):
        exp_queries, exp_keys = (torch.exp(-2 * x) for x in inputs)
        sigmoids = 1 / (1 + exp_queries * exp_keys)  # (batch, num_queries, num_keys, num_hiddens)
    else:
        sigmoids = torch.sigmoid(2 * (inputs[0] + inputs[1]))
    return 2 * (sigmoids @ w_v) - w_v.sum()


@checked
def jacobian_wrt_query(
    query: Float[Tensor, "d"], keys: Float[Tensor, "m d"]
) -> Float[Tensor, "d d"]:
    """Return the Jacobian of o(q) = sum_j w_j k_j, attention whose values are its keys.

    Args:
        query: one query.
        keys: one row for each key.

    Returns:
        Symmetric matrix whose entry (a, b) is do_a / dq_b.
    """
    d = query.shape[-1]
    weights = torch.softmax(keys @ query / math.sqrt(d), dim=-1)  # (m,)
    centred = keys - weights @ keys  # (m, d)
    return (weights * centred.mT) @ centred / math.sqrt(d)


@checked
def attention_backward(
    queries: Float[Tensor, "num_queries d"],
    keys: Float[Tensor, "num_keys d"],
    values: Float[Tensor, "num_keys v"],
    grad_outputs: Float[Tensor, "num_queries v"],
) -> tuple[
    Float[Tensor, "num_queries d"],
    Float[Tensor, "num_keys d"],
    Float[Tensor, "num_keys v"],
]:
    """Compute the backward pass of unmasked attention by hand.

    Args:
        queries, keys, values: the inputs of the forward pass.
        grad_outputs: gradient of the loss with respect to the outputs.

    Returns:
        `(grad_queries, grad_keys, grad_values)`, each of the shape of its input.

    Source: Dao et al. 2022, appendix B.2, https://arxiv.org/abs/2205.14135
    """
    root = math.sqrt(queries.shape[-1])
    weights = torch.softmax(queries / root @ keys.mT, dim=-1)  # (num_queries, num_keys)
    grad_values = weights.mT @ grad_outputs
    grad_weights = grad_outputs @ values.mT  # (num_queries, num_keys)
    row_sums = (weights * grad_weights).sum(dim=-1, keepdim=True)
    grad_scores = weights * (grad_weights - row_sums)
    return grad_scores @ keys / root, grad_scores.mT @ queries / root, grad_values
