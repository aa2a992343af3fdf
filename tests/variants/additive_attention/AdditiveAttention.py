"""Answers to `AdditiveAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib import additive_scores, masked_softmax
from course_lib.authoring.variants import faulty, right, wrong, wrong_in


class Almost(nn.Module):
    """A right module in steps; others change one of them."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.weigh(self.scores(queries, keys), valid_lens, mask)
        self.keep(weights)
        return self.outputs(weights, keys, values)

    def scores(self, queries, keys):
        return self.score(self.W_q(queries).unsqueeze(2), self.W_k(keys).unsqueeze(1))

    def score(self, q, k):
        return self.w_v(torch.tanh(q + k)).squeeze(-1)

    def weigh(self, scores, valid_lens, mask):
        return masked_softmax(scores, valid_lens, mask)

    def keep(self, weights):
        self.attention_weights = self.kept(weights)

    def kept(self, weights):
        return weights.detach()

    def outputs(self, weights, keys, values):
        return self.dropout(weights) @ values


def allowed(scores, valid_lens, mask):
    return masked_softmax(torch.zeros_like(scores), valid_lens, mask) > 0


@right
class WithLayers(Almost):
    def kept(self, weights):
        return weights.clone().detach()

    def outputs(self, weights, keys, values):
        return torch.einsum("bnm,bmv->bnv", self.dropout(weights), values)


@right
class FunctionalDropout(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, device=device, dtype=dtype)
        self.p = dropout

    def kept(self, weights):
        return weights.data

    def outputs(self, weights, keys, values):
        return F.dropout(weights, self.p, self.training) @ values


@right
class DropoutByHand(Almost):
    @torch.no_grad()
    def kept(self, weights):
        return weights * 1.0

    def outputs(self, weights, keys, values):
        p = self.dropout.p
        if self.training and p > 0:
            weights = weights * (torch.rand_like(weights) >= p) / (1 - p)
        return (weights.unsqueeze(-1) * values.unsqueeze(1)).sum(dim=2)


# wrong: layers


@wrong("parameters_in_forward")
class LayersMadeWhenCalled(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        nn.Module.__init__(self)
        self.num_hiddens = num_hiddens
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries, keys):
        self.W_q = nn.Linear(queries.shape[-1], self.num_hiddens, bias=False).to(queries)
        self.W_k = nn.Linear(keys.shape[-1], self.num_hiddens, bias=False).to(queries)
        self.w_v = nn.Linear(self.num_hiddens, 1, bias=False).to(queries)
        return super().scores(queries, keys)


@wrong("plain_tensors")
class TensorsAsWeights(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        nn.Module.__init__(self)
        self.W_q = torch.randn(num_hiddens, query_size, device=device, dtype=dtype) * 0.1
        self.W_k = torch.randn(num_hiddens, key_size, device=device, dtype=dtype) * 0.1
        self.w_v = torch.randn(num_hiddens, device=device, dtype=dtype) * 0.1
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries, keys):
        return additive_scores(queries, keys, self.W_q, self.W_k, self.w_v)


@wrong("extra_parameters")
class DefaultBias(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, device=device, dtype=dtype)
        self.W_q = nn.Linear(query_size, num_hiddens, device=device, dtype=dtype)


@wrong("parameter_shape")
class SizesInTheWrongOrder(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(key_size, query_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong()
class Frozen(WithLayers):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.w_v.requires_grad_(False)


@wrong()
class NoModule:
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return values


# wrong: arguments


@wrong()
class LengthsOnly(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


@wrong()
class DropsByDefault(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.1, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong("no_forward")
class CalledAsInKeras(Almost):
    call, forward = Almost.forward, nn.Module.forward


# wrong in one step


def filled(scores, given, number=-math.inf):
    return scores.masked_fill(~allowed(scores, *given), number)


but = wrong_in(Almost)
TanhByHand = but(
    score=lambda self, q, k: self.w_v(
        ((q + k).exp() - (-q - k).exp()) / ((q + k).exp() + (-q - k).exp())
    ).squeeze(-1)
)
EmptyRowsBeforeCombining = but(
    weigh=lambda self, s, lens, m: torch.where(
        allowed(s, lens, None).any(-1, keepdim=True) & allowed(s, None, m).any(-1, keepdim=True),
        filled(s, (lens, m)).softmax(-1),
        0.0,
    )
)


class Faulty(Almost):
    faults = ()

    def score(self, q, k):
        return self.w_v(q + k if "no tanh" in self.faults else (q + k).tanh()).squeeze(-1)

    def weigh(self, scores, valid_lens, mask):
        lens = None if "lengths ignored" in self.faults else valid_lens
        weights = masked_softmax(scores, lens, None if "mask ignored" in self.faults else mask)
        if "empty rows are NaN" in self.faults:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights

    def kept(self, weights):
        return weights if "graph kept" in self.faults else weights.detach()

    def outputs(self, weights, keys, values):
        return (weights if "nothing dropped" in self.faults else self.dropout(weights)) @ values


@faulty("no tanh", "mask ignored", "empty rows are NaN", "graph kept")
def with_faults(faults):
    return type("Module", (Faulty,), {"faults": faults})
