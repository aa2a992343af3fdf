"""`attend`: scaled dot-product attention for one query."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import unshifted, words
from course_lib.exercises._builders import (
    BETWEEN,
    FLOAT32,
    READY_MADE_ATTENTION,
    Given,
    case,
    edge,
    in_eighths,
    mistake,
)


def _problem(rng, m, d, v, **options) -> Given:
    shapes = {"query": (d,), "keys": (m, d), "values": (m, v)}
    return {name: tensor(rng.normal(0, 1.2, s), **options) for name, s in shapes.items()}


def worked() -> Given:
    """Return the worked example of the statement."""
    return {
        "query": [2.0, 0.0, 0.0, 0.0],
        "keys": [[0.0, 5.0, 1.0, 0.0], [np.log(3.0), 2.0, 0.0, 7.0]],
        "values": [[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]],
    }


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    free = problem(3, 1, 2, requires_grad=True)  # one feature, so that the root is 1
    large, low = problem(5, 4, 3), problem(5, 4, 3)  # the root of 4 is exact in float32, too
    large["keys"].data[:] = in_eighths(large["keys"].data)
    large["query"].data[:] = 4000 * large["keys"].data[rng.integers(5)]
    low["keys"].data[:] = in_eighths(np.abs(low["keys"].data) + 0.5)
    low["query"].data[:] = -4000
    return [
        case("worked", **worked()).says(
            "In the worked example, the scores must be 0 and log 3, the weights 1/4 and 3/4, and "
            "the output (1, 3, 8)."
        ),
        case("more_keys", **problem(6, 3, 4)).says(
            "The output must average the values with the weights softmax(dot product / sqrt(d))."
        ),
        case("more_features", **problem(3, 7, 2)).says(
            "The divisor must be the root of the number of features of the query."
        ),
        case("gradients", **free, grad_outputs=rng.normal(size=2)).says(
            "The output must be differentiable in the query, the keys and the values."
        ),
        edge("one_of_each", **problem(1, 1, 1)).says(
            "One key with one feature and one value must keep their axes."
        ),
        edge("square", **problem(4, 4, 4)).says(
            "It must work if there are as many keys as features."
        ),
        edge("large_scores", **large).says(
            "The weights must be right even where exp(score) overflows."
        ),
        edge("low_scores", **low).says(
            "The weights must be right even where exp(score) is 0 for all keys."
        ),
        edge("float32", **problem(3, 4, 2), **FLOAT32).says(
            "The results must have the dtype of the arguments."
        ),
        edge("between_other_calls", **problem(4, 3, 2), **BETWEEN).says(
            "Each call must be independent of other calls with the same shapes."
        ),
    ]


def _root(query) -> float:
    return len(query) ** 0.5


def _weighing(weigh) -> Callable:
    """Average the values with the weights `weigh(query, keys)`."""

    def model(query, keys, values) -> tuple[torch.Tensor, torch.Tensor]:
        weights = weigh(query, keys)
        return weights @ values, weights

    return model


def _keys_averaged(query, keys, values) -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.softmax(keys @ query / _root(query), dim=0)
    return weights @ keys, weights


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=1,
    returns=(
        Returned("output", "tensor", "float", ("v",)),
        Returned("attention_weights", "tensor", "float", ("num_keys",), differentiable=True),
    ),
    probes=_probes,
    forbidden=dict.fromkeys(
        READY_MADE_ATTENTION, "You write attention yourself here, and torch has it ready-made."
    ),
    mistakes=(
        mistake("unscaled", _weighing(lambda q, k: torch.softmax(k @ q, 0))).says(
            *words("unscaled")
        ),
        mistake("divided_by_d", _weighing(lambda q, k: torch.softmax(k @ q / len(q), 0))).says(
            *words("divided_by_d")
        ),
        mistake(
            "root_of_num_keys", _weighing(lambda q, k: torch.softmax(k @ q / len(k) ** 0.5, 0))
        ).says(
            "You divide by the root of the number of keys. The divisor is the root of d, the "
            "number of features of the query.",
            "Which axis of `keys` counts the keys, and which one counts the features?",
        ),
        mistake(
            "no_softmax",
            _weighing(lambda q, k: k @ q / _root(q)),
            twins=(_weighing(lambda q, k: k @ q),),
        ).says(
            "You average with the scores themselves. Scores need not be positive or sum to 1.",
            "Which step turns scores into positive weights that sum to 1?",
        ),
        mistake("keys_averaged", _keys_averaged).says(
            "Your output is an average of the keys. The keys only decide the weights, and the "
            "output averages the values.",
            "Which of the three arguments holds the information that is passed on?",
        ),
        mistake(
            "not_divided_by_the_sum",
            _weighing(lambda q, k: (k @ q / _root(q)).exp()),
            twins=(_weighing(lambda q, k: (k @ q / _root(q) - (k @ q / _root(q)).max()).exp()),),
        ).says(
            "Your weights are exponentials that do not sum to 1.",
            "What does a softmax do after it takes the exponentials?",
        ),
        mistake("unstable", _weighing(lambda q, k: unshifted(k @ q / _root(q)))).says(
            *words("unstable")
        ),
    ),
    hints=(
        "Three steps: a score for each key, a softmax that turns the scores into weights, and an "
        "average of the values with these weights. Print the shape after each step.",
        "`keys` has shape (m, d) and `query` has shape (d,). The product of such a matrix and such "
        "a vector, with `@`, contains one dot product for each key. Its shape is (m,). What has to "
        "happen to these numbers before the softmax?",
        "Compute the worked example with pencil and paper first. The scores are 0 and log 3. For "
        "the last step, `values` has shape (m, v), and the result must have shape (v,). Should the "
        "weights stand to the left or to the right of the `@`?",
    ),
)
