"""Everything right, written in other ways than the course does."""

import math

import torch
from torch import nn


# %% masking_equals_deleting
def masking_equals_deleting(module, queries, keys, values, valid_lens):
    masked = module(queries, keys, values, valid_lens)
    parts = zip(queries, keys, values, valid_lens.tolist(), strict=True)
    deleted = torch.cat([module(q[None], k[None, :n], v[None, :n]) for q, k, v, n in parts])
    return bool((masked - deleted).abs().max() < 1e-5)


# %% keys_permutation_invariant
import itertools


def keys_permutation_invariant(module, queries, keys, values):
    outputs = module(queries, keys, values)
    for order in itertools.permutations(range(keys.shape[1])):
        order = list(order)
        if not (module(queries, keys[:, order], values[:, order]) - outputs).abs().max() <= 1e-5:
            return False  # also where it is nan
    return True


# %% batch_items_independent
def batch_items_independent(module, *inputs):
    together = module(*inputs).split(1)
    singles = zip(*(x.split(1) for x in inputs), strict=True)
    return all(
        torch.allclose(module(*single), expected, atol=1e-5)
        for single, expected in zip(singles, together, strict=True)
    )


# %% broken_invariants
def broken_invariants():
    ids = "queries_apart queries_apart empty_rows_zero linear_in_values scale_free"
    ids += " masking_equals_deleting eval_repeats all_parameters_learn empty_rows_zero"
    ids += " queries_apart"
    return dict(zip(BUGS, ids.split(), strict=True))


# %% Lookup
class Lookup(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.scale = num_hiddens**-0.5
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None):
        scores = torch.einsum("bnh,bmh->bnm", self.W_q(queries) * self.scale, self.W_k(keys))
        if valid_lens is None:
            weights = scores.softmax(-1)
        else:
            real = (torch.arange(keys.shape[1]) < valid_lens[:, None])[:, None]
            weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(-1) * real
        self.attention_weights = weights.detach()
        return torch.bmm(self.dropout(weights), values)


# %% CausalSelfAttention
class CausalSelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x, valid_lens=None):
        n = x.shape[1]
        q, k, v = self.W_qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(self.head_dim)
        allowed = torch.arange(n) <= torch.arange(n)[:, None]
        if valid_lens is not None:
            allowed = allowed & (torch.arange(n) < valid_lens[:, None])[:, None, None]
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~allowed, lowest).softmax(-1) * allowed
        self.attention_weights = weights.detach()
        return self.W_o(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))
