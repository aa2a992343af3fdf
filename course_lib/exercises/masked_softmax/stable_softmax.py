"""`stable_softmax`: a softmax that neither overflows nor changes its argument."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.definitions import Exercise, Property, Returned
from course_lib.checks.observe.probe import Array, Probe, array
from course_lib.exercises._builders import case, edge, in_eighths, mistake


def _probes(rng) -> list[Probe]:
    def normal(*shape, **options) -> Array:
        return array(rng.normal(0, 1.3, shape), **options)

    rows = array(in_eighths(rng.normal(0, 1.3, (3, 4))) + np.array([[0.0], [900.0], [-900.0]]))
    far_above = rng.integers([[-9, 1500]], [[9, 3000]]).astype(float)
    return [
        case("worked_number", scores=array([[0.0, np.log(3)]])).says(
            "The weights of a row are proportional to exp(score) and sum to 1."
        ),
        case("first_axis", scores=normal(4, 3), by_name={"axis": 0}).says(
            "With `axis=0` the sums over the first axis must be 1."
        ),
        case("middle_axis", scores=normal(2, 5, 3), by_name={"axis": 1}).says(
            "With `axis=1` the sums over the middle axis of a 3-D array must be 1."
        ),
        case("float32", scores=array(rng.normal(0, 1.3, (3, 4)).astype(np.float32))).says(
            "Float32 scores must give float32 weights."
        ),
        edge("one_far_above", scores=array(far_above)).says(
            "One score far above the others of its row must not overflow either: subtract the "
            "row's maximum, not its mean or its first score."
        ),
        edge("far_apart_rows", scores=rows).says(
            "Rows of very different size must not disturb each other: subtract each row's own "
            "maximum, not the largest score of all."
        ),
    ]


def _over_its_sum(scores, axis=-1) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = np.exp(scores)
        return e / e.sum(axis=axis, keepdims=True)


def _last_axis(scores, axis=-1) -> np.ndarray:
    return _over_its_sum(scores - scores.max(-1, keepdims=True))


def _minus(number) -> Callable:
    """Subtract `number` of each row, which takes `axis` and `keepdims`."""
    return lambda scores, axis=-1: _over_its_sum(
        scores - number(scores, axis=axis, keepdims=True), axis
    )


def _first(scores, axis, keepdims) -> np.ndarray:
    return np.take(scores, [0], axis)


def _clipped(limit) -> Callable:
    return lambda scores, axis=-1: _over_its_sum(np.clip(scores, -limit, limit), axis)


def _sums_over_the_last_axis(scores, axis=-1) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)


def _does_not_sum_to_one(probe, outputs) -> str | None:
    axis = probe.kwargs.get("axis", -1)
    with np.errstate(all="ignore"):
        sums = np.ravel(outputs.data.sum(axis=axis))
    if np.isnan(sums).any() or np.allclose(sums, 1.0, atol=1e-4):
        return None
    first = sums[np.argmax(np.abs(sums - 1.0))]
    return f"Your weights sum to {first:.5g} along axis {axis} where they must sum to 1."


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("weights", "array", "float", ("the shape of scores",)),),
    probes=_probes,
    mistakes=(
        mistake("no_maximum_subtracted", _over_its_sum).says(
            "The formula is right, but for large scores exp overflows and inf / inf is NaN. For "
            "very negative ones every exponential can underflow, and 0 / 0 is NaN, too.",
            "Which number can you subtract from every score of a row without changing its weights?",
        ),
        mistake("axis_ignored", _last_axis, twins=(_sums_over_the_last_axis,)).says(
            "A step ignores the argument `axis` and always takes the last axis.",
            "Where does your code use `axis`?",
        ),
        mistake(
            "global_maximum", lambda scores, axis=-1: _over_its_sum(scores - scores.max(), axis)
        ).says(
            "You subtract the largest score of the whole array; rows far below it underflow to "
            "0 / 0.",
            "Which maximum belongs to each row?",
        ),
        mistake(
            "not_the_maximum",
            _minus(np.mean),
            twins=tuple(map(_minus, (_first, np.min, lambda s, **over: np.abs(s).max(**over)))),
        ).says(
            "From each row you subtract a number that need not be its maximum, so exp can still "
            "overflow, or all exponentials of a row can underflow.",
            "Which number, subtracted from a row, makes its largest exponent exactly 0?",
        ),
        mistake(
            "clipped",
            _clipped(700),
            twins=tuple(map(_clipped, (20, 30, 50, 60, 80, 88, 100, 500, 709))),
        ).says(
            "You clip the scores, so large scores that differ can get the same weight.",
            "Which number can you subtract from every score of a row without changing its weights?",
        ),
    ),
    properties=(
        Property("does_not_sum_to_one", _does_not_sum_to_one, "What exactly do you divide by?"),
    ),
    shares={"values": 0.4, "edges": 0.5, "hygiene": 0.1},
    hints=(
        "Adding the same number to all scores of a row does not change its weights. Which number "
        "makes the largest exponent exactly 0?",
        "Subtract the maximum along `axis`, take exp, divide by the sum along `axis`. "
        "`keepdims=True` keeps the shapes aligned for any number of axes.",
        "A smaller version first: `x = np.array([[1.0, 3.0], [5.0, 2.0]])`. What are the shapes of "
        "`x.max(axis=0)`, `x.max(axis=1)` and `x.max(axis=1, keepdims=True)`, and which of them "
        "can you subtract from `x` so that each row loses its own maximum?",
    ),
)
