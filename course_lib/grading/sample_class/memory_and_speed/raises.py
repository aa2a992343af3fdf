"""A function that raises when it is called: a name that does not exist."""

import torch


# %% softmax_statistics
def softmax_statistics(blocks):
    maxima = totals = 0.0
    for block in blocks:
        larger = torch.maximum(maximum, block.amax(dim=-1))
        totals = totals * torch.exp(maxima - larger) + torch.exp(block - larger).sum(dim=-1)
    return larger, totals
