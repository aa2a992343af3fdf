"""MultiHeadAttention: the mask is inverted, as torch's module wants it."""

import math

import torch
from torch import nn


# %% MultiHeadAttention
class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = split_heads(self.W_q(queries), self.num_heads)
        k = split_heads(self.W_k(keys), self.num_heads)
        v = split_heads(self.W_v(values), self.num_heads)
        if mask is not None:
            mask = ~mask.unsqueeze(1) if mask.dim() == 3 else ~mask
        weights = masked_softmax(q @ k.mT / math.sqrt(q.shape[-1]), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.W_o(merge_heads(self.dropout(weights) @ v))
