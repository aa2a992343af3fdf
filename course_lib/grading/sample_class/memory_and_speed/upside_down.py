"""blocked_attention: reads the mask as nn.MultiheadAttention does, True = ignore."""

import math

import torch


# %% blocked_attention
def blocked_attention(queries, keys, values, mask=None, block_size=128):
    root, m = math.sqrt(queries.shape[-1]), keys.shape[-2]
    maxima = torch.full_like(queries[..., :1], -math.inf)
    totals, outputs = torch.zeros_like(maxima), 0.0
    for start in range(0, m, block_size):
        block = slice(start, start + block_size)
        scores = queries @ keys[..., block, :].mT / root
        if mask is not None:
            scores = scores.masked_fill(mask.expand(*mask.shape[:-1], m)[..., block], -math.inf)
        larger = torch.maximum(maxima, scores.amax(dim=-1, keepdim=True))
        shift = larger.masked_fill(larger == -math.inf, 0.0)
        weights, fading = torch.exp(scores - shift), torch.exp(maxima - shift)
        totals = totals * fading + weights.sum(dim=-1, keepdim=True)
        outputs = outputs * fading + weights @ values[..., block, :]
        maxima = larger
    outputs = outputs / totals.masked_fill(totals == 0, 1.0)
    return outputs, (maxima + totals.log()).squeeze(-1)
