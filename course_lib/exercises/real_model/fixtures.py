"""Lesson 11: caches that fill up, texts that are read in pieces, and a small model of the kind."""

import itertools

import torch
from torch import nn

from course_lib.checks.observe.scenarios import NotAsRequested, builder, in_dtype, scenario


@scenario
def cache_filled(target, probe, args, kwargs):
    """Fill a cache in parts, and return the last result and the length after each part."""
    return _fill(target, *args.values())


@scenario
def two_caches_filled(target, probe, args, kwargs):
    """Run `cache_filled` while a second cache is filled with other positions."""
    keys, values, appended = args.values()
    other = target()
    return _fill(target, keys, values, appended, lambda: other.append(keys + 1, 2 - values))


def _fill(new_cache, keys, values, appended, between=lambda: None):
    other = new_cache()
    if not hasattr(other, "__len__"):
        raise NotAsRequested(
            "Your class has no `__len__`.", "What must `len(cache)` return after each `append`?"
        )
    if not len(other):
        other.append(keys[:, :, :1].clone(), values[:, :, :1].clone())
    cache, found, parts = new_cache(), None, []
    lengths = [len(cache)]
    if lengths[0]:
        raise NotAsRequested(
            f"After `append` on another cache, the length of a new one is {lengths[0]} instead of "
            "0.",
            "Do two caches use the same name of the class or the same default argument?",
        )
    for start, end in itertools.pairwise([0, *itertools.accumulate(appended)]):
        parts.append((keys[:, :, start:end], values[:, :, start:end]))
        found = cache.append(*parts[-1])
        lengths.append(len(cache))
        between()
    for (part, other), size in zip(parts, appended, strict=True):
        if part.shape[2] != size or other.shape[2] != size:
            keys.zero_()  # mark the changed argument
    if found is not None and not (isinstance(found, tuple | list) and len(found) == 2):
        got = f"{len(found)} results" if isinstance(found, tuple | list) else "a single result"
        raise NotAsRequested(
            f"Your `append` returned {got}.", "Which two tensors does the statement ask for?"
        )
    if found is None:
        return None
    return *found, torch.tensor(lengths, device=keys.device)


class FilledFrom:
    """The positions so far, which begin with those of two given tensors."""

    def __init__(self, keys, values):
        self.so_far = keys, values

    def __len__(self):
        return self.so_far[0].shape[2]

    def append(self, *new):
        pairs = zip(self.so_far, new, strict=True)
        self.so_far = tuple(torch.cat(pair, dim=2) for pair in pairs)
        return self.so_far


def _empty_cache(probe, x):
    sizes = probe.construct
    head_dim = sizes["embed_dim"] // sizes["num_heads"]
    return FilledFrom(*[x.new_zeros(len(x), sizes["num_groups"], 0, head_dim)] * 2)


def _read(pieces, x, read):
    """Return `read(piece)` for each piece of the positions, joined, or the first oddity."""
    outputs = []
    for start, end in itertools.pairwise([0, *itertools.accumulate(pieces)]):
        outputs.append(read(x[:, start:end]))
    odd = (part for part in outputs if not torch.is_tensor(part) or part.dim() != 3)
    for part in odd:
        return part
    return torch.cat(outputs, dim=1)


@scenario
def in_pieces(target, probe, args, kwargs):
    """Give a module the positions of `x` piece by piece, with a cache."""
    x, pieces = args.values()
    cache = _empty_cache(probe, x)
    return _read(pieces, x, lambda piece: target(piece, cache))


@scenario
def equal_positions_in_pieces(target, probe, args, kwargs):
    """Run `in_pieces` on equal vectors, whose keys in the cache differ only by their rotation."""
    x, pieces = args.values()
    cache = _empty_cache(probe, x)
    outputs = _read(pieces, x, lambda piece: target(piece, cache))
    keys, first = cache.so_far[0], target.W_k(x[:, 0])
    if len(cache) and not torch.allclose(keys[:, :, 0].flatten(1), first, atol=1e-4):
        raise NotAsRequested(
            "At position 0 no key is rotated, so the first key in your cache must be that of "
            "`W_k(x)`. Yours differs.",
            "What do you append as keys, and which position does the first row of `x` have?",
        )
    if len(cache) > 1 and torch.allclose(keys, keys[:, :, :1]):
        raise NotAsRequested(
            "Equal vectors at several positions have equal entries among the keys of your cache, "
            "so what you store as keys is not rotated.",
            "Which comes first, the rotation or `append`?",
        )
    return outputs


