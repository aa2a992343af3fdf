"""`attention_pooling`: attention with plain dot products, for any leading axes."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import unshifted, words
from course_lib.exercises._builders import BETWEEN, FLOAT32, Given, case, edge, in_eighths, mistake


def _problem(rng, lead, n, m, d, v, **options) -> Given:
    shapes = {"queries": (*lead, n, d), "keys": (*lead, m, d), "values": (*lead, m, v)}
    return {name: tensor(rng.normal(0, 1.2, s), **options) for name, s in shapes.items()}


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    worked = {
        "queries": [[[1.0, 0.0]]],
        "keys": [[[0.0, 5.0], [np.log(3.0), 2.0]]],
        "values": [[[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]]],
    }
    free = problem((2,), 2, 3, 4, 2, requires_grad=True)
    large = problem((2,), 3, 4, 5, 6)
    large["queries"].data[:] = 4000 * in_eighths(large["queries"].data)
    large["keys"].data[:] = in_eighths(large["keys"].data)
    return [
        case("worked", **worked).says(
            "The output averages the values with the weights softmax(scores) of the query."
        ),
        case("batch", **problem((2,), 3, 5, 4, 6)).says(
            "The weights are a softmax of each query's dot products with the keys of its own item, "
            "and the outputs are averages of that item's values."
        ),
        case("heads", **problem((2, 3), 4, 5, 7, 6)).says(
            "With heads, in shape (batch, heads, n, d), each head must be computed on its own."
        ),
        case("gradients", **free, grad_outputs=rng.normal(size=(2, 2, 2))).says(
            "The outputs must be differentiable in queries, keys and values."
        ),
        edge("no_leading_axis", **problem((), 3, 4, 2, 5)).says(
            "A single item without a batch axis must work."
        ),
        edge("one_of_each", **problem((1,), 1, 1, 1, 1)).says(
            "One query, one key and one feature must keep their axes."
        ),
        edge("large_scores", **large).says(
            "The weights must be right even where exp(score) overflows, or is 0 for all keys of a "
            "query."
        ),
        edge("float32", **problem((2,), 3, 4, 2, 5), **FLOAT32).says(
            "The results must have the dtype of the arguments."
        ),
        edge("between_other_calls", **problem((2,), 4, 3, 5, 2), **BETWEEN).says(
            "Each call must be independent of other calls with the same shapes."
        ),
    ]


def _pooling(weigh) -> Callable:
    """Average the values with the weights `weigh(queries, keys)`."""

    def model(queries, keys, values) -> tuple[torch.Tensor, torch.Tensor]:
        weights = weigh(queries, keys)
        return weights @ values, weights

    return model


def _scaled(queries, keys) -> torch.Tensor:
    return torch.softmax(queries @ keys.mT / queries.shape[-1] ** 0.5, dim=-1)


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    builds_on=("bmm", "batched_scores"),
    returns=(
        Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),
        Returned("attention_weights", axes=("...", "num_queries", "num_keys"), differentiable=True),
    ),
    probes=_probes,
    mistakes=(
        mistake(
            "over_queries",
            _pooling(lambda q, k: torch.softmax(q @ k.mT, dim=-2)),
            twins=(
                _pooling(lambda q, k: torch.softmax(q @ k.mT, dim=min(1, q.dim() - 1))),
                _pooling(lambda q, k: torch.softmax(q @ k.mT, dim=0)),
                _pooling(lambda q, k: torch.softmax(q @ k.mT, dim=0 if q.dim() == 3 else 1)),
            ),
        ).says(*words("over_queries")),
        mistake(
            "no_softmax",
            lambda q, k, v: (q @ k.mT @ v, q @ k.mT),
            twins=(lambda q, k, v: (torch.softmax(q @ k.mT, -1) @ v, q @ k.mT),),
        ).says(
            "The weights that you return are the scores themselves, without a softmax. Scores need "
            "not be positive or sum to 1.",
            "Which step turns a row of scores into positive weights that sum to 1?",
        ),
        mistake("scaled_already", _pooling(_scaled)).says(
            "The scores are divided by sqrt(d). Lesson 05 does that; here the scores are plain dot "
            "products.",
            "Which step of your code is not in the formula?",
        ),
        mistake("unstable", _pooling(lambda q, k: unshifted(q @ k.mT))).says(*words("unstable")),
    ),
    hints=(
        "Three steps: a score for every query and key, a softmax that turns each row of scores "
        "into weights, and an average of the values with those weights.",
        "You wrote the first step already. The softmax runs over the keys, the last axis of the "
        "scores. The last step is a product of (..., n, m) and (..., m, v), without a transpose.",
        "Try it on one query, two keys and two values with pencil and paper, and print the shape "
        "after each of your three lines.",
    ),
)
