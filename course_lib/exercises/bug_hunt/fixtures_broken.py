"""The correct and broken modules of lesson 07, which students read and checks use.

Ten broken multi-head attentions, with names that say nothing about them, and two
broken modules to fix. `source` prints any of them; `hidden_modules` has more, which no
student reads.
They use only torch, because they also run beside a student's code, as arguments of the checks
(builder `attention_module`).
"""

import inspect
import math
import textwrap

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """What all boxes share: sizes, four projections, heads, and which keys may be attended."""

    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear
    W_o: nn.Linear

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads, self.p = num_heads, dropout
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim, bias=bias))

    def split(self, x):  # (batch, n, embed_dim) -> (batch, num_heads, n, head_dim)
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge(self, x):  # (batch, num_heads, n, head_dim) -> (batch, n, embed_dim)
        return x.transpose(1, 2).flatten(2)

    def allowed(self, scores, valid_lens, mask):  # bool, of the shape of the scores
        allowed = torch.ones_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
            real = torch.arange(scores.shape[-1], device=scores.device) < lens[..., None]
            allowed = allowed & real[:, None]
        if mask is not None:
            allowed = allowed & (mask[:, None] if mask.dim() == 3 else mask)
        return allowed

    def softmax(self, scores, allowed):  # over the allowed keys; an empty row gives zeros
        empty = ~allowed.any(-1, keepdim=True)
        filled = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
        return torch.softmax(filled, -1).masked_fill(empty, 0.0)


class Sound(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Avocet(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        allowed = self.allowed(scores, valid_lens, mask)
        filled = scores.masked_fill(~allowed, -math.inf)
        weights = torch.softmax(filled, dim=2).nan_to_num(0.0)
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Bittern(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        batch, num_queries, embed_dim = queries.shape
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o((weights @ v).reshape(batch, num_queries, embed_dim))


class Curlew(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        allowed = self.allowed(scores, valid_lens, mask)
        weights = torch.softmax(scores.masked_fill(~allowed, 0), dim=-1)
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Dunlin(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k, v = (self.split(layer(keys)) for layer in (self.W_k, self.W_v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Egret(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Fulmar(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        h = self.num_heads
        q = self.split(self.W_q(queries)).flatten(0, 1)  # (batch * h, n, head_dim)
        k = self.split(self.W_k(keys)).flatten(0, 1)
        v = self.split(self.W_v(values)).flatten(0, 1)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        allowed = torch.ones_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
            positions = torch.arange(keys.shape[1], device=keys.device)
            allowed = allowed & (positions < lens.repeat(h, 1)[..., None])
        if mask is not None and mask.dim() == 3:
            allowed = allowed & mask.repeat(h, 1, 1)
        elif mask is not None:
            allowed = allowed & (mask.flatten(0, 1) if mask.dim() == 4 else mask)
        weights = self.softmax(scores, allowed)
        self.attention_weights = weights.detach().unflatten(0, (-1, h))
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge((weights @ v).unflatten(0, (-1, h))))


class Grebe(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p)
        return self.W_o(self.merge(weights @ v))


class Heron(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            self.split(layer(x))
            for layer, x in zip(
                (self.W_q, self.W_k, self.W_k), (queries, keys, values), strict=True
            )
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Ibis(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        allowed = self.allowed(scores, valid_lens, mask)
        weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=-1)
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


class Jacana(Attention):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        batch, h = len(queries), self.num_heads
        q = self.W_q(queries).view(batch, h, queries.shape[1], -1)
        k = self.W_k(keys).view(batch, h, keys.shape[1], -1)
        v = self.W_v(values).view(batch, h, values.shape[1], -1)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = self.softmax(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p, self.training)
        return self.W_o(self.merge(weights @ v))


BUGS = {
    box.__name__.lower(): box
    for box in (Avocet, Bittern, Curlew, Dunlin, Egret, Fulmar, Grebe, Heron, Ibis, Jacana)
}

INVARIANTS = {
    "rows_sum_to_one": "Each row of `attention_weights` with an allowed key sums to 1.",
    "queries_apart": "The output of a query does not depend on the other queries.",
    "keys_permutation": "Shuffling the keys, and the values with them, changes no output.",
    "masking_equals_deleting": "Masking keys has the same effect as deleting them.",
    "items_apart": "The output of an item does not depend on the other items of the batch.",
    "linear_in_values": "Doubling the values, and nothing else, doubles the outputs.",
    "scale_free": "With W_q = W_k = identity, log-weights have the same spread for any head_dim.",
    "eval_repeats": "In eval mode two calls with the same arguments agree, whatever the dropout.",
    "all_parameters_learn": "Every parameter gets a gradient.",
    "empty_rows_zero": "A query with no allowed key gets zeros, not NaN and no average.",
    "arguments_unchanged": "The caller's tensors hold the same numbers after the call.",
}


class BrokenLookup(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None):
        scores = self.W_q(queries) @ self.W_k(keys).mT
        scores = scores / math.sqrt(queries.shape[-1])
        weights = torch.softmax(scores, dim=1)
        if valid_lens is not None:
            real = torch.arange(keys.shape[1], device=keys.device) < valid_lens[:, None]
            weights = weights * real[:, None, :]
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.p)
        return weights @ values


class BrokenCausalSelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None):
        batch, n, embed_dim = x.shape
        projected = self.W_qkv(x).chunk(3, dim=-1)
        q, k, v = (split_heads(part, self.num_heads) for part in projected)
        scores = q @ k.mT / math.sqrt(embed_dim)
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).triu()
        if valid_lens is not None:
            real = torch.arange(n, device=x.device) < valid_lens[:, None]
            mask = mask & real[:, None, None, :]
        weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
        self.attention_weights = weights.detach()
        return self.W_o((weights @ v).reshape(batch, n, embed_dim))


def split_heads(x, num_heads):
    """Split heads as lesson 06 does, for `BrokenCausalSelfAttention`."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def source(module: type) -> str:
    """Return the source text of a module."""
    return textwrap.dedent(inspect.getsource(module)).rstrip()
