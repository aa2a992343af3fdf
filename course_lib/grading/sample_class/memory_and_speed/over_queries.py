"""softmax_statistics: the sum is not rescaled when the maximum rises."""

import math

import torch


# %% softmax_statistics
def softmax_statistics(blocks):
    maxima, totals = None, 0.0
    for block in blocks:
        largest = block.amax(dim=-1)
        maxima = largest if maxima is None else torch.maximum(maxima, largest)
        shift = maxima.masked_fill(maxima == -math.inf, 0.0)
        totals = totals + torch.exp(block - shift.unsqueeze(-1)).sum(dim=-1)
    return maxima, totals
