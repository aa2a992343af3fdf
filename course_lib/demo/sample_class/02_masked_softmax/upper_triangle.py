"""causal_mask: each query sees its own position and later ones."""

import torch


# %% causal_mask
def causal_mask(num_queries, num_keys=None, *, device=None):
    if num_keys is None:
        num_keys = num_queries
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return torch.triu(ones)
