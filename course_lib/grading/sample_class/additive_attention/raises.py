"""The weights are not transposed, so the call raises; the module is the textbook's."""

import torch
from torch import nn


# %% additive_scores
def additive_scores(queries, keys, w_q, w_k, w_v):
    features = torch.tanh((queries @ w_q).unsqueeze(2) + (keys @ w_k).unsqueeze(1))
    return features @ w_v


# %% AdditiveAttention
class AdditiveAttention(nn.Module):
    def __init__(self, key_size, query_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens):
        queries, keys = self.W_q(queries), self.W_k(keys)
        features = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
        scores = self.w_v(features).squeeze(-1)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return torch.bmm(self.dropout(self.attention_weights), values)