@scenario
def two_texts_in_turn(target, probe, args, kwargs):
    """Run `in_pieces` while the module reads another text with another cache, and without one."""
    x, pieces = args.values()
    cache, second = _empty_cache(probe, x), _empty_cache(probe, x)

    def read(piece):
        target(1 - piece, second)
        target(x.flip(1))
        return target(piece, cache)

    return _read(pieces, x, read)


@scenario
def with_num_heads_kept(target, probe, args, kwargs):
    """Call a module that must have kept the number of its heads."""
    kept, wanted = getattr(target, "num_heads", None), probe.construct["num_heads"]
    if type(kept) is not int or kept != wanted:
        is_number = isinstance(kept, int | float)
        raise NotAsRequested(
            f"It is {kept} instead of {wanted}." if is_number else "Yours does not.",
            "What does your `__init__` assign to `self.num_heads`?",
        )
    return target(*args.values())


class SumSoFar:
    """The sum and the number of the positions so far, the cache of `MeanSoFar`."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def __len__(self):
        return self.count  # an empty cache counts as False, as a KVCache does


class MeanSoFar(nn.Module):
    """A causal module that returns the mean of all positions up to each one, times a parameter."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, cache=None):
        if x.dim() != 3:
            raise ValueError(f"`x` must have shape (B, n, D); got {tuple(x.shape)}.")
        if cache is None:
            cache = SumSoFar()
        elif not isinstance(cache, SumSoFar):
            raise TypeError(f"`cache` must be one of `caches`; got {type(cache).__name__}.")
        sums = cache.total + x.cumsum(1)
        counts = cache.count + torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        cache.total, cache.count = sums[:, -1:], cache.count + x.shape[1]
        return self.scale * sums / counts[:, None]


class SwiGLU(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        self.gate = nn.Linear(embed_dim, hidden_dim, bias=False)
        self.up = nn.Linear(embed_dim, hidden_dim, bias=False)
        self.down = nn.Linear(hidden_dim, embed_dim, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, attention, embed_dim, hidden_dim):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(embed_dim, 1e-5), nn.RMSNorm(embed_dim, 1e-5)
        self.attention, self.feed_forward = attention, SwiGLU(embed_dim, hidden_dim)

    def forward(self, x, cache):
        x = x + self.attention(self.norm_1(x), cache)
        return x + self.feed_forward(self.norm_2(x))


class SmallModel(nn.Module):
    """A language model with RMSNorm and SwiGLU."""

    def __init__(self, state, new_attention):
        super().__init__()
        num_tokens, embed_dim = state["tokens.weight"].shape
        hidden_dim = len(state["blocks.0.feed_forward.up.weight"])
        self.tokens = nn.Embedding(num_tokens, embed_dim)
        self.norm = nn.RMSNorm(embed_dim, 1e-5)
        self.blocks = nn.ModuleList()
        while f"blocks.{len(self.blocks)}.norm_1.weight" in state:
            self.blocks.append(Block(new_attention(), embed_dim, hidden_dim))

    def forward(self, tokens, caches=None):
        x = self.tokens(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return self.norm(x) @ self.tokens.weight.mT


def _model(state, new_attention, dtype):
    with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
        model = in_dtype(dtype, SmallModel(state, new_attention)).eval()
    model.load_state_dict({name: torch.from_numpy(data.copy()) for name, data in state.items()})
    return model


@builder
def small_model(*, state, dtype):
    """Return a model whose attention is `MeanSoFar`."""
    return _model(state, MeanSoFar, dtype)


@scenario
def logits_in_pieces(target, probe, args, kwargs):
    """Read the tokens piece by piece, with a cache for each block."""
    model, tokens, pieces = args.values()
    caches = [SumSoFar() for _ in model.blocks]
    return _read(pieces, tokens, lambda piece: target(model, piece, caches))


@builder
def model_of_answers(*, state, sizes, dtype):
    """Return a function that makes a model from the answer to `GroupedQueryAttention`."""
    return lambda attention: _model(state, lambda: attention(**sizes), dtype)


@scenario
def answers_read_in_pieces(answers, probe, args, kwargs):
    """Return the logits of all answers together: at once, in two pieces, and token by token."""
    new_model, tokens = args.values()
    model, n = new_model(answers["GroupedQueryAttention"]), tokens.shape[1]

    def in_parts(pieces):
        caches = [answers["KVCache"]() for _ in model.blocks]
        return _read(pieces, tokens, lambda piece: model(piece, caches))

    return model(tokens), in_parts([n - 1, 1]), in_parts([1] * n)
