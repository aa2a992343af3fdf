"""Lookup: every fault fixed but the axis of the softmax."""

import math

import torch
from torch import nn


# %% Lookup
class Lookup(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None):
        q = self.W_q(queries)
        scores = q @ self.W_k(keys).mT / math.sqrt(q.shape[-1])
        if valid_lens is not None:
            real = torch.arange(keys.shape[1]) < valid_lens[:, None]
            scores = scores.masked_fill(~real[:, None], float("-inf"))
        weights = torch.softmax(scores, dim=1).nan_to_num(0.0)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values
