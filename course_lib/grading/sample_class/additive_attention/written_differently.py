"""Everything right, written otherwise: concatenation, lazy layers, functional dropout."""

import torch
from torch import nn
from torch.nn import functional as F


# %% additive_scores
def additive_scores(queries, keys, w_q, w_k, w_v):
    n, m = queries.shape[1], keys.shape[1]
    pairs = torch.cat(
        [
            queries.unsqueeze(2).expand(-1, -1, m, -1),
            keys.unsqueeze(1).expand(-1, n, -1, -1),
        ],
        dim=-1,
    )
    return torch.einsum("bnmh,h->bnm", torch.tanh(pairs @ torch.cat([w_q, w_k], dim=1).mT), w_v)


# %% AdditiveAttention
class AdditiveAttention(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.LazyLinear(num_hiddens, bias=False)
        self.W_k = nn.LazyLinear(num_hiddens, bias=False)
        self.w_v = nn.LazyLinear(1, bias=False)
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        features = torch.tanh(self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None])
        weights = masked_softmax(self.w_v(features)[..., 0], valid_lens, mask)
        self.attention_weights = weights.detach()
        return F.dropout(weights, self.p, self.training) @ values


# %% [markdown] three_requests
# 1. Both work, the cube is only 7.4 million numbers. 2. Dot product, because the cube has
# 1.6e12 entries. 3. Then the query does not matter any more, the softmax removes its constant.
