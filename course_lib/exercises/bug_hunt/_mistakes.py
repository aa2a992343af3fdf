"""Wrong models of lesson 07: tests that let a broken module pass, and modules half fixed."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def same(a, b, tolerance=1e-5):
    return bool(a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance))


def constant(answer):
    return lambda *args: answer


# ---------------------------------------------------------------- masking_equals_deleting
def masking(
    delete=lambda x, length: x[:, :length],
    tolerance=1e-5,
    items=slice(None),
    queries=slice(None),
):
    """A test by deleting; `delete(x, length)` is done to keys and values."""

    def test(module, all_queries, keys, values, valid_lens):
        masked = module(all_queries, keys, values, valid_lens)
        for b in range(len(all_queries))[items]:
            item, length = slice(b, b + 1), int(valid_lens[b])
            shorter = [delete(x[item], length) for x in (keys, values)]
            deleted = module(all_queries[item], *shorter)
            if not same(masked[item, queries], deleted[:, queries], tolerance):
                return False
        return True

    return test


def zero_after(x, length):
    return torch.cat([x[:, :length], torch.zeros_like(x[:, length:])], dim=1)


def masking_by_weights(module, queries, keys, values, valid_lens):
    module(queries, keys, values, valid_lens)
    masked = module.attention_weights
    for b, length in enumerate(valid_lens.tolist()):
        item = slice(b, b + 1)
        module(queries[item], keys[item, :length], values[item, :length])
        if not same(masked[item, ..., :length], module.attention_weights):
            return False
    return True


# ---------------------------------------------------------------- keys_permutation_invariant
def permuting(*orders, of=(1, 2), axis=1, tolerance=1e-5, items=slice(None), queries=slice(None)):
    """A test with the given orders, `order(num_keys) -> list`, of arguments 0, 1 or 2."""

    def test(module, *inputs):
        outputs = module(*inputs)[items, queries]
        for order in orders:
            index = torch.tensor(order(inputs[1].shape[axis]))
            other = [x.index_select(axis, index) if i in of else x for i, x in enumerate(inputs)]
            if not same(module(*other)[items, queries], outputs, tolerance):
                return False
        return True

    return test


def roll(count):
    return [*range(1, count), 0]


def flip(count):
    return list(range(count))[::-1]


# ---------------------------------------------------------------- batch_items_independent
def alone(items=slice(None), lengths="item", pick=lambda module, outputs: outputs, tolerance=1e-5):
    """A test item by item; `lengths` says which lengths the item gets when it is alone."""

    def test(module, queries, keys, values, valid_lens):
        if lengths == "never":
            together = pick(module, module(queries, keys, values))
        else:
            together = pick(module, module(queries, keys, values, valid_lens))
        for b in range(len(queries))[items]:
            item = slice(b, b + 1)
            given = {"item": (valid_lens[item],), "all": (valid_lens,)}.get(lengths, ())
            outputs = module(queries[item], keys[item], values[item], *given)
            if not same(pick(module, outputs), together[item], tolerance):
                return False
        return True

    return test


# ---------------------------------------------------------------- Lookup
class LookupSteps(nn.Module):
    """`Lookup` in steps that can be replaced one at a time."""

    bias = False

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=self.bias)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=self.bias)
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None):
        q, k = self.W_q(queries), self.W_k(keys)
        scores = q @ k.mT / self.scale(queries, keys, q)
        real = torch.ones_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            lens = self.lengths(valid_lens)
            real = (torch.arange(keys.shape[1]) < lens[:, None])[:, None].expand_as(scores)
        self.scores = scores.detach()
        weights = self.normalise(scores, real)
        used = self.drop(weights)
        self.keep(weights, used)
        return self.finish(used, values)

    def lengths(self, valid_lens):
        return valid_lens

    def finish(self, weights, values):
        return weights @ values

    def scale(self, queries, keys, q):
        return math.sqrt(q.shape[-1])

    def normalise(self, scores, real):
        return right_softmax(scores, real)

    def drop(self, weights):
        return F.dropout(weights, self.p, self.training)

    def keep(self, weights, used):
        self.attention_weights = weights.detach()


def right_softmax(scores, real):
    empty = ~real.any(-1, keepdim=True)
    filled = scores.masked_fill(~real, -math.inf).masked_fill(empty, 0.0)
    return torch.softmax(filled, -1).masked_fill(empty, 0.0)


def lookup(**steps):
    """A `Lookup` that is right but for the given steps."""
    return type("Lookup", (LookupSteps,), steps)


def thinned(self, x):
    return F.dropout(x, self.p, self.training)


def dropped_twice(self, weights):
    return thinned(self, thinned(self, weights))


def normalised_again(self, weights):
    dropped = thinned(self, weights)
    return dropped / dropped.sum(-1, keepdim=True).clamp_min(1e-9) if self.training else dropped


def not_dropped(self, weights):
    return weights


def real_in_eval_mode(self, scores, real):
    return right_softmax(scores, torch.ones_like(real) if self.training else real)


def keep_scores(self, weights, used):
    self.attention_weights = self.scores


class LookupRemembers(LookupSteps):
    """Keeps the weights of its first call."""

    def keep(self, weights, used):
        if not hasattr(self, "attention_weights"):
            self.attention_weights = weights.detach()


def by_query_size(self, queries, keys, q):
    return math.sqrt(queries.shape[-1])


def over_the_queries(self, scores, real):
    return torch.softmax(scores.masked_fill(~real, -math.inf), 1).nan_to_num(0.0)


def zero_afterwards(self, scores, real):
    return torch.softmax(scores, -1) * real


def filled_with(value):
    return lambda self, scores, real: torch.softmax(scores.masked_fill(~real, value), -1)


def always_dropping(self, weights):
    return F.dropout(weights, self.p)


# ---------------------------------------------------------------- CausalSelfAttention
class CausalSteps(nn.Module):
    """`CausalSelfAttention` in steps that can be replaced one at a time."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x, valid_lens=None):
        q, k, v = self.heads(self.W_qkv(x))
        scores = q @ k.mT / self.scale(q, x)
        self.scores = scores.detach()
        allowed = self.past(x.shape[1]).expand(scores.shape)
        if valid_lens is not None:
            allowed = self.real(allowed, valid_lens)
        weights = self.normalise(scores, allowed)
        self.keep(weights)
        return self.result(self.finish(self.merge(weights @ v), x), valid_lens)

    def result(self, outputs, valid_lens):
        return outputs

    def heads(self, projected):
        return [self.split(part) for part in projected.chunk(3, dim=-1)]

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def scale(self, q, x):
        return math.sqrt(q.shape[-1])

    def past(self, n):
        return torch.ones(n, n, dtype=torch.bool).tril()

    def real(self, allowed, valid_lens):
        return allowed & (torch.arange(allowed.shape[-1]) < valid_lens[:, None])[:, None, None]

    def normalise(self, scores, allowed):
        return right_softmax(scores, allowed)

    def keep(self, weights):
        self.attention_weights = weights.detach()

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def finish(self, merged, x):
        return self.W_o(merged)


