"""bmm_loops: every item meets the first matrix of b."""

import torch


# %% bmm_loops
def bmm_loops(a, b):
    product = torch.zeros(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype)
    for item in range(a.shape[0]):
        product[item] = a[item] @ b[0]
    return product
