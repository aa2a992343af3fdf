"""AdditiveAttention: dropout on the scores, before the softmax."""

import torch
from torch import nn


# %% AdditiveAttention
class AdditiveAttention(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        scores = self.dropout(self.w_v(features).squeeze(-1))
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return weights @ values
