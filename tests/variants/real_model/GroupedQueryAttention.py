"""Answers to `GroupedQueryAttention`, as different hands would write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import causal_mask, grouped_query_attention, rotary_embedding
from course_lib.authoring.variants import faulty, right, wrong


class Layers(nn.Module):
    def __init__(self, embed_dim, num_heads, num_groups, base=10000.0, *, device=None, dtype=None):
        super().__init__()
        self.num_heads, self.num_groups, self.base = num_heads, num_groups, base
        self.d = embed_dim // num_heads
        made = {"bias": False, "device": device, "dtype": dtype}
        self.W_q = nn.Linear(embed_dim, embed_dim, **made)
        self.W_k = nn.Linear(embed_dim, num_groups * self.d, **made)
        self.W_v = nn.Linear(embed_dim, num_groups * self.d, **made)
        self.W_o = nn.Linear(embed_dim, embed_dim, **made)


@right
class FoldedGroups(Layers):
    def forward(self, x, cache=None):
        B, n, D = x.shape
        start = len(cache) if cache is not None else 0
        q = rotary_embedding(self.W_q(x).view(B, n, -1, self.d).transpose(1, 2), start, self.base)
        k = rotary_embedding(self.W_k(x).view(B, n, -1, self.d).transpose(1, 2), start, self.base)
        v = self.W_v(x).view(B, n, -1, self.d).transpose(1, 2)
        if cache is not None:
            k, v = cache.append(k, v)
        times = self.num_heads // self.num_groups
        scores = q @ k.repeat_interleave(times, 1).mT / math.sqrt(self.d)
        m = k.shape[2]
        places = torch.arange(m, device=x.device)
        allowed = places <= places[m - n :, None]
        weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
        self.attention_weights = weights.detach()
        outputs = weights @ v.repeat_interleave(times, 1)
        return self.W_o(outputs.permute(0, 2, 1, 3).reshape(B, n, D))


@right
class ComplexTable(Layers):
    """A buffer holds the rotations as complex numbers of absolute value 1."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        angles = torch.arange(512)[:, None] * self.base ** (-torch.arange(0, self.d, 2) / self.d)
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles), False)

    def turn(self, x, offset):
        points = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
        points = points * self.table[offset : offset + x.shape[-2]].to(x.device)
        return torch.view_as_real(points).flatten(-2).to(x.dtype)

    def forward(self, x, cache=None):
        layers, counts = (self.W_q, self.W_k, self.W_v), (self.num_heads, *[self.num_groups] * 2)
        q, k, v = (
            layer(x).unflatten(-1, (count, self.d)).transpose(1, 2)
            for layer, count in zip(layers, counts, strict=True)
        )
        offset = 0 if cache is None else len(cache)
        q, k = self.turn(q, offset), self.turn(k, offset)
        if cache is not None:
            k, v = cache.append(k, v)
        mask = causal_mask(q.shape[2], k.shape[2], device=x.device)
        outputs, weights = grouped_query_attention(q, k, v, mask=mask)
        self.attention_weights = weights.detach()
        return self.W_o(outputs.transpose(1, 2).flatten(2))


@wrong("not_as_requested")
class RotatedAfterTheCache(Layers):
    """The cache holds keys that are not rotated; all of them are rotated in each call."""

    def forward(self, x, cache=None):
        q = self.W_q(x).unflatten(-1, (self.num_heads, self.d)).transpose(1, 2)
        k = self.W_k(x).unflatten(-1, (self.num_groups, self.d)).transpose(1, 2)
        v = self.W_v(x).unflatten(-1, (self.num_groups, self.d)).transpose(1, 2)
        if cache is not None:
            k, v = cache.append(k, v)
        q = rotary_embedding(q, k.shape[2] - q.shape[2], self.base)
        k = rotary_embedding(k, 0, self.base)
        mask = causal_mask(q.shape[2], k.shape[2], device=x.device)
        outputs, weights = grouped_query_attention(q, k, v, mask=mask)
        self.attention_weights = weights.detach()
        return self.W_o(outputs.transpose(1, 2).flatten(2))


@right
class TorchsOwn(Layers):
    def forward(self, x, cache=None):
        heads = {"W_q": self.num_heads, "W_k": self.num_groups, "W_v": self.num_groups}
        q, k, v = (
            getattr(self, name)(x).unflatten(-1, (count, -1)).movedim(1, 2)
            for name, count in heads.items()
        )
        offset = 0 if cache is None else len(cache)
        q, k = (rotary_embedding(each, offset, self.base) for each in (q, k))
        if cache is not None:
            k, v = cache.append(k, v)
        mask = causal_mask(x.shape[1], k.shape[2], device=x.device)
        self.attention_weights = grouped_query_attention(q, k, v, mask=mask)[1].detach()
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.W_o(out.movedim(1, 2).flatten(2))


