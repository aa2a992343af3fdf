"""Wrong models of lesson 04, made from one right class by changing one step."""

import math

import torch
from torch import nn


def hand_masked_softmax(scores, valid_lens=None, mask=None):
    """A masked softmax to put mistakes around; empty rows give 0."""
    allowed = allowed_keys(scores, valid_lens, mask)
    empty = ~allowed.any(-1, keepdim=True)
    filled = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
    return torch.softmax(filled, -1).masked_fill(empty, 0.0)


def allowed_keys(scores, valid_lens, mask):
    """Bool tensor of the shape of the scores."""
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        lengths = valid_lens[:, None, None] if valid_lens.dim() == 1 else valid_lens[:, :, None]
        allowed = allowed & (torch.arange(scores.shape[-1]) < lengths)
    return allowed if mask is None else allowed & mask


def scores_of(queries, keys, w_q, w_k, w_v):
    """The right scores."""
    features = (queries @ w_q.mT)[:, :, None] + (keys @ w_k.mT)[:, None]
    return torch.tanh(features) @ w_v


class Right(nn.Module):
    """The right module, one method a step."""

    bias = False

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=self.bias)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=self.bias)
        self.w_v = nn.Linear(num_hiddens, 1, bias=self.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.score(queries, keys)
        weights = self.weigh(scores, valid_lens, mask)
        dropped = self.drop(weights)
        self.keep(scores, weights, dropped)
        return self.average(dropped, keys, values)

    def score(self, queries, keys):
        return self.combine(self.W_q(queries), self.W_k(keys))

    def combine(self, queries, keys):
        return self.w_v(torch.tanh(queries[:, :, None] + keys[:, None])).squeeze(-1)

    def weigh(self, scores, valid_lens, mask):
        return hand_masked_softmax(scores, valid_lens, mask)

    def drop(self, weights):
        return self.dropout(weights)

    def keep(self, scores, weights, dropped):
        self.attention_weights = weights.detach()

    def average(self, weights, keys, values):
        return weights @ values


def changed(**steps):
    """`Right` with some steps replaced by functions."""
    return type("Changed", (Right,), steps)


def combined(function):
    """`Right` whose scores are `function(projected queries, projected keys, w_v)`."""
    return changed(combine=lambda self, q, k: function(q, k, self.w_v.weight[0]))


def weighed(function):
    """`Right` whose weights are `function(scores, valid_lens, mask)`."""
    return changed(weigh=lambda self, *inputs: function(*inputs))


def filled(value):
    """`Right` that fills forbidden scores with a finite value."""

    def weigh(scores, valid_lens, mask):
        return torch.softmax(scores.masked_fill(~allowed_keys(scores, valid_lens, mask), value), -1)

    return weighed(weigh)


class TextbookSignature(Right):
    """Wants lengths in every call, and takes no mask."""

    def forward(self, queries, keys, values, valid_lens):
        valid_lens.dim()
        return super().forward(queries, keys, values, valid_lens)


class Squeezed(Right):
    """Removes every axis of size 1 from the scores; the course's softmax then refuses lengths."""

    def combine(self, queries, keys):
        return super().combine(queries, keys).squeeze()

    def weigh(self, scores, valid_lens, mask):
        if scores.dim() < (2 if valid_lens is None else 3):
            raise ValueError("an axis of the scores is missing")
        return super().weigh(scores, valid_lens, mask)
