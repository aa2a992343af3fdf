"""AdditiveAttention: the layers are plain tensors, which no optimiser finds."""

import torch
from torch import nn


# %% AdditiveAttention
class AdditiveAttention(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = torch.randn(num_hiddens, query_size)
        self.W_k = torch.randn(num_hiddens, key_size)
        self.w_v = torch.randn(num_hiddens)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = additive_scores(queries, keys, self.W_q, self.W_k, self.w_v)
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values
