"""A function that raises when it is called: a name that does not exist."""

import torch


# %% jacobian_wrt_query
def jacobian_wrt_query(query, keys):
    weights = torch.softmax(keys @ query / sqrt(len(query)), dim=0)
    centred = keys - weights @ keys
    return (weights * centred.mT) @ centred / sqrt(len(query))
