"""What the exercises about a block share: problems with injected weights, and wrong blocks."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.checks.judge.comparisons import WRONG_VALUES, Problem, close
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._rows import Given

Sizes = tuple[int, int, int]  # embed_dim, num_heads, hidden_dim
DEVICE_AND_DTYPE = (
    "`device=` and `dtype=` set the device and the dtype of the weights. Pass both on to each "
    "layer."
)


def built(rng, attentions, num_norms, sizes: Sizes) -> Given:
    """How a block is built, and weights for it. Only a problem about `eps` depends on it.

    Args:
        attentions: the shapes of the weights of each attention, as multiples of `embed_dim`.
        num_norms: how many norms there are; no two are alike.
    """
    d, num_heads, hidden = sizes

    def weight(rows, columns) -> np.ndarray:
        return rng.normal(0, 1.3 / columns**0.5, (rows, columns))

    state = {
        f"{name}.{layer}.weight": weight(times * d, d)
        for name, layers in attentions.items()
        for layer, times in layers.items()
    }
    for number in range(1, num_norms + 1):
        state[f"norm_{number}.weight"] = rng.uniform(0.6, 1.5, d)
        state[f"norm_{number}.bias"] = rng.normal(0, 0.5, d)
    for place, (rows, columns) in {"0": (hidden, d), "2": (d, hidden)}.items():
        state[f"feed_forward.{place}.weight"] = weight(rows, columns)
        state[f"feed_forward.{place}.bias"] = rng.normal(0, 0.5, rows)
    construct = {"embed_dim": d, "num_heads": num_heads, "hidden_dim": hidden}
    return {"construct": construct, "state": state, "tolerance": 1e-3}


def identities(problem: Given) -> Given:
    """The problem with weights that change nothing: one can do it by hand."""
    for name, value in problem["state"].items():
        if value.ndim == 2:
            value[:] = np.resize(np.eye(value.shape[1]), value.shape)
        else:
            value[:] = name.endswith("weight")
    return problem


def without(problem: Given, *parts: str) -> Given:
    """The problem with weights for which these parts return zeros."""
    for name, value in problem["state"].items():
        if name.startswith(tuple(f"{part}.{last}" for part in parts for last in ("W_o", "2"))):
            value[:] = 0.0
    return problem


def far_from_the_bend(problem: Given) -> Given:
    """The problem with hidden numbers far from 0, where ReLU has no derivative to compare."""
    bias = problem["state"]["feed_forward.0.bias"]
    bias[:] = np.resize([6.0, -6.0], bias.shape)
    return problem


def inputs(rng, shape, **options) -> Array:
    return tensor(rng.normal(0, 1.3, shape), **options)


def nearly_equal(rng, shape) -> Array:
    """Features that differ by thousandths, and at one position not at all."""
    x = rng.normal(0, 1.3, (*shape[:2], 1)) + rng.normal(0, 2e-3, shape)
    x[0, 0] = x[0, 0, 0]
    return tensor(x)


def small_differences(probe, expected, recorded) -> Problem | None:
    """Compare as usual, but put no difference down to rounding: all of them are small here."""
    return WRONG_VALUES if close(probe, expected, recorded) else None


class Heads(nn.Module):
    """Multi-head attention with the layers of lesson 06."""

    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear
    W_o: nn.Linear

    def __init__(self, embed_dim, num_heads) -> None:
        super().__init__()
        self.num_heads = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim, bias=False))

    def project(self, *given) -> Sequence[Tensor]:
        return [layer(x) for layer, x in zip((self.W_q, self.W_k, self.W_v), given, strict=True)]

    def forward(self, queries, keys, values, valid_lens=None, mask=None) -> Tensor:
        projected = self.project(queries, keys, values)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        if valid_lens is not None:
            real = torch.arange(keys.shape[1]) < valid_lens[:, None]
            allowed = allowed & real[:, None, None]
        weights = scores.masked_fill(~allowed, -1e30).softmax(-1).masked_fill(~allowed, 0.0)
        return self.W_o((weights @ v).transpose(1, 2).flatten(2))


class HeadsOfOne(Heads):
    """Multi-head self-attention with the two layers of lesson 07."""

    def __init__(self, embed_dim, num_heads) -> None:
        nn.Module.__init__(self)
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

    def project(self, *given) -> Sequence[Tensor]:
        return self.W_qkv(given[0]).chunk(3, dim=-1)


# How a part is joined with what came in: the first one as it should be.
def pre_norm(x, norm, part) -> Tensor:
    return x + part(norm(x))


def post_norm(x, norm, part) -> Tensor:
    return norm(x + part(x))


def of_the_normed(x, norm, part) -> Tensor:
    x = norm(x)
    return x + part(x)


def no_residual(x, norm, part) -> Tensor:
    return part(norm(x))


def not_normed(x, norm, part) -> Tensor:
    return x + part(x)


class Block(nn.Module):
    """A block whose `parts` are joined one after the other; `but` changes some of that.

    Only a changed one can be made, so that no right answer lies in the files of a bundle.
    """

    is_changed = False
    joins: Sequence[Callable] = (pre_norm,) * 3
    norms: Sequence[int] = (1, 2, 3)

    def __init__(self, embed_dim, num_heads, hidden_dim, *, device=None, dtype=None) -> None:
        if not self.is_changed:
            raise TypeError("change at least one of the steps")
        super().__init__()
        self.make_attentions(embed_dim, num_heads)
        self.feed_forward = nn.Sequential(*self.layers(embed_dim, hidden_dim))
        for number in range(1, len(self.norms) + 1):
            setattr(self, f"norm_{number}", nn.LayerNorm(embed_dim))
        self.to(device=device, dtype=dtype)

    @classmethod
    def but(cls, **changes: Any) -> type:
        """A block in which these methods or values are others, and so a wrong one."""
        return type(cls.__name__, (cls,), {**changes, "is_changed": bool(changes)})

    def make_attentions(self, embed_dim, num_heads) -> None:
        raise NotImplementedError

    def parts(self, *given, **named) -> Sequence[Callable]:
        raise NotImplementedError

    def norm(self, number) -> nn.Module:
        return self.get_submodule(f"norm_{number}")

    def forward(self, x, *given, **named) -> Tensor:
        parts = self.parts(*given, **named)
        for join, number, part in zip(self.joins, self.norms, parts, strict=False):
            x = join(x, self.norm(number), part)
        return x

    def layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
        return nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, embed_dim)

    def network(self, x) -> Tensor:
        return self.feed_forward(x)


def without_relu(self, x) -> Tensor:
    first, *_, second = self.feed_forward
    return second(first(x))


def two_layers(self, embed_dim, hidden_dim) -> Sequence[nn.Module]:
    return nn.Linear(embed_dim, hidden_dim), nn.Linear(hidden_dim, embed_dim)


# What is said of mistakes in both blocks.
POST_NORM = (
    "Your norms follow the sums, norm(x + f(x)), as in the original paper. Here each norm comes "
    "before its part, x + f(norm(x)).",
    "What does each part read, and what is added to its result?",
)
OF_THE_NORMED = (
    "You add each result to the normalized x, so x itself is lost after the first norm.",
    "Does a line like `x = norm(x)` overwrite what you still need for the sum?",
)
NO_RESIDUAL = (
    "In at least one of your sums the first term is missing: the result of a part replaces what "
    "the part read instead of being added to it.",
    "In x + f(norm(x)), which term comes before the plus?",
)
NO_RELU = (
    "There is no ReLU between the two linear layers, so together they are still linear.",
    "What do you get if you multiply by one matrix and then by another?",
)
PREVIOUS_SUM = "Which of your variables holds the previous sum?"
ADDED_TO_THE_INPUT = (
    "You add the result of the feed-forward network to the input of the whole block, so the "
    "attention's result is missing from the outputs.",
    PREVIOUS_SUM,
)
