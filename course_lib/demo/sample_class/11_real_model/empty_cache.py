"""GroupedQueryAttention: `if cache:` is False for an empty cache."""

import torch
from torch import nn


# %% GroupedQueryAttention
class GroupedQueryAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, num_groups, base=10000.0, *, device=None, dtype=None):
        super().__init__()
        self.num_heads, self.num_groups, self.base = num_heads, num_groups, base
        shared = embed_dim // num_heads * num_groups
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(embed_dim, shared, bias=False, device=device, dtype=dtype)
        self.W_v = nn.Linear(embed_dim, shared, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x, cache=None):
        offset = len(cache) if cache else 0
        q = rotary_embedding(split_heads(self.W_q(x), self.num_heads), offset, self.base)
        k = rotary_embedding(split_heads(self.W_k(x), self.num_groups), offset, self.base)
        v = split_heads(self.W_v(x), self.num_groups)
        if cache:
            k, v = cache.append(k, v)
        n, m = q.shape[2], k.shape[2]
        mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        outputs, weights = grouped_query_attention(q, k, v, mask=mask)
        self.attention_weights = weights.detach()
        return self.W_o(merge_heads(outputs))
