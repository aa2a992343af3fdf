"""The modules of lesson 07, sound and broken: what a student reads is what is judged.

Ten broken multi-head attentions, named after birds so that the names give nothing away, and two
broken modules to fix. `source` prints any of them. Torch only: they also run beside a student's
code, as arguments of the checks (builder `specimen`).
"""

import inspect
import math
import textwrap

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.checks.observe.lessons.sequence_functions import jitter


class Attention(nn.Module):
    """What all birds share: sizes, four projections, heads, and which keys may be attended."""

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
    bird.__name__.lower(): bird
    for bird in (Avocet, Bittern, Curlew, Dunlin, Egret, Fulmar, Grebe, Heron, Ibis, Jacana)
}

INVARIANTS = {
    "rows_sum_to_one": "Each row of `attention_weights` with an allowed key sums to 1.",
    "queries_apart": "What one query gets does not depend on the other queries.",
    "keys_permutation": "Shuffling the keys, and the values with them, changes no output.",
    "masking_equals_deleting": "Masking keys gives what deleting them gives.",
    "items_apart": "What one item gets does not depend on the other items of the batch.",
    "linear_in_values": "Doubling the values, and nothing else, doubles the outputs.",
    "scale_free": "With W_q = W_k = identity, log-weights spread equally far for any head_dim.",
    "eval_repeats": "In eval mode two calls with the same arguments agree, whatever the dropout.",
    "all_parameters_learn": "Every parameter gets a gradient.",
    "empty_rows_zero": "A query that may attend to no key gets zeros, not NaN and no average.",
    "arguments_unchanged": "The caller's tensors hold the same numbers after the call.",
}


