"""bmm: a loop over the items, where none is asked for."""

import torch


# %% bmm
def bmm(a, b):
    left = a.reshape(-1, *a.shape[-2:])
    right = b.reshape(-1, *b.shape[-2:])
    items = [(x[:, :, None] * y[None, :, :]).sum(dim=1) for x, y in zip(left, right)]
    return torch.stack(items).reshape(*a.shape[:-1], b.shape[-1])
