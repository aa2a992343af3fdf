"""additive_scores: the two new axes are exchanged."""

import torch


# %% additive_scores
def additive_scores(queries, keys, w_q, w_k, w_v):
    queries, keys = queries @ w_q.mT, keys @ w_k.mT
    return torch.tanh(queries.unsqueeze(1) + keys.unsqueeze(2)) @ w_v


# %% [markdown] three_requests
# I would always take the dot product because it is faster.
