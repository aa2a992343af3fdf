"""additive_mask: infinity times 0 is not a number."""

import torch


# %% additive_mask
def additive_mask(mask, dtype):
    return (1 - mask.to(dtype)) * torch.tensor(float("-inf"), dtype=dtype)
