"""`scaled_dot_product_attention`: with lengths and masks, for any leading axes."""

import functools

import numpy as np

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._builders import BETWEEN, FLOAT32, READY_MADE_ATTENTION, Given, case, edge
from course_lib.exercises.scaled_dot_product._problems import (
    BOTH,
    EMPTY,
    FORMULA,
    MASK,
    PER_QUERY,
    PROPERTIES,
    SECOND_ROW_EMPTY,
    large,
    problem_of,
    random_mask,
)


def worked() -> Given:
    """Return the worked example of the statement."""
    return {
        "queries": [[[2.0, 0, 0, 0]]],
        "keys": [[[1.0, 0, 0, 0], [0.0, 0, 0, 0]]],
        "values": [[[10.0], [0.0]]],
    }


def _values(rng) -> list[Probe]:
    problem = functools.partial(problem_of, rng)
    mask = random_mask(rng, 3, 4)
    return [
        case("worked", **worked()).says(FORMULA),
        case("batch", **problem((2,), 3, 4, 5, 6)).says(
            "Each item of a batch must use its own queries, keys and values."
        ),
        case("matrices", **problem((), 4, 5, 3, 2)).says(
            "Without a batch axis it must work too: queries (n, d), keys (m, d), values (m, v)."
        ),
        case("lengths_per_item", **problem((3,), 2, 5, 6, 4, [4, 1, 3])).says(
            "Lengths of shape (batch,) give every item its own length."
        ),
        case("lengths_per_query", **problem((2,), 3, 5, 6, 4, [[1, 4, 2], [3, 2, 4]])).says(
            PER_QUERY
        ),
        case("mask_of_all_items", **problem((2,), 3, 4, 5, 6, mask=mask)).says(MASK),
        case("lengths_and_mask", **problem((2,), 3, 4, 7, 6, [2, 3], np.tri(3, 4, 1) > 0)).says(
            BOTH
        ),
    ]


def _edges(rng) -> list[Probe]:
    problem = functools.partial(problem_of, rng)
    empty = np.vstack([SECOND_ROW_EMPTY, [False, False, True]])  # the last by both
    zeros = problem((1,), 3, 3, 4, 5, [2], empty) | {"queries": np.zeros((1, 3, 4))}
    padding = [[[True, True, False, True, False]], [[False] + [True] * 4]]
    per_head = random_mask(rng, 2, 1, 4, 5)
    return [
        edge("empty_row", **zeros).says(EMPTY),
        edge("as_many_items_as_queries", **problem((3,), 3, 4, 5, 6, [1, 4, 2])).says(
            "Lengths (batch,) belong to items, even if there are as many queries."
        ),
        edge("large_scores", **large(rng)).says(
            "Scores may be very large, and the weights must still follow them, without overflow or "
            "clipping."
        ),
        edge("mask_of_padding", **problem((2,), 3, 5, 6, 4, mask=padding)).says(
            "A (batch, 1, num_keys) mask holds for every query of an item."
        ),
        edge("heads_and_mask", **problem((2, 3), 4, 5, 6, 7, mask=per_head)).says(
            "A (batch, 1, n, m) mask holds for every head of its item."
        ),
        edge(
            "heads_and_lengths_per_query",
            **problem((2, 3), 4, 5, 7, 6, [[3, 5, 2, 4], [4, 1, 5, 3]]),
        ).says("Lengths belong to the items: with (batch, heads, n, d), they hold for every head."),
        edge("five_axes_and_lengths", **problem((2, 1, 2), 1, 2, 1, 1, [2, 1])).says(
            "Lengths belong to the first axis and apply to all axes between it and the queries."
        ),
        edge(
            "five_axes_and_lengths_per_query", **problem((2, 1, 1), 2, 2, 1, 1, [[1, 2], [2, 1]])
        ).says(
            "Lengths of shape (batch, num_queries) apply to all axes between these two as well."
        ),
        *largest_padding(rng, with_mask=True),
        *far_above(rng, by_name={"mask": FAR}),
        edge("float32", **problem((2,), 3, 5, 4, 6, [2, 4]), **FLOAT32).says(
            "Float32 queries, keys and values must work and give float32."
        ),
        edge("between_other_calls", **problem((2,), 3, 4, 5, 2, [3, 1]), **BETWEEN).says(
            "Each call is independent: other calls with the same shapes must change nothing."
        ),
    ]


def _gradients(rng) -> list[Probe]:
    problem = functools.partial(problem_of, rng, requires_grad=True)
    empty = problem((), 2, 3, 1, 1) | {"by_name": {"mask": tensor(SECOND_ROW_EMPTY)}}
    return [
        case(
            "gradient", **problem((1,), 2, 3, 2, 2, [2]), grad_outputs=rng.normal(size=(1, 2, 2))
        ).says("The gradients of queries, keys and values must match the formula."),
        case("gradient_with_empty_row", **empty, grad_outputs=rng.normal(size=(2, 1))).says(
            "A query without keys must get gradient 0 and not turn the others into NaN."
        ),
    ]


_OWN = (
    Row("only_three_axes", {"product": lambda self, q, k: q @ k.transpose(1, 2)}).says(
        "You swap axes 1 and 2 of the keys, which are the last two only if there are three axes.",
        "How do you name the last two axes, however many come before them?",
    ),
)

RETURNS = (
    Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
    Returned("attention_weights", "tensor", "float", ("...", "num_queries", "num_keys")),
)

EXERCISE = Exercise(
    points=8,
    minutes=20,
    difficulty=2,
    returns=RETURNS,
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    forbidden=dict.fromkeys(
        READY_MADE_ATTENTION, "You write it yourself here, and the next section compares the two."
    ),
    mistakes=known(Attention, *_OWN),
    properties=PROPERTIES,
    hints=(
        "Three steps, all of which you already have: compare every query with every key, turn the "
        "scores of a row into weights, average the values with them. The number of features tells "
        "you how far to scale the scores down.",
        "scores = Q K^T / sqrt(d), shape (..., n, m): `keys.mT` swaps the last two axes only. "
        "Weights from `masked_softmax`, with lengths and mask. Outputs: weights times values.",
        "Take one query, two keys and d = 4: a score is the dot product over 2, and the two "
        "weights sum to 1. If that works with three axes but not with four, look at how you "
        "transpose the keys.",
    ),
)
