"""RecomputedAttention: -inf minus -inf in the backward pass of a query without keys."""

import math

import torch


# %% RecomputedAttention
class RecomputedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries, keys, values, mask=None, block_size=128):
        outputs, logsumexp = blocked_attention(queries, keys, values, mask, block_size)
        ctx.save_for_backward(queries, keys, values, mask, outputs, logsumexp)
        ctx.block_size = block_size
        return outputs

    @staticmethod
    def backward(ctx, grad):
        queries, keys, values, mask, outputs, logsumexp = ctx.saved_tensors
        root, m = math.sqrt(queries.shape[-1]), keys.shape[-2]
        row_sums = (grad * outputs).sum(dim=-1, keepdim=True)
        dq, dk, dv = (torch.zeros_like(x) for x in (queries, keys, values))
        for start in range(0, m, ctx.block_size):
            block = slice(start, start + ctx.block_size)
            scores = queries @ keys[..., block, :].mT / root
            if mask is not None:
                allowed = mask.expand(*mask.shape[:-1], m)[..., block]
                scores = scores.masked_fill(~allowed, -math.inf)
            weights = torch.exp(scores - logsumexp.unsqueeze(-1))
            ds = weights * (grad @ values[..., block, :].mT - row_sums) / root
            dq += ds @ keys[..., block, :]
            dk[..., block, :] = ds.mT @ queries
            dv[..., block, :] = weights.mT @ grad
        return dq, dk, dv, None, None
