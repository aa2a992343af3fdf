"""Everything right, written in other ways than the course does."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


# %% score_variance
def score_variance(d, num_samples, scaled, generator):
    both = torch.randn(2, num_samples, d, generator=generator, dtype=torch.float64)
    products = torch.einsum("nd,nd->n", both[0], both[1])
    variance = float(((products - products.mean()) ** 2).mean())
    return variance / d if scaled else variance


# %% numpy_attention
def numpy_attention(queries, keys, values, mask=None):
    n, m = len(queries), len(keys)
    allowed = np.ones((n, m), dtype=bool) if mask is None else np.broadcast_to(mask, (n, m))
    weights = np.zeros((n, m), dtype=queries.dtype)
    for i in range(n):
        if allowed[i].any():
            scores = keys[allowed[i]] @ queries[i] / math.sqrt(queries.shape[1])
            exponentials = np.exp(scores - scores.max())
            weights[i, allowed[i]] = exponentials / exponentials.sum()
    return weights @ values, weights


# %% scaled_dot_product_attention
def scaled_dot_product_attention(queries, keys, values, valid_lens=None, mask=None):
    fourth_root = queries.shape[-1] ** 0.25
    scores = torch.einsum("...nd,...md->...nm", queries / fourth_root, keys / fourth_root)
    weights = masked_softmax(scores, valid_lens, mask)
    return torch.einsum("...nm,...mv->...nv", weights, values), weights


# %% DotProductAttention
class DotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        _, weights = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)
        self.attention_weights = weights.detach()
        return torch.matmul(F.dropout(weights, self.p, training=self.training), values)


# %% jacobian_wrt_query
def jacobian_wrt_query(query, keys):
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), dim=0)
    through_softmax = torch.diag(weights) - torch.outer(weights, weights)
    return keys.T @ through_softmax @ keys / math.sqrt(len(query))


# %% attention_backward
def attention_backward(queries, keys, values, grad_outputs):
    root = math.sqrt(queries.shape[-1])
    weights = torch.softmax(queries @ keys.T / root, dim=-1)
    rows = []
    for i in range(len(queries)):
        through_softmax = torch.diag(weights[i]) - torch.outer(weights[i], weights[i])
        rows.append(through_softmax @ (values @ grad_outputs[i]) / root)
    grad_scores = torch.stack(rows)
    return grad_scores @ keys, grad_scores.T @ queries, weights.T @ grad_outputs
