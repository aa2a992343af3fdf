"""softmax_statistics: -inf minus -inf where a row has seen no score yet."""

import torch


# %% softmax_statistics
def softmax_statistics(blocks):
    maxima = None
    for block in blocks:
        largest = block.amax(dim=-1)
        if maxima is None:
            maxima, totals = largest, torch.exp(block - largest.unsqueeze(-1)).sum(dim=-1)
            continue
        larger = torch.maximum(maxima, largest)
        summed = torch.exp(block - larger.unsqueeze(-1)).sum(dim=-1)
        totals = totals * torch.exp(maxima - larger) + summed
        maxima = larger
    return maxima, totals
