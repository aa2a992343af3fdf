"""RecomputedAttention: keeps all weights for the backward pass."""

import math

import torch


# %% RecomputedAttention
class RecomputedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries, keys, values, mask=None, block_size=128):
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        weights = torch.softmax(
            scores if mask is None else scores.masked_fill(~mask, -1e30), dim=-1
        )
        weights = weights if mask is None else weights * mask
        ctx.save_for_backward(queries, keys, values, weights)
        return weights @ values

    @staticmethod
    def backward(ctx, grad):
        queries, keys, values, weights = ctx.saved_tensors
        grad_weights = grad @ values.mT
        row_sums = (weights * grad_weights).sum(dim=-1, keepdim=True)
        ds = weights * (grad_weights - row_sums) / math.sqrt(queries.shape[-1])
        return ds @ keys, ds.mT @ queries, weights.mT @ grad, None, None
