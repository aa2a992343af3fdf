"""scaled_dot_product_attention: passes on an inverted mask, as nn.MultiheadAttention wants it."""

import math


# %% scaled_dot_product_attention
def scaled_dot_product_attention(queries, keys, values, valid_lens=None, mask=None):
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    weights = masked_softmax(scores, valid_lens, None if mask is None else ~mask)
    return weights @ values, weights
