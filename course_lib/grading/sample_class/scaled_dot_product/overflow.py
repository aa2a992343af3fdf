"""numpy_attention: exp without subtracting the maximum."""

import numpy as np


# %% numpy_attention
def numpy_attention(queries, keys, values, mask=None):
    scores = queries @ keys.T / np.sqrt(queries.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    with np.errstate(all="ignore"):
        weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights @ values, weights
