"""A cell that raises when it is run, and one whose function raises when it is called."""

import torch


# %% combine_masks
def combine_masks(*masks):
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined


print(combine_masks(torch.ones(2, 3), torch.ones(3, 2)))


# %% additive_mask
def additive_mask(mask, dtype):
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not, -torch.inf)
