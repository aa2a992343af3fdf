"""`induction_score`: detect heads that continue a repeated sequence."""

import functools
from collections.abc import Callable, Iterable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import FLOAT32, Given, case, edge, in_steps, mistake

WORKED = [[[1.0, 0.0, 0.0, 0.0], [0.3, 0.7, 0.0, 0.0], [0.1, 0.8, 0.1, 0.0], [0.2, 0.1, 0.6, 0.1]]]


def _weights_of(rng, num_heads: int, num_positions: int, *, causal: bool = False) -> np.ndarray:
    """Draw attention weights `[head, position, key]` as a softmax makes them."""
    scores = rng.normal(0, 1.3, (num_heads, num_positions, num_positions))
    exponentials = np.exp(scores)
    exponentials = np.tril(exponentials) if causal else exponentials
    return exponentials / exponentials.sum(-1, keepdims=True)


def _same_everywhere(rng, num_heads: int, num_positions: int) -> np.ndarray:
    """Draw weights that depend only on the cyclic distance, so that each diagonal is constant."""
    first = _weights_of(rng, num_heads, num_positions)[:, 0]
    return np.stack([np.roll(first, i, axis=-1) for i in range(num_positions)], axis=1)


def _mean_of(weights: torch.Tensor, rows: Iterable[int], offset: int, count: int) -> torch.Tensor:
    """Return the sum of the weights [i, i + offset] over the rows, divided by the count."""
    n = weights.shape[-1]
    found = [weights[:, i, i + offset] for i in rows if i >= 0 and -n <= i + offset < n]
    return sum(found, start=torch.zeros_like(weights[:, 0, 0])) / max(count, 1)


def _weights(rng, *sizes, **options) -> Given:
    return {"attention_weights": _weights_of(rng, *sizes, **options)}


def _values(rng) -> list[Probe]:
    weights = functools.partial(_weights, rng)
    return [
        case("worked", attention_weights=WORKED, period=2).says(
            "With a period of 2, each position from 2 on should look at the one before it."
        ),
        case("three_times", **weights(2, 10), by_name={"period": 3}).says(
            "Each head's score is the mean, over positions i >= period, of its weight on position "
            "i - period + 1."
        ),
        case("same_everywhere", attention_weights=_same_everywhere(rng, 2, 9), period=6).says(
            "If a head does the same at every position, its score must be a single weight: the one "
            "for period - 1 steps back."
        ),
    ]


def _edges(rng) -> list[Probe]:
    weights = functools.partial(_weights, rng)
    return [
        edge("odd", **weights(3, 7, causal=True)).says(
            "Without a period, half of an odd number of positions must be rounded down."
        ),
        edge("one_head", **weights(1, 5), period=2).says(
            "With a single head the result must still have one axis."
        ),
        edge("every_token", **weights(3, 5), period=1).says(
            "With a period of 1 each token but the first repeats the one before: position i "
            "should look at itself."
        ),
        edge("long_period", **weights(3, 4), period=9).says(
            "If the text ends before it repeats itself, nothing counts and the scores must be 0."
        ),
        edge("one_position", **weights(2, 1)).says(
            "A single position repeats nothing, so the scores must be 0."
        ),
        edge("float32", **weights(3, 5), **FLOAT32).says("Keep float32."),
    ]


@in_steps(ahead=1, first=0, counted=lambda n, period: n - period, read=lambda w: w)
def _mean(ahead, first, counted, read) -> Callable:
    """Return the mean of the weights [i, i - period + ahead] over i >= period + first."""

    def score(attention_weights, period=None) -> torch.Tensor:
        weights = read(attention_weights)
        n = weights.shape[-1]
        period = n // 2 if period is None else period
        columns = range(period + first, n)
        return _mean_of(weights, columns, ahead - period, counted(n, period))

    return score


def _same_token_if_any(attention_weights, period=None) -> torch.Tensor:
    """Score with a special case for a single position, whose period would be 0."""
    if attention_weights.shape[-1] == 1:
        return attention_weights.new_zeros(len(attention_weights))
    return _mean(ahead=0)(attention_weights, period)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("num_heads",)),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    mistakes=(
        mistake("same_token", _mean(ahead=0), twins=(_same_token_if_any,)).says(
            "You read the weight on position i - period, which holds the same token as position i. "
            "An induction head attends to the token after that one.",
            "In A B C A B C, position 3 is the second A. Which position followed the first A?",
        ),
        mistake("first_half_counted", _mean(first=-1, counted=lambda n, p: n - p + 1)).says(
            "You also count position period - 1, with its weight on position 0, although nothing "
            "is repeated there yet.",
            "Which position does the first weight that you count belong to?",
        ),
        mistake("divided_by_n", _mean(counted=lambda n, p: n)).says(
            "You divide by the number of all positions instead of those that count.",
            "How many positions i >= period are there?",
        ),
        mistake("transposed", _mean(read=lambda w: w.mT)).says(
            "Rows and columns are swapped: you read the weights [i - period + 1, i].",
            "Which axis of the weights holds the queries, and which one the keys?",
        ),
    ),
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
