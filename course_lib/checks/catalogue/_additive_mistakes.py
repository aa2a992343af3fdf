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


class ParametersInForward(nn.Module):
    """Makes its layers anew in every call."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.num_hiddens, self.dropout = num_hiddens, nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        inner = Right(queries.shape[-1], keys.shape[-1], self.num_hiddens).to(queries)
        return inner(queries, keys, values, valid_lens, mask)


class PlainTensors(nn.Module):
    """Holds its weights in tensors that are no parameters."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = torch.randn(num_hiddens, query_size, requires_grad=True)
        self.W_k = torch.randn(num_hiddens, key_size, requires_grad=True)
        self.w_v = torch.randn(num_hiddens, requires_grad=True)


class LayersInAList(nn.Module):
    """Holds its layers in a Python list."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        sizes = (query_size, num_hiddens), (key_size, num_hiddens), (num_hiddens, 1)
        self.layers = [nn.Linear(*size, bias=False) for size in sizes]


class SizesSwapped(Right):
    """Gives each projection the other one's input size."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(key_size, query_size, num_hiddens, dropout)


class DropoutRequired(Right):
    """Gives `dropout` no default."""

    def __init__(self, query_size, key_size, num_hiddens, dropout):
        super().__init__(query_size, key_size, num_hiddens, dropout)


class KeySizeFirst(Right):
    """Takes the sizes in another order."""

    def __init__(self, key_size, query_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)


class FrozenScore(Right):
    """Excludes a layer from training."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.w_v.weight.requires_grad_(False)


class DropoutOfAHalf(Right):
    """Ignores the rate it is given, except 0."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, 0.5 if dropout else 0.0)


class DropoutKeepsP(Right):
    """Reads the rate as that of keeping."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, 1 - dropout if dropout else 0.0)


class KeepsTheFirst(Right):
    """Keeps the weights of its first call for good."""

    attention_weights = None

    def keep(self, scores, weights, dropped):
        if self.attention_weights is None:
            self.attention_weights = weights.detach()


class NoMaskArgument(Right):
    """Takes lengths only."""

    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


class BothRequired(Right):
    """Wants lengths and mask in every call."""

    def forward(self, queries, keys, values, valid_lens, mask):
        return super().forward(queries, keys, values, valid_lens, mask)


class MaskBeforeLengths(Right):
    """Takes the mask by position where the lengths are given."""

    def forward(self, queries, keys, values, mask=None, valid_lens=None):
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError("a mask must be a bool tensor")
        return super().forward(queries, keys, values, valid_lens, mask)


class TruthOfLengths(Right):
    """Asks for the truth value of a tensor."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        lengths = valid_lens if valid_lens else None
        return super().forward(queries, keys, values, lengths, mask)


class PadsSetToZero(Right):
    """Wipes the pads instead of leaving them out."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None and valid_lens.dim() == 1:
            real = (torch.arange(keys.shape[1]) < valid_lens[:, None])[..., None]
            keys, values, valid_lens = keys * real, values * real, None
        return super().forward(queries, keys, values, valid_lens, mask)


class TextbookSignature(Right):
    """Wants lengths in every call, and takes no mask."""

    def forward(self, queries, keys, values, valid_lens):
        valid_lens.dim()
        return super().forward(queries, keys, values, valid_lens)


class ReturnsBoth(Right):
    """Returns the weights beside the outputs."""

    def forward(self, *inputs, **options):
        return super().forward(*inputs, **options), self.attention_weights


class DropoutOnFeatures(Right):
    """Drops hidden features instead of weights."""

    def combine(self, queries, keys):
        features = torch.tanh(queries[:, :, None] + keys[:, None])
        return self.w_v(self.dropout(features)).squeeze(-1)

    def drop(self, weights):
        return weights


class Squeezed(Right):
    """Removes every axis of size 1 from the scores; the course's softmax then refuses lengths."""

    def combine(self, queries, keys):
        return super().combine(queries, keys).squeeze()

    def weigh(self, scores, valid_lens, mask):
        if scores.dim() < (2 if valid_lens is None else 3):
            raise ValueError("an axis of the scores is missing")
        return super().weigh(scores, valid_lens, mask)
