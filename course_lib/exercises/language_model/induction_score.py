"""`induction_score`: detect heads that continue a repeated sequence."""

import functools

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.exercises.kit import Problems, call, edge, like, mistake

WORKED = [[[1.0, 0.0, 0.0, 0.0], [0.3, 0.7, 0.0, 0.0], [0.1, 0.8, 0.1, 0.0], [0.2, 0.1, 0.6, 0.1]]]


def drawn(rng, num_heads: int, num_positions: int, *, causal: bool = False) -> np.ndarray:
    """Draw attention weights `[head, position, key]` as a softmax makes them."""
    exponentials = np.exp(rng.normal(0, 1.3, (num_heads, num_positions, num_positions)))
    exponentials = np.tril(exponentials) if causal else exponentials
    return exponentials / exponentials.sum(-1, keepdims=True)


def same_everywhere(rng, num_heads: int, num_positions: int) -> np.ndarray:
    """Draw weights that depend only on the cyclic distance, so that each diagonal is constant."""
    first = drawn(rng, num_heads, num_positions)[:, 0]
    return np.stack([np.roll(first, i, axis=-1) for i in range(num_positions)], axis=1)


def problems(rng) -> Problems:
    yield "With a period of 2, each position from 2 on should look at the one before it."
    yield call(WORKED, 2)
    yield (
        "Each head's score is the mean, over positions i >= period, of its weight on position i - "
        "period + 1."
    )
    yield call(drawn(rng, 2, 10), period=3)
    yield (
        "If a head does the same at every position, its score must be a single weight: the one for"
        " period - 1 steps back."
    )
    yield call(same_everywhere(rng, 2, 9), 6)
    yield "Without a period, half of an odd number of positions must be rounded down."
    yield edge(drawn(rng, 3, 7, causal=True))
    yield "With a single head the result must still have one axis."
    yield edge(drawn(rng, 1, 5), 2)
    yield (
        "With a period of 1 each token but the first repeats the one before: position i should "
        "look at itself."
    )
    yield edge(drawn(rng, 3, 5), 1)
    yield "If the text ends before it repeats itself, nothing counts and the scores must be 0."
    yield edge(drawn(rng, 3, 4), 9)
    yield "A single position repeats nothing, so the scores must be 0."
    yield edge(drawn(rng, 2, 1))
    yield "Keep float32."
    yield edge(drawn(rng, 3, 5), dtype="float32")


def mean(weights, period, ahead, first=0, more=0) -> Tensor:
    """Return the mean of the weights [i, i - period + ahead] over i >= period + first.

    The sum is divided by the number of positions that count plus `more`.
    """
    n = weights.shape[-1]
    period = n // 2 if period is None else period
    rows = [i for i in range(period + first, n) if i >= 0 and -n <= i - period + ahead < n]
    found = [weights[:, i, i - period + ahead] for i in rows]
    return sum(found, start=torch.zeros_like(weights[:, 0, 0])) / max(n - period + more, 1)


@mistake
def same_token(attention_weights, period=None) -> Tensor:
    """You read the weight on another position than i - period + 1, such as i - period, which holds
    the same token as position i. An induction head attends to the token after that one.

    In A B C A B C, position 3 is the second A. Which position followed the first A?
    """
    return mean(attention_weights, period, ahead=0)


@like(same_token)
def same_token_if_any(attention_weights, period=None, ahead=0) -> Tensor:
    """Score with a special case for a single position, whose period would be 0."""
    if attention_weights.shape[-1] == 1:
        return attention_weights.new_zeros(len(attention_weights))
    return mean(attention_weights, period, ahead)


like(same_token)(functools.partial(same_token_if_any, ahead=-1))


@mistake
def first_half_counted(attention_weights, period=None) -> Tensor:
    """You also count position period - 1, with its weight on position 0, although nothing is
    repeated there yet.

    Which position does the first weight that you count belong to?
    """
    return mean(attention_weights, period, ahead=1, first=-1, more=1)


@mistake
def divided_by_n(attention_weights, period=None) -> Tensor:
    """You divide by the number of all positions instead of those that count.

    How many positions i >= period are there?
    """
    n = attention_weights.shape[-1]
    return mean(attention_weights, period, ahead=1, more=n // 2 if period is None else period)


@mistake
def summed(attention_weights, period=None) -> Tensor:
    """You return the sum or the largest of the weights. The score is their mean.

    How many weights are in your sum?
    """
    n = attention_weights.shape[-1]
    count = n - (n // 2 if period is None else period)
    return mean(attention_weights, period, ahead=1) * max(count, 1)


@like(summed)
def largest(attention_weights, period=None) -> Tensor:
    n = attention_weights.shape[-1]
    period = n // 2 if period is None else period
    rows = range(period, n)
    found = [attention_weights[:, i, i - period + 1] for i in rows if i - period + 1 < n]
    return torch.stack([torch.zeros_like(attention_weights[:, 0, 0]), *found]).amax(0)


@mistake
def transposed(attention_weights, period=None) -> Tensor:
    """Rows and columns are swapped: you read the weights [i - period + 1, i].

    Which axis of the weights holds the queries, and which one the keys?
    """
    return mean(attention_weights.mT, period, ahead=1)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("num_heads",)),),
    probes=problems,
    hints=(
        "Write down A B C A B C with the positions 0 to 5. Position 4 holds the second B. Where "
        "is the first B, and where is the token that came after it? That is the cell in row 4.",
        "The cells (i, i - period + 1) lie on a diagonal. It begins in row period - 1, one row "
        "too early, so drop that entry. Then take a mean for each head, or 0 where nothing is "
        "left.",
        "line = attention_weights.diagonal(offset=..., dim1=-2, dim2=-1)\n"
        "counted = line[:, ...:]  # (h, n - period)\n"
        "... counted.sum(dim=-1) ...",
    ),
)
