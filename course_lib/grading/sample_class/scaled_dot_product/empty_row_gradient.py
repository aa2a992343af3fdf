"""DotProductAttention: keeps the weights with their graph."""

import math

from torch import nn


# %% DotProductAttention
class DotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        self.attention_weights = masked_softmax(scores, valid_lens, mask)
        return self.dropout(self.attention_weights) @ values
