"""MultiHeadAttention: the weights of each key sum to 1, not those of each query."""

import math

import torch
from torch import nn


# %% MultiHeadAttention
class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        like = {"bias": bias, "device": device, "dtype": dtype}
        self.W_q = nn.Linear(embed_dim, embed_dim, **like)
        self.W_k = nn.Linear(embed_dim, embed_dim, **like)
        self.W_v = nn.Linear(embed_dim, embed_dim, **like)
        self.W_o = nn.Linear(embed_dim, embed_dim, **like)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = split_heads(self.W_q(queries), self.num_heads)
        k = split_heads(self.W_k(keys), self.num_heads)
        v = split_heads(self.W_v(values), self.num_heads)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if valid_lens is not None:
            lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
            padded = torch.arange(keys.shape[1], device=keys.device) >= lens[..., None]
            scores = scores.masked_fill(padded[:, None], -1e9)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(~mask, -1e9)
        weights = torch.softmax(scores, dim=-2)
        self.attention_weights = weights.detach()
        return self.W_o(merge_heads(self.dropout(weights) @ v))
