"""Lesson 01: the Gaussian kernel as a dot product."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import (
    WRONG_VALUES,
    Problem,
    arrays_agree,
    tolerance_for,
)
from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, STRIDED, Case, case, mistake
from course_lib.exercises.kernel_pooling._problems import gaussian, normal, of_distances
from course_lib.reference import kernel_pooling as oracle


def _probe(rng, name, n, m, d, bandwidth, keys=None, away: Any = 0.0, **options: Any) -> Case:
    """Random queries, moved `away`, and keys unless they are given."""
    keys = normal(rng, m, d) if keys is None else keys
    kind = {k: options.pop(k) for k in ("strided", "requires_grad") if k in options}
    points = {"queries": tensor(normal(rng, n, d) + away, **kind), "keys": tensor(keys, **kind)}
    return case(name, args=points | {"bandwidth": bandwidth}, compare="same_softmax", **options)


def _values(rng) -> list[Probe]:
    probe, query = functools.partial(_probe, rng), [[1.0, 0.0]]
    centred = normal(rng, 2, 4)
    centred -= centred.mean(-1, keepdims=True)  # what a softmax passes back: rows sum to 0
    worked = {"queries": query, "keys": [[1.0, 0.0], [3.0, 0.0]], "bandwidth": 1.0}
    by_hand = {"queries": query, "keys": [[1.0, 1.0], [2.0, 0.0], [0.0, -1.5]], "bandwidth": 2.0}
    return [
        case("worked", args=worked, compare="same_softmax").says(
            "The two scores must differ by 2, as do those of the squared distances 0 and 4."
        ),
        case("by_hand", args=by_hand, compare="same_softmax").says(
            "The softmax of your scores must be the weights of the Gaussian kernel, also for keys "
            "of different lengths."
        ),
        probe("general", 3, 5, 4, 0.9).says("Keys of any length must work."),
        probe("wide", 4, 6, 2, 1.9).says("A bandwidth above 1 must flatten the weights."),
        probe("narrow", 2, 7, 3, 0.7).says("A bandwidth below 1 must sharpen the weights."),
        probe("strided", 5, 3, 2, 1.3, strided=True).says(STRIDED),
        probe("gradient", 2, 4, 3, 1.0, grad_outputs=centred, requires_grad=True).says(
            "The weights must have the gradient of the Gaussian kernel."
        ),
    ]


def _edges(rng) -> list[Probe]:
    probe = functools.partial(_probe, rng, part="edges")
    unit, far = normal(rng, 4, 3), np.array([[60.0], [-80.0]])
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    return [
        probe("unit_keys", 3, 4, 3, tensor(np.array(0.8)), keys=unit).says(
            "It must also hold for keys of length 1 and for a bandwidth that is a tensor."
        ),
        probe("square", 4, 4, 3, 1.2).says("As many queries as keys."),
        probe("one_query", 1, 5, 1, 1.1).says("One query and one feature."),
        probe("far_query", 2, 4, 3, 1.0, away=far, tolerance=1e-4).says(
            "A query far from every key still has finite scores; the logarithm of a kernel that "
            "underflowed to 0 is not finite."
        ),
        probe("float32", 3, 4, 2, 1.1, **FLOAT32).says(
            "Float32 queries and keys give float32 scores."
        ),
    ]


def _softmax_rows(scores) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = np.exp(scores - scores.max(-1, keepdims=True))
        return shifted / shifted.sum(-1, keepdims=True)


_WHERE_INFINITE = "Which step divides by 0, or takes the logarithm of 0?"


def _same_softmax(probe, expected, recorded) -> Problem | None:
    """Scores may be off by a constant for each query: only their softmax counts."""
    if not np.isfinite(recorded.data).all():
        return Problem("not_finite", "Your scores are not finite.", _WHERE_INFINITE)
    ours = _softmax_rows(np.asarray(expected, dtype=np.float64))
    theirs = _softmax_rows(recorded.data.astype(np.float64))
    if arrays_agree(ours, theirs, tolerance_for(probe, recorded)):
        return None
    return WRONG_VALUES


def _dots(query, dot, key, scale=lambda h: h**2) -> Callable:
    """Scores with a factor on each of the three terms."""

    def model(queries, keys, bandwidth) -> torch.Tensor:
        norms = query * queries.square().sum(-1)[:, None] + key * keys.square().sum(-1)
        return (dot * (queries @ keys.T) + norms) / scale(bandwidth)

    return model


def _factors(probe, outputs) -> str | None:
    """Which multiples of q.k and |k|^2 the scores are, apart from a number for each query."""
    inputs = probe.inputs()
    queries, keys, h = inputs["queries"].data, inputs["keys"].data, inputs["bandwidth"]
    if probe.name != "general" or np.shape(outputs.data) != (len(queries), len(keys)):
        return None
    norms = np.broadcast_to((keys**2).sum(-1), (len(queries), len(keys)))
    columns = [queries @ keys.T, norms, outputs.data.astype(float)]
    dots, norms, scores = ((c - c.mean(-1, keepdims=True)).ravel() for c in columns)
    if not np.isfinite(scores).all():
        return None
    terms = np.stack([dots, norms], axis=1)
    found = np.linalg.lstsq(terms, scores, rcond=None)[0]
    if not np.allclose(terms @ found, scores, atol=1e-4):
        return None
    return (
        f"Apart from a constant for each query, your scores are {found[0]:.3f} q.k "
        f"{'-' if found[1] < 0 else '+'} {abs(found[1]):.3f} |k|^2. With bandwidth {h:g} they "
        f"must be {1 / h**2:.3f} q.k - {0.5 / h**2:.3f} |k|^2."
    )


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    starred=True,
    returns=(Returned("scores", "tensor", "float", ("num_queries", "num_keys")),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    oracle=oracle.gaussian_as_dot_product,
    builds_on=("squared_distances",),
    comparisons={"same_softmax": _same_softmax},
    mistakes=(
        mistake("only_for_unit_keys", _dots(0, 1, 0)).says(
            "This is right for keys of length 1 only: without |k|^2 / 2, a long key scores high "
            "even if it is far away.",
            "Which terms of -|q - k|^2 / (2 h^2) differ from key to key?",
        ),
        mistake("bandwidth_missing", _dots(0, 1, -0.5, lambda h: 1.0)).says(
            "The bandwidth changes nothing: your scores are those of bandwidth 1.",
            "What is every term divided by?",
        ),
        mistake("bandwidth_not_squared", _dots(0, 1, -0.5, lambda h: h)).says(
            "The bandwidth enters without its square.",
            "What are the units of a dot product, and of h?",
        ),
        mistake("square_positive", of_distances(lambda s, h: s / (2 * h**2))).says(
            "The sign is wrong: your scores grow with the distance, so far keys win.",
            "Should the score grow or fall with the distance?",
        ),
        mistake("query_norm_instead_of_key_norm", _dots(-0.5, 1, 0)).says(
            "You subtract the query's length. It is the same for all keys, so the softmax does "
            "not see it; what is missing is the key's length.",
            "Which of |q|^2 and |k|^2 differs from key to key?",
        ),
        mistake(
            "log_of_the_kernel",
            of_distances(lambda s, h: torch.log(gaussian(s, h))),
        ).says(
            "You take the logarithm of the kernel. Far from a key the kernel underflows to 0, and "
            "log(0) is -inf.",
            "What is log(exp(x)), without computing either?",
        ),
        mistake(
            "weights_returned",
            of_distances(lambda s, h: torch.softmax(-s / (2 * h**2), -1)),
        ).says(
            "You return the weights; the exercise asks for the scores before the softmax.",
            "What happens to weights that go through a softmax a second time?",
        ),
        mistake(
            "transposed",
            lambda queries, keys, h: (
                (keys @ queries.T - keys.square().sum(-1, keepdim=True) / 2) / h**2
            ),
        ).says(
            "Your rows are keys and your columns are queries.",
            "Is it `queries @ keys.mT` or the other way round?",
        ),
    ),
    properties=(
        Property(
            "wrong_factors",
            _factors,
            "Expand -|q - k|^2 / (2 h^2). What factor does each term have that differs from key "
            "to key?",
        ),
    ),
    hints=(
        "Expand the square in -|q - k|^2 / (2 h^2), as you would (a - b)^2. A softmax over the "
        "keys ignores every term that is the same for all keys.",
        "Two terms are left. One is an (n, m) matrix that a matrix product gives; the other is a "
        "number for each key. What is its shape, and does it broadcast over the rows? What factor "
        "does each of the two have?",
        "On paper first: the worked number has dot products 1 and 3, and keys of squared length 1 "
        "and 9. Which combination gives 0.5 and -1.5 for h = 1? And what should it give for h = "
        "2?",
    ),
)
