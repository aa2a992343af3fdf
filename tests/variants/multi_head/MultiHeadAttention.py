"""Answers to `MultiHeadAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Base(nn.Module):
    """What most answers share: four layers and the arguments' names."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.h, self.d = num_heads, embed_dim // num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)


def permitted(valid_lens, mask, batch, n, m, device):
    """Bool (B, h or 1, n, m)."""
    ok = torch.ones(batch, 1, n, m, dtype=torch.bool, device=device)
    if valid_lens is not None:
        lens = valid_lens.reshape(batch, 1, -1, 1)
        ok = ok & (torch.arange(m, device=device) < lens)
    if mask is not None:
        ok = ok & (mask[:, None] if mask.ndim == 3 else mask)
    return ok


def filled(scores, ok, number=-math.inf):
    return scores.masked_fill(~ok, number)


def safe_softmax(scores, ok):
    nobody = ~ok.any(-1, keepdim=True)
    scores = scores.masked_fill(~ok, -math.inf).masked_fill(nobody, 0.0)
    return scores.softmax(-1).masked_fill(nobody, 0.0)


@right
class LoopOverHeads(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        ok = permitted(valid_lens, mask, len(q), q.shape[1], k.shape[1], k.device)
        ok = ok.expand(-1, self.h, -1, -1)
        outputs, kept = [], []
        for i in range(self.h):
            block = slice(i * self.d, (i + 1) * self.d)
            scores = torch.bmm(q[..., block], k[..., block].transpose(1, 2)) / math.sqrt(self.d)
            weights = safe_softmax(scores, ok[:, i])
            kept.append(weights.detach())
            outputs.append(torch.bmm(self.dropout(weights), v[..., block]))
        self.attention_weights = torch.stack(kept, dim=1)
        return self.W_o(torch.cat(outputs, dim=-1))


@right
class FoldedHeads(Base):
    def fold(self, x):
        x = x.reshape(x.shape[0], x.shape[1], self.h, -1).permute(0, 2, 1, 3)
        return x.reshape(-1, x.shape[2], x.shape[3])

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.fold(self.W_q(queries))
        k, v = self.fold(self.W_k(keys)), self.fold(self.W_v(values))
        n, m = q.shape[1], k.shape[1]
        ok = torch.ones(len(q), n, m, dtype=torch.bool, device=q.device)
        if valid_lens is not None:
            lens = valid_lens.repeat_interleave(self.h, dim=0)
            lens = lens[:, None] if lens.dim() == 1 else lens
            ok &= torch.arange(m, device=q.device) < lens[:, :, None]
        if mask is not None:
            if mask.dim() == 3:
                mask = mask.repeat_interleave(self.h, dim=0)
            elif mask.dim() == 4:
                mask = mask.flatten(0, 1)
            ok &= mask
        weights = safe_softmax(q @ k.transpose(1, 2) / self.d**0.5, ok)
        self.attention_weights = weights.detach().unflatten(0, (-1, self.h))
        out = self.dropout(weights) @ v
        out = out.reshape(-1, self.h, n, self.d).permute(0, 2, 1, 3)
        return self.W_o(out.reshape(len(queries), n, -1))


class Almost(Base):
    """A right module in steps; what follows changes one of them."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (self.split(x) for x in self.project(queries, keys, values))
        ok = self.ok(*self.given(valid_lens, mask), len(q), q.shape[2], k.shape[2])
        weights = self.softmax(self.score(q, k), ok)
        self.keep(weights)
        return self.last(self.merge(self.used(weights) @ v))

    def project(self, queries, keys, values):
        return self.W_q(queries), self.W_k(keys), self.W_v(values)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def given(self, valid_lens, mask):
        return valid_lens, mask

    def ok(self, valid_lens, mask, batch, n, m):
        return permitted(valid_lens, mask, batch, n, m, self.W_q.weight.device)

    def score(self, q, k):
        return q @ k.mT / math.sqrt(self.d)

    def softmax(self, s, ok):
        return safe_softmax(s, ok)

    def keep(self, weights):
        self.attention_weights = self.kept(weights)

    def kept(self, weights):
        return weights.detach()

    def used(self, weights):
        return self.dropout(weights)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def last(self, x):
        return self.W_o(x)


@right
class OutputsAddedUp(Almost):
    def merge(self, x):
        return x.unbind(1)

    def last(self, heads):
        blocks = self.W_o.weight.chunk(self.h, dim=1)
        outputs = sum(F.linear(x, block) for x, block in zip(heads, blocks, strict=True))
        return outputs if self.W_o.bias is None else outputs + self.W_o.bias


# wrong: layers and arguments


@wrong("missing_parameter")
class Packed(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)


@wrong()
class TwoHeadsAlways(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__(
            embed_dim, 2 if embed_dim % 2 == 0 else 1, dropout, bias, device=device, dtype=dtype
        )


# wrong in one step


@wrong()
class RemembersTheKeys(Almost):
    def project(self, queries, keys, values):
        if not hasattr(self, "seen") or self.seen.shape != keys.shape:
            self.seen = self.W_k(keys)
        return self.W_q(queries), self.seen, self.W_v(values)


@wrong("cpu_tensor")
class MaskOnTheCpu(Almost):
    def ok(self, valid_lens, mask, batch, n, m):
        return permitted(valid_lens, mask, batch, n, m, device=None)


@wrong("input_mutated")
class MaskOfItemsChanged(Almost):
    def ok(self, valid_lens, mask, b, n, m):
        if mask is not None and valid_lens is not None and mask.dim() == 3:
            mask &= torch.arange(m) < valid_lens.reshape(b, -1, 1)
            return mask[:, None]
        return permitted(valid_lens, mask, b, n, m, self.W_q.weight.device)


but = wrong_in(Almost)
LargestNumberSubtracted = but(
    "dropped_key_has_weight",
    softmax=lambda self, s, ok: (
        torch.where(ok, s, s - torch.finfo(s.dtype).max).softmax(-1) * ok.any(-1, keepdim=True)
    ),
)
DropsOutputs = but(
    "dropout_on_output", used=lambda self, w: w, last=lambda self, x: self.dropout(self.W_o(x))
)


@wrong()
class MaskOfAnEarlierCall(LoopOverHeads):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        self.mask = mask = getattr(self, "mask", None) if mask is None else mask
        return super().forward(queries, keys, values, valid_lens, mask)


@faulty("merged by reshape", "not scaled", "mask ignored", "empty rows are NaN")
def with_masks(faults):
    class Module(Almost):
        def given(self, valid_lens, mask):
            return valid_lens, None if "mask ignored" in faults else mask

        def score(self, q, k):
            return q @ k.mT / (1 if "not scaled" in faults else math.sqrt(self.d))

        def softmax(self, s, ok):
            return (
                filled(s, ok).softmax(-1) if "empty rows are NaN" in faults else safe_softmax(s, ok)
            )

        def merge(self, x):
            x = x if "merged by reshape" in faults else x.transpose(1, 2)
            return x.reshape(len(x), -1, self.h * self.d)

    return Module
