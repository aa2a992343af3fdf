"""Problems for the attentions of lesson 05, and what must hold for every right answer."""

import math

import numpy as np

from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention.properties import (
    RETURNED,
    given,
    more_than_rounding,
    of_weights,
)
from course_lib.exercises._rows import Given
from course_lib.reference import scaled_dot_product as oracle


# ---------------------------------------------------------------- problems
def problem_of(rng, batch, n, m, d, v, make_array=tensor, scale=1.2, **options) -> Given:
    """Random queries, keys and values; zero, one or more leading axes."""
    shapes = {"queries": (*batch, n, d), "keys": (*batch, m, d), "values": (*batch, m, v)}
    return {k: make_array(rng.normal(0, scale, s), **options) for k, s in shapes.items()}


def replaced(problem, **arrays) -> Given:
    """The same problem with other numbers in some arguments."""
    made = {}
    for name, old in problem.items():
        data = np.array(arrays.get(name, old.data), dtype=np.float64)
        made[name] = Array(data, old.kind, old.strided, old.requires_grad)
    return made


def random_mask(rng, *shape) -> np.ndarray:
    """True and False in every row, not the same in all rows."""
    drawn = rng.random(shape) < 0.6
    for row in np.ndindex(shape[:-1]):
        drawn[row][rng.integers(shape[-1])] = True
        if drawn[row].all():
            drawn[row][rng.integers(shape[-1])] = False
    drawn[(0,) * (len(shape) - 2)][:2] = False
    drawn[(0,) * (len(shape) - 2)][0, -1] = True
    drawn[(0,) * (len(shape) - 2)][1, :2] = True
    return drawn


def large(rng, make_array=tensor, batch=()) -> Given:
    """Scores from -5850 to 2250, in two rows that are far apart."""
    lead = (lambda rows: [rows]) if batch else (lambda rows: rows)
    return replaced(
        problem_of(rng, batch, 2, 3, 4, 2, make_array),
        queries=lead([[900.0, 0, 0, 0], [0, 900.0, 0, 0]]),
        keys=lead([[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]]),
    )


EMPTY = np.array([[True, False, True], [False, False, False]])


# ---------------------------------------------------------------- properties
def multiple_of(right, found) -> float | None:
    """The factor, other than 1, by which all numbers of `found` are those of `right`; or None."""
    sizes = np.unique(np.round(np.abs(right[right != 0]), 6))
    if found.shape != right.shape or not np.isfinite(found).all() or len(sizes) < 2:
        return None
    factor = float((right * found).sum() / (right * right).sum())
    wrong = math.isclose(factor, 1.0, rel_tol=1e-4) or abs(factor) < 1e-6
    return None if wrong or not np.allclose(found, factor * right, atol=1e-6) else factor


def _right(probe) -> tuple[np.ndarray, np.ndarray]:
    """What the oracle makes of the probe: (outputs, weights)."""
    queries, keys, values = _inputs(probe)
    lens, mask = given(probe, "valid_lens"), given(probe, "mask")
    return oracle.scaled_dot_product_attention(queries, keys, values, lens, mask).outputs


def _inputs(probe) -> list[np.ndarray]:
    return [probe.inputs()[name].data for name in ("queries", "keys", "values")]


_FEWEST_DIFFERENCES = 4


def _slope_of(probe, weights, allowed) -> float | None:
    """The factor between q . k and the logits of the allowed keys, if there is one."""
    if (weights[allowed] <= 1e-12).any() or (abs(weights[~allowed]) > 1e-9).any():
        return None
    if np.maximum(allowed.sum(-1) - 1, 0).sum() < _FEWEST_DIFFERENCES:
        return None  # a few differences lie on a line by chance

    def centred(numbers) -> np.ndarray:
        mean = np.where(allowed, numbers, 0.0).sum(-1, keepdims=True)
        mean = mean / np.maximum(allowed.sum(-1, keepdims=True), 1)
        return np.where(allowed, numbers - mean, 0.0)

    queries, keys, _ = _inputs(probe)
    x = centred(queries @ np.swapaxes(keys, -1, -2))
    y = centred(np.log(np.where(allowed, weights, 1.0)))
    if (x * x).sum() < 1e-9 or (y * y).sum() < 1e-9:
        return None
    slope = float((x * y).sum() / (x * x).sum())
    is_right = math.isclose(slope, queries.shape[-1] ** -0.5, rel_tol=1e-3)
    return None if is_right or not np.allclose(y, slope * x, atol=1e-4) else slope


@of_weights
def _slope(probe, weights, allowed) -> str | None:
    if (slope := _slope_of(probe, weights, allowed)) is None:
        return None
    d = _inputs(probe)[0].shape[-1]
    return (
        f"Your weights are those of {slope:.3f} times q . k. Here d is {d}, so the factor should "
        f"be 1/sqrt({d}) = {d**-0.5:.3f}."
    )


@of_weights
def _factors(probe, weights, allowed) -> set[str] | None:
    """What a wrong factor may be, in words that do not depend on the problem."""
    if (slope := _slope_of(probe, weights, allowed)) is None:
        return None
    queries, keys, values = _inputs(probe)
    (n, d), m, v = queries.shape[-2:], keys.shape[-2], values.shape[-1]
    factors = {
        "1/d": 1 / d,
        "sqrt(d)": d**0.5,
        "1/sqrt(m), where m is the number of keys": m**-0.5,
        "1/sqrt(n), where n is the number of queries": n**-0.5,
        "1/sqrt(v), where v is the size of a value": v**-0.5,
    }
    fits = {words for words, factor in factors.items() if math.isclose(slope, factor, rel_tol=1e-3)}
    return {f"In all problems, yours is {words}." for words in fits} | {
        f"It is {slope:.3g} in all problems, whatever their sizes are."
    }


def _other_order(probe, outputs) -> str | None:
    right, found = _right(probe), [item.data for item in outputs.items.values()]
    if right[0].shape != right[1].shape:
        return None
    if not all(np.allclose(a, b, atol=1e-4) for a, b in zip(found, right[::-1], strict=True)):
        return None
    return "You return the weights first and the outputs second; it must be the other way round."


def _inconsistent(probe, outputs) -> str | None:
    theirs, weights = (item.data for item in outputs.items.values())
    made = weights @ given(probe, "values")
    much = more_than_rounding(probe)
    if not np.isfinite(weights).all() or np.allclose(made, theirs, rtol=much, atol=1e-4):
        return None
    return "The outputs that you return are not the weights that you return times the values."


def wrong_factor(of: str = "") -> Property:
    """The property that weights are those of q . k / sqrt(d), returned or kept as an attribute."""
    return Property(
        "wrong_factor",
        _slope,
        "What do you divide the dot products by, and which size does it come from?",
        of,
        _factors,
    )


PROPERTIES = (
    Property(
        "returned_in_the_other_order",
        _other_order,
        "In which order does the exercise ask for them?",
    ),
    Property(
        "outputs_are_not_weighted_values", _inconsistent, "Which weights multiply the values?"
    ),
    RETURNED[0],
    wrong_factor(),
    *RETURNED[1:],
)
