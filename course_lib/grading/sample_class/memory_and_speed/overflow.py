"""factored_additive_scores: no guard."""

import torch


# %% factored_additive_scores
def factored_additive_scores(projected_queries, projected_keys, w_v):
    for_queries = torch.exp(-2 * projected_queries).unsqueeze(2)
    for_keys = torch.exp(-2 * projected_keys).unsqueeze(1)
    return (2 / (1 + for_queries * for_keys) - 1) @ w_v
