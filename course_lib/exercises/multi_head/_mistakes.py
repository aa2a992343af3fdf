"""Wrong models of lesson 06: a right module in small steps, and what can go wrong in each."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Stepwise(nn.Module):
    """Multi-head attention whose steps can be replaced one at a time."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads, self.p = num_heads, dropout
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim, bias=bias))

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (self.split(x) for x in self.project(queries, keys, values))
        scores = q @ k.mT / self.scale(q)
        weights = self.normalise(scores, self.allowed(scores, valid_lens, mask))
        self.attention_weights = weights.detach()
        return self.finish(self.merge(self.drop(weights) @ v))

    def project(self, queries, keys, values):
        return self.W_q(queries), self.W_k(keys), self.W_v(values)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def scale(self, q):
        return math.sqrt(q.shape[-1])

    def allowed(self, scores, valid_lens, mask):
        allowed = torch.ones_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            allowed = allowed & self.real_keys(scores, valid_lens)
        if mask is not None:
            allowed = allowed & self.own_mask(scores, mask)
        return allowed

    def real_keys(self, scores, valid_lens):
        lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
        real = torch.arange(scores.shape[-1], device=scores.device) < lens[..., None]
        return real.unsqueeze(1)

    def own_mask(self, scores, mask):
        return mask.unsqueeze(1) if mask.dim() == 3 else mask

    def normalise(self, scores, allowed):
        empty = ~allowed.any(-1, keepdim=True)
        filled = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
        return torch.softmax(filled, -1).masked_fill(empty, 0.0)

    def drop(self, weights):
        return F.dropout(weights, self.p, self.training)

    def finish(self, merged):
        return self.W_o(merged)


def but(**steps):
    """A module that is right but for the given steps."""
    return type("MultiHeadAttention", (Stepwise,), steps)


def split_without_transpose(self, x):
    return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


def merge_without_transpose(self, x):
    return x.reshape(x.shape[0], x.shape[2], -1)


def split_interleaved(self, x):
    return x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)


def merge_interleaved(self, x):
    return x.permute(0, 2, 3, 1).flatten(2)


def fill(value):
    def normalise(self, scores, allowed):
        return torch.softmax(scores.masked_fill(~allowed, value), -1)

    return normalise


def over_queries(self, scores, allowed):
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), -2).nan_to_num(0.0)


def only_lengths(self, scores, valid_lens, mask):
    return Stepwise.allowed(self, scores, valid_lens, mask if valid_lens is None else None)


def tiled(self, scores, valid_lens, mask):
    """The masks of a folded batch (item 0 head 0, item 0 head 1, ...), in the wrong order."""
    folded = scores.flatten(0, 1)
    allowed = torch.ones_like(folded, dtype=torch.bool)
    positions = torch.arange(scores.shape[-1], device=scores.device)
    heads = self.num_heads
    if valid_lens is not None:
        lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
        allowed = allowed & (positions < lens.repeat(heads, 1)[..., None])
    if mask is not None and mask.dim() == 3:
        allowed = allowed & mask.repeat(heads, 1, 1)
    elif mask is not None:
        allowed = allowed & (mask.flatten(0, 1) if mask.dim() == 4 else mask)
    return allowed.unflatten(0, scores.shape[:2])


def mask_as_it_is(self, scores, mask):
    return mask


def heads_averaged(self, x):
    return x.mean(1).repeat(1, 1, self.num_heads)


# ---------------------------------------------------------------- load_into_torch
def loader(order="qkv", weight=None, out=None, biases=True):
    """A wrong `load_into_torch`: `weight` and `out` change what is copied."""

    def load_into_torch(mha, reference):
        layers = [getattr(mha, f"W_{part}") for part in order]
        with torch.no_grad():
            if weight is not False:
                weights = [(weight or (lambda w: w))(x.weight) for x in layers]
                reference.in_proj_weight.copy_(torch.cat(weights))
            if out is not False:
                reference.out_proj.weight.copy_((out or (lambda w: w))(mha.W_o.weight))
            if biases:
                load_biases(mha, reference, layers, biases)

    return load_into_torch


