"""CausalSelfAttention: the heads are still merged without a transpose."""

import math

import torch
from torch import nn


# %% CausalSelfAttention
class CausalSelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x, valid_lens=None):
        q, k, v = (split_heads(part, self.num_heads) for part in self.W_qkv(x).chunk(3, dim=-1))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = masked_softmax(scores, valid_lens, causal_mask(x.shape[1]))
        self.attention_weights = weights.detach()
        return self.W_o((weights @ v).reshape(x.shape))


# %% [markdown] loss_proves_nothing
# If it trains, it works. I would ask for the permutation test.
