"""Answers to `Lookup`, as different hands would write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Layers(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)


def real_keys(keys, valid_lens):
    if valid_lens is None:
        return torch.ones(len(keys), 1, keys.shape[1], dtype=torch.bool, device=keys.device)
    at = torch.arange(keys.shape[1], device=keys.device)
    return (at < valid_lens.reshape(-1, 1)).unsqueeze(1)


@right
class FilledAndZeroed(Layers):
    def forward(self, queries, keys, values, valid_lens=None):
        scores = self.W_q(queries) @ self.W_k(keys).transpose(1, 2)
        scores = scores * self.W_q.out_features**-0.5
        real = real_keys(keys, valid_lens)
        weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(-1) * real
        self.attention_weights = weights.detach()
        return torch.bmm(self.dropout(weights), values)


@right
class ExponentialsMasked(Layers):
    def forward(self, queries, keys, values, valid_lens=None):
        scores = torch.einsum("bnh,bmh->bnm", self.W_q(queries), self.W_k(keys))
        scores = scores / math.sqrt(self.W_q.weight.shape[0])
        real = real_keys(keys, valid_lens)
        lowered = scores.masked_fill(~real, torch.finfo(scores.dtype).min)
        e = torch.exp(lowered - lowered.amax(-1, keepdim=True).detach()) * real
        weights = e / e.sum(-1, keepdim=True).clamp(min=1e-30)
        self.attention_weights = weights.detach().clone()
        return torch.einsum("bnm,bmv->bnv", self.dropout(weights), values)


@right
class ItemByItem(Layers):
    def forward(self, queries, keys, values, valid_lens=None):
        lengths = [keys.shape[1]] * len(keys) if valid_lens is None else valid_lens.tolist()
        q, k = self.W_q(queries), self.W_k(keys)
        rows = []
        for b, n in enumerate(lengths):
            w = (q[b] @ k[b, :n].T / q.shape[-1] ** 0.5).softmax(-1)
            rows.append(F.pad(w, (0, keys.shape[1] - n)))
        weights = torch.stack(rows)
        self.attention_weights = weights.data
        return F.dropout(weights, self.dropout.p, training=self.training) @ values


class Almost(Layers):
    """A right module in steps; what follows changes one of them."""

    def forward(self, queries, keys, values, valid_lens=None):
        q, k = self.W_q(queries), self.W_k(keys)
        scores = q @ k.mT / self.root(queries, q, k)
        weights = self.weights(scores, real_keys(keys, valid_lens))
        self.keep(weights)
        return self.outputs(weights, values)

    def root(self, queries, q, k):
        return math.sqrt(q.shape[-1])

    def weights(self, scores, real):
        return scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(-1) * real

    def keep(self, weights):
        self.attention_weights = weights.detach()

    def outputs(self, weights, values):
        return self.dropout(weights) @ values


@wrong("input_mutated")
class ZeroesPads(Almost):
    def outputs(self, weights, values):
        if not values.requires_grad:
            values *= (weights > 0).any(1)[..., None]
        return super().outputs(weights, values)


def with_the_faults(faults):
    """`BrokenLookup`, repaired but for the named faults."""

    class Repaired(Almost):
        def root(self, queries, q, k):
            return math.sqrt(queries.shape[-1] if "root" in faults else q.shape[-1])

        def weights(self, scores, real):
            if "mask_after" not in faults:
                scores = scores.masked_fill(~real, torch.finfo(scores.dtype).min)
            return torch.softmax(scores, 1 if "axis" in faults else 2) * real

        def outputs(self, weights, values):
            training = self.training or "eval_mode" in faults
            return torch.bmm(F.dropout(weights, self.dropout.p, training), values)

    return Repaired


but = wrong_in(Almost)
LargestNumberSubtracted = but(
    "dropped_key_has_weight",
    weights=lambda self, s, real: (
        torch.where(real, s, s - torch.finfo(s.dtype).max).softmax(-1) * real.any(-1, keepdim=True)
    ),
)


@faulty("root", "mask_after", "eval_mode")
def mended_in_part(faults):
    return with_the_faults(faults)