def causal(**steps):
    """A `CausalSelfAttention` that is right but for the given steps."""
    return type("CausalSelfAttention", (CausalSteps,), steps)


def merge_without_transpose(self, x):
    return x.reshape(x.shape[0], x.shape[2], -1)


def split_without_transpose(self, x):
    return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


def thirds(order):
    """Heads from the three parts of the projection, named in the order in which they are read."""

    def heads(self, projected):
        parts = dict(zip("qkv", projected.chunk(3, dim=-1), strict=True))
        return [self.split(parts[name]) for name in order]

    return heads


def thirds_in_turn(self, projected):
    return [self.split(part) for part in projected.unflatten(-1, (-1, 3)).unbind(-1)]


def split_in_turn(self, x):
    return x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)


def merge_in_turn(self, x):
    return x.permute(0, 2, 3, 1).flatten(2)


def either(self, allowed, valid_lens):
    return allowed | CausalSteps.real(self, torch.ones_like(allowed), valid_lens)


def tiled_lengths(self, allowed, valid_lens):
    lens = valid_lens.repeat(self.num_heads).reshape(allowed.shape[:2])
    return allowed & (torch.arange(allowed.shape[-1]) < lens[..., None, None])


def past_after_softmax(self, scores, allowed):
    return torch.softmax(scores, -1) * allowed


def filled(value):
    return lambda self, scores, allowed: torch.softmax(scores.masked_fill(~allowed, value), -1)


def pads_zeroed(self, outputs, valid_lens):
    if valid_lens is None:
        return outputs
    return outputs * (torch.arange(outputs.shape[1]) < valid_lens[:, None])[..., None]


class CausalRemembers(CausalSteps):
    """Keeps the lengths of its first call."""

    def real(self, allowed, valid_lens):
        if not hasattr(self, "first") or self.first.shape != valid_lens.shape:
            self.first = valid_lens.clone()
        return super().real(allowed, self.first)


def upper(self, n):
    return torch.ones(n, n, dtype=torch.bool).triu()


def strict(self, n):
    return torch.ones(n, n, dtype=torch.bool).tril(-1)


def heads_before_thirds(self, projected):
    return self.split(projected).chunk(3, dim=-1)


def nan_in_empty_rows(self, scores, allowed):
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)


def over_queries(self, scores, allowed):
    return torch.softmax(scores.masked_fill(~allowed, -math.inf), -2).nan_to_num(0.0)
