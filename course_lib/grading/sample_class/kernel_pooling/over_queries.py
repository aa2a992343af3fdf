"""kernel_pooling: columns sum to 1 instead of rows."""

import torch


# %% kernel_pooling
def kernel_pooling(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values must have two axes")
    scores = -squared_distances(queries, keys) / (2 * bandwidth**2)
    weights = torch.softmax(scores, dim=0)
    return weights @ values, weights