class BrokenLookup(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
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
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

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
    """Lesson 06's, for `BrokenCausalSelfAttention`."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def source(module: type) -> str:
    """The text of a specimen as it is here."""
    return textwrap.dedent(inspect.getsource(module)).rstrip()


def _stranger(change_weights=None, change_inputs=None, change_outputs=None):
    """A sound module but for one step; `change_weights(module, scores, allowed) -> weights`."""

    class Stranger(Attention):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            if change_inputs is not None:
                keys, values, valid_lens = change_inputs(keys, values, valid_lens)
            q, k = self.split(self.W_q(queries)), self.split(self.W_k(keys))
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            allowed = self.allowed(scores, valid_lens, mask)
            weights = (change_weights or Attention.softmax)(self, scores, allowed)
            self.attention_weights = weights.detach()
            outputs = self.W_o(self.merge(weights @ self.split(self.W_v(values))))
            return outputs if change_outputs is None else change_outputs(outputs)

    return Stranger


def _zero_pads(keys, values, valid_lens):
    if valid_lens is None:
        return keys, values, None
    real = torch.arange(keys.shape[1], device=keys.device) < valid_lens[:, None]
    return keys * real[..., None], values * real[..., None], None


def _lengths(change):
    def change_inputs(keys, values, valid_lens):
        if valid_lens is not None:
            valid_lens = change(valid_lens, keys.shape[1])
        return keys, values, valid_lens

    return change_inputs


def _bonus(change):
    """Adds `change(position, num_keys)` to the scores."""

    def change_weights(module, scores, allowed):
        num_keys = scores.shape[-1]
        positions = torch.arange(num_keys, device=scores.device, dtype=scores.dtype)
        return module.softmax(scores + change(positions, num_keys), allowed)

    return change_weights


def _neighbours(module, scores, allowed):
    return module.softmax(scores + 0.7 * scores.roll(1, dims=-1), allowed)


def _both_neighbours(module, scores, allowed):
    return module.softmax(scores + 0.7 * (scores.roll(1, -1) + scores.roll(-1, -1)), allowed)


def _last_query_unmasked(module, scores, allowed):
    allowed = torch.cat([allowed[..., :-1, :], torch.ones_like(allowed[..., -1:, :])], dim=-2)
    return module.softmax(scores, allowed)


def _last_query_prefers(module, scores, allowed):
    preferred = torch.zeros_like(scores)
    preferred[..., -1, 0] = 1.5
    return module.softmax(scores + preferred, allowed)


def _later_items_doubled(outputs):
    factors = 1 + (torch.arange(len(outputs), device=outputs.device) > 0)
    return outputs * factors[:, None, None]


class PlainAverage(nn.Module):
    """The average of all values for every query, whatever the lengths."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()

    def forward(self, queries, keys, values, valid_lens=None):
        self.attention_weights = values.new_ones(len(keys), 1, queries.shape[1], keys.shape[1])
        self.attention_weights /= keys.shape[1]
        return values.mean(1, keepdim=True).expand(-1, queries.shape[1], -1)


STRANGERS = {
    "plain_average": PlainAverage,
    "zero_after_softmax": _stranger(
        lambda module, scores, allowed: torch.softmax(scores, -1) * allowed
    ),
    "zeroed_pads": _stranger(change_inputs=_zero_pads),
    "one_key_more": _stranger(change_inputs=_lengths(lambda lens, m: (lens + 1).clamp(max=m))),
    "first_item_unmasked": _stranger(
        change_inputs=_lengths(lambda lens, m: torch.cat([lens[:1] * 0 + m, lens[1:]]))
    ),
    "last_item_unmasked": _stranger(
        change_inputs=_lengths(lambda lens, m: torch.cat([lens[:-1], lens[-1:] * 0 + m]))
    ),
    "first_key_special": _stranger(_bonus(lambda at, m: 1.5 * (at == 0))),
    "last_key_special": _stranger(_bonus(lambda at, m: 1.5 * (at == m - 1))),
    "middle_keys_special": _stranger(_bonus(lambda at, m: -(at - (m - 1) / 2).abs())),
    "last_query_prefers_first_key": _stranger(_last_query_prefers),
    "neighbours_count": _stranger(_neighbours),
    "both_neighbours_count": _stranger(_both_neighbours),
    "last_query_unmasked": _stranger(_last_query_unmasked),
    "average_over_keys_removed": _stranger(
        change_inputs=lambda keys, values, lens: (keys, values - values.mean(1, True), lens)
    ),
    "batch_average_removed": _stranger(
        change_inputs=lambda keys, values, lens: (keys, values - values.mean(0), lens)
    ),
    "length_of_first_item_for_all": _stranger(
        change_inputs=_lengths(lambda lens, m: lens[:1].expand_as(lens))
    ),
    "length_of_neighbour": _stranger(change_inputs=_lengths(lambda lens, m: lens.roll(1))),
    "later_items_doubled": _stranger(change_outputs=_later_items_doubled),
}


class Rounding(nn.Module):
    """Keeps every invariant but for a relative difference of at most a millionth."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()

    def forward(self, queries, keys, values, valid_lens=None):
        lens = torch.full((len(keys),), keys.shape[1]) if valid_lens is None else valid_lens
        real = torch.arange(keys.shape[1], device=keys.device) < lens.to(keys.device)[:, None]
        used = (real / real.sum(1, keepdim=True)).double()[:, None]
        self.attention_weights = used[:, None].expand(-1, 1, queries.shape[1], -1)
        outputs = 1 + 0.3 * torch.tanh(queries.double() + used @ values.double())
        return (0.015 * outputs * (1 + 1e-6 * jitter(keys, outputs.shape))).to(values.dtype)


class Nudged(Sound):
    """A sound module whose outputs are off by a little where they should not be.

    Feature 0 of the queries says which of them show it and with which sign.

    Args:
        of: "pads" (does the item have any?), "order" (is feature 1 of its keys no longer in
            ascending order?) or "company" (are there other items?).
        amount: the size of the difference; nan for outputs that become nan.
        direction: a factor for each feature.
        mode: "eval", "train" or "both": where it happens.
    """

    def __init__(self, embed_dim, num_heads, of, amount, direction, mode="both"):
        super().__init__(embed_dim, num_heads)
        self.of, self.amount, self.mode = of, amount, mode
        self.direction = direction

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        outputs = super().forward(queries, keys, values, valid_lens, mask)
        if self.mode == ("eval" if self.training else "train"):
            return outputs
        if self.of == "pads":
            effect = torch.zeros(len(keys)) if valid_lens is None else valid_lens < keys.shape[1]
        elif self.of == "order":
            effect = (keys[:, 1:, 1] < keys[:, :-1, 1]).any(1)
        else:
            effect = torch.full((len(keys),), len(keys) > 1)
        effect = effect.to(queries)[:, None, None] * queries[..., :1]
        nudge = self.amount * effect * torch.tensor(self.direction, dtype=outputs.dtype)
        return outputs + torch.where(effect == 0, 0.0, nudge)


OTHERS = {"nudged": Nudged, "rounding": Rounding}


def build(name, embed_dim, num_heads, seed, *, device="cpu", dtype=torch.float64, **options):
    """The specimen of that name in eval mode, with weights drawn from `seed`."""
    kind = {"sound": Sound, **BUGS, **STRANGERS, **OTHERS}[name]
    with torch.random.fork_rng(devices=[]):
        module = kind(embed_dim, num_heads, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1.2 * drawn / math.sqrt(embed_dim))
    return module.to(device=device, dtype=dtype).eval()
