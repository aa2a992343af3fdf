"""`kernel_pooling`: a weighted average, with weights from a Gaussian kernel."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import words
from course_lib.exercises._attention.properties import RETURNED
from course_lib.exercises._builders import FLOAT32, Given, case, edge, mistake
from course_lib.exercises.kernel_pooling._problems import (
    ROOT_SQUARED,
    far_from_all,
    gaussian,
    normal,
    of_distances,
)


def _problem(rng, n, m, d, v, bandwidth, **options) -> Given:
    return {
        "queries": tensor(normal(rng, n, d), **options),
        "keys": tensor(normal(rng, m, d), **options),
        "values": tensor(normal(rng, m, v), **options),
        "bandwidth": bandwidth,
    }


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    worked = {
        "queries": [[0.0]],
        "keys": [[0.0], [1.1774], [1.6651]],
        "values": [[7.0], [14.0], [28.0]],
        "bandwidth": 1,
    }
    far = problem(4, 5, 2, 3, 1.0)
    far["queries"].data[1::2], far["keys"].data[:] = far_from_all(rng)
    flat = {"queries": normal(rng, 2, 3), "keys": normal(rng, 4, 3), "values": normal(rng, 4)}
    free = _problem(rng, 2, 4, 2, 3, 1.1, requires_grad=True)
    met = _problem(rng, 2, 3, 1, 2, 1.0, requires_grad=True)
    met["queries"].data[:], met["keys"].data[:] = [[1.0], [0.5]], [[0.0], [1.0], [3.0]]
    return [
        case("worked", **worked).says(
            "Kernels of 1, 1/2 and 1/4, for example, must give weights of 4/7, 2/7 and 1/7."
        ),
        case("general", **problem(3, 5, 4, 2, 0.8)).says("Every size must work."),
        case("tensor", **problem(5, 3, 2, 4, tensor(np.array(1.3)))).says(
            "The bandwidth may be a tensor."
        ),
        edge("far_query", **far).says(
            "A query far from every key must get weights that sum to 1: its nearest keys count, "
            "even though every exp underflows to 0."
        ),
        edge("flat_values", args=flat | {"bandwidth": 1.0}, raises="ValueError").says(
            "Values with only one axis must raise a ValueError."
        ),
        edge("float32", **problem(3, 4, 2, 5, 0.9), **FLOAT32).says(
            "Float32 inputs must give float32 outputs and weights."
        ),
        case("gradient", **free, grad_outputs=normal(rng, 2, 3)).says(
            "The outputs must be differentiable in queries, keys and values."
        ),
        case("gradient_on_a_key", **met, grad_outputs=normal(rng, 2, 2)).says(
            "Where a query equals a key, the gradient must be finite."
        ),
    ]


def _weighing(weigh) -> Callable:
    """Pool with the weights `weigh(squared distances, bandwidth)`."""

    def model(queries, keys, values, bandwidth) -> tuple[torch.Tensor, torch.Tensor]:
        if values.dim() != 2:
            raise ValueError("values")
        weights = of_distances(weigh)(queries, keys, bandwidth)
        return weights @ values, weights

    return model


def _shares(kernel, more=0.0) -> torch.Tensor:
    return kernel / (kernel.sum(-1, keepdim=True) + more)


def _softmax_of(score) -> Callable:
    return _weighing(lambda s, h: torch.softmax(score(s, h), -1))


EXERCISE = Exercise(
    points=5,
    minutes=15,
    difficulty=2,
    builds_on=("squared_distances",),
    returns=(
        Returned("outputs", "tensor", "float", ("num_queries", "v")),
        Returned("attention_weights", axes=("num_queries", "num_keys"), differentiable=True),
    ),
    probes=_probes,
    mistakes=(
        mistake("over_queries", _weighing(lambda s, h: torch.softmax(-s / (2 * h**2), 0))).says(
            *words("over_queries")
        ),
        mistake("half_missing", _softmax_of(lambda s, h: -s / h**2)).says(
            "The factor 1/2 is missing: your kernel is as narrow as one of bandwidth h / sqrt 2.",
            "What is the denominator in exp(-distance^2 / (2 h^2))?",
        ),
        mistake("bandwidth_not_squared", _softmax_of(lambda s, h: -s / (2 * h))).says(
            "The bandwidth is not squared: your exponent is -distance^2 / (2 h).",
            "What are the units of distance^2, and of h?",
        ),
        mistake("bandwidth_multiplies", _softmax_of(lambda s, h: -s * h**2 / 2)).says(
            "You multiply the distances by the bandwidth instead of dividing them by it.",
            "Should a larger bandwidth make the weights wider or narrower?",
        ),
        mistake("root_squared", _softmax_of(lambda s, h: -((s.sqrt() / h) ** 2) / 2)).says(
            *ROOT_SQUARED
        ),
        mistake("plus_distance", _softmax_of(lambda s, h: s / (2 * h**2))).says(
            "The sign is wrong: the farthest key gets the largest weight.",
            "Should a large distance give a large score or a small one?",
        ),
        mistake(
            "underflow",
            _weighing(lambda s, h: _shares(gaussian(s, h))),
            twins=tuple(
                _weighing(lambda s, h, more=more: _shares(gaussian(s, h), more))
                for more in (1e-6, 1e-8, 1e-9, 1e-10, 1e-12)
            ),
        ).says(
            "You divide exponentials by their sum. They underflow to 0 for a query far enough "
            "from all keys (or, if you subtract one maximum from all scores, much farther than "
            "others). If a small number is added to the sum, the weights come out too small "
            "instead.",
            "Which function divides exponentials by their sum without underflow?",
        ),
    ),
    properties=RETURNED,
    hints=(
        "Two steps: turn distances into weights that sum to 1 for each query, then average the "
        "values with them. Which matrix product averages for all queries at once?",
        "Section 3: exponentials divided by their total are a softmax. Which numbers go into it, "
        "and over which axis must it sum to 1? Check the shape of `values` before anything else.",
        "A smaller version first: the worked example, one query at 0. Its scores are 0, -0.693 and "
        "-1.386: minus ln 1, ln 2 and ln 4. Print yours before the softmax. Is the sign right? "
        "The 2? The square of the bandwidth?",
    ),
)