def load_biases(mha, reference, layers, biases):
    """Copies the biases, or zeros unless `biases` is "own"."""
    if reference.in_proj_bias is None:
        return
    if mha.W_o.bias is not None:
        reference.in_proj_bias.copy_(torch.cat([x.bias for x in layers]))
        reference.out_proj.bias.copy_(mha.W_o.bias)
    elif biases != "own":
        reference.in_proj_bias.zero_()
        reference.out_proj.bias.zero_()


def load_shared(mha, reference):
    loader()(mha, reference)
    reference.out_proj.weight = mha.W_o.weight


def load_nothing(mha, reference):
    reference.load_state_dict(mha.state_dict(), strict=False)


# ---------------------------------------------------------------- tests of functions
def same(a, b):
    return bool(a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-5))


def equivariance(change, output=None, agree=same, negate=False):
    """A test that permutes with `change(x)`; `output` is what is done to the outputs."""

    def is_permutation_equivariant(fn, x):
        return agree(fn(change(x)), (output or change)(fn(x))) != negate

    return is_permutation_equivariant


def swap_first_two(x):
    return torch.cat([x[:, 1:2], x[:, :1], x[:, 2:]], dim=1)


def both(*tests):
    return lambda fn, x: all(test(fn, x) for test in tests)


def causality(
    change, before=lambda outputs, t: outputs[:, :t], cuts=None, negate=False, agree=None
):
    """A test that changes x with `change(x, t)` and compares what `before` picks."""

    def is_causal(fn, x):
        outputs, found = fn(x), True
        for t in cuts(x.shape[1]) if cuts else range(1, x.shape[1]):
            found = found and (agree or same)(before(fn(change(x, t)), t), before(outputs, t))
        return found != negate

    return is_causal


def from_t_on(x, t):
    return torch.cat([x[:, :t], x[:, t:].flip(-1) * 1.7 + 0.9], dim=1)


def first_feature_from_t_on(x, t):
    return torch.cat([torch.cat([x[:, :t, :1], x[:, t:, :1] + 1.7], dim=1), x[..., 1:]], dim=-1)


def only_t(x, t):
    return torch.cat([x[:, :t], x[:, t : t + 1] + 1.3, x[:, t + 1 :]], dim=1)


def up_to_t(x, t):
    return torch.cat([x[:, :t] + 1.3, x[:, t:]], dim=1)


def nan_from_t_on(x, t):
    return torch.cat([x[:, :t], torch.full_like(x[:, t:], math.nan)], dim=1)


# ---------------------------------------------------------------- positional_encoding
def encoding(exponent=None, base=10000.0, start=0, sine=0, combine=None, divide=True):
    """A wrong encoding: `exponent(column, embed_dim)`, first position, parity of the sines."""
    exponent = exponent or (lambda column, size: (column - column % 2) / size)

    def positional_encoding(num_positions, embed_dim):
        positions = torch.arange(start, start + num_positions, dtype=torch.float64)[:, None]
        columns = torch.arange(embed_dim)
        rates = base ** exponent(columns.double(), embed_dim)
        angles = positions / rates if divide else positions * rates
        if combine is not None:
            return combine(angles)
        return torch.where(columns % 2 == sine, angles.sin(), angles.cos())

    return positional_encoding


def halves_of(num_positions, embed_dim):
    first, second = (embed_dim + 1) // 2, embed_dim // 2
    pairs = torch.arange(first, dtype=torch.float64)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None]
    angles = angles / 10000.0 ** (2 * pairs / embed_dim)
    return torch.cat([angles.sin(), angles[:, :second].cos()], dim=-1)


def even_sizes_only(num_positions, embed_dim):
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None]
    angles = angles / 10000.0 ** (torch.arange(0, embed_dim, 2).double() / embed_dim)
    result = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
    result[:, 0::2] = angles.sin()
    result[:, 1::2] = angles.cos()
    return result