@right
class Almost(Layers):
    """A right module in steps; what follows changes one of them."""

    def forward(self, x, cache=None):
        q = self.cut(self.W_q(x), self.num_heads)
        k, v = self.cut(self.W_k(x), self.num_groups), self.cut(self.W_v(x), self.num_groups)
        q, k, v = self.extended(*self.rotated(q, k, v, self.offset(cache)), cache)
        out, weights = self.attend(q, k, v, self.mask(q.shape[2], k.shape[2]))
        self.attention_weights = self.kept(weights)
        return self.result(self.W_o(self.merge(out)))

    def cut(self, x, count):
        return x.unflatten(-1, (count, -1)).transpose(1, 2)

    def offset(self, cache):
        return 0 if cache is None else len(cache)

    def rotated(self, q, k, v, offset):
        return self.turn(q, offset), self.turn(k, offset), v

    def turn(self, x, offset):
        return rotary_embedding(x, offset, self.base)

    def extended(self, q, k, v, cache):
        return q, *((k, v) if cache is None else cache.append(k, v))

    def mask(self, n, m):
        return causal_mask(n, m)

    def attend(self, q, k, v, mask):
        mask = None if mask is None else mask.to(q.device)
        return grouped_query_attention(q, k, v, mask=mask)

    def kept(self, weights):
        return weights.detach()

    def merge(self, out):
        return out.transpose(1, 2).flatten(2)

    def result(self, outputs):
        return outputs


def tiled(self, q, k, v, mask):
    times = q.shape[1] // k.shape[1]
    return grouped_query_attention(
        q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), None, mask
    )


@wrong("not_as_requested")
class HeadsByAnotherName(Almost):
    """`num_heads` is there during a call only."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.h = self.__dict__.pop("num_heads")

    def forward(self, x, cache=None):
        self.num_heads = self.h
        try:
            return super().forward(x, cache)
        finally:
            del self.num_heads


@wrong("not_as_requested")
class GroupsBeforeHeads(Almost):
    def __init__(self, embed_dim, num_groups, num_heads, base=10000.0, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, num_groups, base, device=device, dtype=dtype)


@wrong("wrong_values")
class SomethingBeforeBase(Almost):
    def __init__(
        self, embed_dim, num_heads, num_groups, dropout=0.0, base=10000.0, device=None, dtype=None
    ):
        super().__init__(embed_dim, num_heads, num_groups, base, device=device, dtype=dtype)


@wrong()
class RotatedAgain(Almost):
    """All keys are rotated in each call, although the cache holds rotated keys."""

    def forward(self, x, cache=None):
        q = self.cut(self.W_q(x), self.num_heads)
        k, v = self.cut(self.W_k(x), self.num_groups), self.cut(self.W_v(x), self.num_groups)
        k = self.turn(k, self.offset(cache))
        q = self.turn(q, self.offset(cache))
        _, k, v = self.extended(q, k, v, cache)
        k = self.turn(k, 0)
        out, weights = self.attend(q, k, v, self.mask(q.shape[2], k.shape[2]))
        self.attention_weights = weights.detach()
        return self.W_o(self.merge(out))


@wrong()
class CountsItself(Almost):
    """The position is kept in the module instead of being read from the cache."""

    read = 0

    def offset(self, cache):
        start = self.read if cache is not None else 0
        return start

    def extended(self, q, k, v, cache):
        self.read += q.shape[2] if cache is not None else 0
        return super().extended(q, k, v, cache)


@wrong()
class DeviceForgotten(Almost):
    def __init__(self, embed_dim, num_heads, num_groups, base=10000.0, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, num_groups, base, device=device)


@faulty("offset", "groups", "base")
def slips_of_a_module(faults):
    class Slips(Almost):
        def offset(self, cache):
            return 0 if "offset" in faults else super().offset(cache)

        def attend(self, q, k, v, mask):
            return (tiled if "groups" in faults else Almost.attend)(self, q, k, v, mask)

        def turn(self, x, offset):
            return rotary_embedding(x, offset, 10000.0 if "base" in faults else self.base)

    return Slips


@faulty("mask", "base")
def slips_of_a_mask(faults):
    class Slips(slips_of_a_module(faults)):
        def mask(self, n, m):
            return torch.ones(n, m).tril() > 0 if "mask" in faults else super().mask(n, m)

    return Slips
