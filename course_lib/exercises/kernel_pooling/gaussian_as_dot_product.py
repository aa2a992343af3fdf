"""`gaussian_as_dot_product`: the Gaussian kernel as a dot product."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Problem, arrays_agree, tolerance_for
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import FLOAT32, Given, case, edge, mistake
from course_lib.exercises.kernel_pooling._problems import (
    far_from_all,
    gaussian,
    normal,
    of_distances,
)


def _problem(rng, n, m, d, bandwidth, **options) -> Given:
    return {
        "queries": tensor(normal(rng, n, d), **options),
        "keys": tensor(normal(rng, m, d), **options),
        "bandwidth": bandwidth,
        "compare": "same_softmax",
    }


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    centred = normal(rng, 2, 4)
    centred -= centred.mean(-1, keepdims=True)  # gradients of a softmax sum to 0 in each row
    worked = {"queries": [[1.0, 0.0]], "keys": [[1.0, 0.0], [3.0, 0.0]], "bandwidth": 1}
    far = problem(2, 5, 2, 1.0)
    far["queries"].data[:], far["keys"].data[:] = far_from_all(rng)
    return [
        case("worked", **worked, compare="same_softmax").says(
            "For h = 1, squared distances of 0 and 4 must give two scores that differ by 2."
        ),
        case("general", **problem(3, 5, 4, 0.9)).says("Keys of any length must work."),
        case("wide", **problem(4, 6, 2, tensor(np.array(1.9)))).says(
            "A bandwidth above 1, here a tensor, must flatten the weights."
        ),
        case("gradient", **problem(2, 4, 3, 1.0, requires_grad=True), grad_outputs=centred).says(
            "The weights must have the gradient of the Gaussian kernel."
        ),
        edge("far_query", **far).says(
            "A query far from every key must have finite scores that give the kernel's weights."
        ),
        edge("float32", **problem(3, 4, 2, 1.1), **FLOAT32).says(
            "Float32 queries and keys must give float32 scores."
        ),
    ]


def _softmax_rows(scores) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = np.exp(scores - scores.max(-1, keepdims=True))
        return shifted / shifted.sum(-1, keepdims=True)


def _same_softmax(probe, expected, recorded) -> Problem | None:
    """Compare the softmax of the scores, which may differ by a constant for each query."""
    if not np.isfinite(recorded.data).all():
        return Problem(
            "not_finite",
            "Your scores are not finite.",
            "Which step first gives inf or NaN, such as a division by 0 or the logarithm of 0?",
        )
    ours = _softmax_rows(np.asarray(expected, dtype=np.float64))
    theirs = _softmax_rows(recorded.data.astype(np.float64))
    if arrays_agree(ours, theirs, tolerance_for(probe, recorded)):
        return None
    row = int(np.argmax(np.abs(ours - theirs).max(-1)))
    yours, right = (", ".join(f"{w:.3g}" for w in weights[row]) for weights in (theirs, ours))
    return Problem(
        "wrong_values",
        f"A softmax of your scores gives query {row} the weights {yours}; those of the Gaussian "
        f"kernel are {right}.",
        "Multiply out -|q - k|^2 / (2 h^2). How does each of its terms enter your scores?",
    )


def _dots(query, key, scale=lambda h: h**2) -> Callable:
    """Add multiples of the two squared lengths to the dot products."""

    def model(queries, keys, bandwidth) -> torch.Tensor:
        norms = query * queries.square().sum(-1)[:, None] + key * keys.square().sum(-1)
        return (queries @ keys.T + norms) / scale(bandwidth)

    return model


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    starred=True,
    returns=(Returned("scores", "tensor", "float", ("num_queries", "num_keys")),),
    probes=_probes,
    comparisons={"same_softmax": _same_softmax},
    mistakes=(
        mistake("only_for_unit_keys", _dots(0, 0)).says(
            "Your scores lack the term -|k|^2 / (2 h^2), so a long key can score high even if it "
            "is far away.",
            "Which terms of -|q - k|^2 / (2 h^2) differ from key to key?",
        ),
        mistake("bandwidth_not_squared", _dots(0, -0.5, lambda h: h)).says(
            "You divide by the bandwidth h, but the scores must be divided by its square.",
            "What are the units of a dot product, and of h?",
        ),
        mistake(
            "key_term_wrong",
            _dots(0, -1),
            twins=(
                _dots(-1, -1),
                _dots(0, 0.5),
                lambda q, k, h: (q @ k.T - k.norm(dim=-1) / 2) / h**2,
                lambda q, k, h: q @ k.T / h**2 - k.square().sum(-1) / 2,
                lambda q, k, h: q @ k.T / h**2 - k.square().sum(-1) / (2 * h),
            ),
        ).says(
            "Your term for the length of the key is not -|k|^2 / (2 h^2): check its factor, its "
            "sign, its square and its bandwidth.",
            "Multiply out |q - k|^2. What becomes of the term with |k|^2 after the division?",
        ),
        mistake("logarithm_of_kernel", of_distances(lambda s, h: gaussian(s, h).log())).says(
            "You take the logarithm of the kernel. Far enough from a key the kernel underflows to "
            "0, and its logarithm is -inf.",
            "Which part of the formula can you use without `exp` and `log`?",
        ),
        mistake("query_term_only", _dots(-0.5, 0)).says(
            "You subtract the term of the query, which is the same for all keys and changes no "
            "weight. The term of the key is missing.",
            "Which terms of -|q - k|^2 / (2 h^2) differ from key to key?",
        ),
    ),
    hints=(
        "Expand the square in -|q - k|^2 / (2 h^2), as you would (a - b)^2. A softmax over the "
        "keys ignores every term that is the same for all keys.",
        "Two terms are left. One is an (n, m) matrix that a matrix product gives; the other is a "
        "number for each key. What is its shape, and does it broadcast over the rows? What factor "
        "does each of the two have?",
        "On paper first: the worked example has dot products 1 and 3, and keys of squared length 1 "
        "and 9. Which combination gives 0.5 and -1.5 for h = 1? And what should it give for h = "
        "2?",
    ),
)
