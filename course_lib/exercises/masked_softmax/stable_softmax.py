"""`stable_softmax`: a softmax that neither overflows nor changes its argument."""

import numpy as np

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import array
from course_lib.exercises.kit import Problems, call, edge, in_eighths, like, mistake


def problems(rng) -> Problems:
    apart = in_eighths(rng.normal(0, 1.3, (3, 4))) + np.array([[0.0], [900.0], [-900.0]])
    far_above = rng.integers([[-9, 1500]], [[9, 3000]]).astype(float)
    yield "The weights of a row are proportional to exp(score) and sum to 1."
    yield call(array([[0.0, np.log(3)]]))
    yield "With `axis=0` the sums over the first axis must be 1."
    yield call(array(rng.normal(0, 1.3, (4, 3))), axis=0)
    yield "With `axis=1` the sums over the middle axis of a 3-D array must be 1."
    yield call(array(rng.normal(0, 1.3, (2, 5, 3))), axis=1)
    yield "Float32 scores must give float32 weights."
    yield call(array(rng.normal(0, 1.3, (3, 4)).astype(np.float32)))
    yield (
        "One score far above the others of its row must not overflow either: subtract the row's "
        "maximum, not its mean or its first score."
    )
    yield edge(array(far_above))
    yield (
        "Rows of very different size must not disturb each other: subtract each row's own maximum,"
        " not the largest score of all."
    )
    yield edge(array(apart))
    yield "A single score has weight 1: no small number may be added to the sum."
    yield edge(array(rng.normal(0, 1.3, (3, 1))), tolerance=2e-7)  # one rounding in float32


def over_its_sum(scores, axis=-1) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = np.exp(scores)
        return e / e.sum(axis=axis, keepdims=True)


@mistake
def no_maximum_subtracted(scores, axis=-1) -> np.ndarray:
    """For large scores exp overflows, and inf / inf is NaN. For very negative ones every
    exponential can underflow to 0.

    Which number can you subtract from every score of a row without changing its weights?
    """
    return over_its_sum(scores, axis)


@mistake
def axis_ignored(scores, axis=-1) -> np.ndarray:
    """A step ignores the argument `axis` and always takes the same axis, such as the last one.

    Where does your code use `axis`?
    """
    return over_its_sum(scores - scores.max(-1, keepdims=True))


@like(axis_ignored)
def axis_of_the_sum_ignored(scores, axis=-1) -> np.ndarray:
    return over_its_sum(scores - scores.max(axis=axis, keepdims=True), -1)


@like(axis_ignored)
def maximum_over_axis_0(scores, axis=-1) -> np.ndarray:
    return over_its_sum(scores - scores.max(axis=0, keepdims=True), axis)


@like(axis_ignored)
def maximum_over_the_last_axis(scores, axis=-1) -> np.ndarray:
    return over_its_sum(scores - scores.max(axis=-1, keepdims=True), axis)


@like(axis_ignored)
def axis_0_or_1(scores, axis=-1) -> np.ndarray:
    axis = 0 if scores.ndim == 1 else 1
    return over_its_sum(scores - scores.max(axis=axis, keepdims=True), axis)


@mistake
def global_maximum(scores, axis=-1) -> np.ndarray:
    """You subtract the largest score of the whole array; rows far below it underflow to 0 / 0.

    Which maximum belongs to each row?
    """
    return over_its_sum(scores - scores.max(), axis)


@mistake
def not_the_maximum(scores, axis=-1) -> np.ndarray:
    """You do not always subtract the maximum of each row before exp, so exp can overflow, or all
    exponentials of a row can underflow.

    Which number, subtracted from a row, makes its largest exponent exactly 0?
    """
    return over_its_sum(scores - scores.mean(axis=axis, keepdims=True), axis)


@like(not_the_maximum)
def largest_size_subtracted(scores, axis=-1) -> np.ndarray:
    return over_its_sum(scores - np.abs(scores).max(axis=axis, keepdims=True), axis)


@mistake
def clipped(scores, axis=-1) -> np.ndarray:
    """You clip the scores, so large scores that differ can get the same weight.

    Which number can you subtract from every score of a row without changing its weights?
    """
    return over_its_sum(np.clip(scores, -700, 700), axis)


@like(clipped)
def clipped_and_overflowing(scores, axis=-1) -> np.ndarray:
    return over_its_sum(np.clip(scores, -709, 709), axis)


def does_not_sum_to_one(probe, seen) -> Problem | None:
    axis = probe.kwargs.get("axis", -1)
    with np.errstate(all="ignore"):
        sums = np.ravel(seen.outputs.data.sum(axis=axis))
    if np.isnan(sums).any() or np.allclose(sums, 1.0, atol=1e-4):
        return None
    first = sums[np.argmax(np.abs(sums - 1.0))]
    fact = f"Your weights sum to {first:.5g} along axis {axis} where they must sum to 1."
    return Problem("does_not_sum_to_one", fact, "What exactly do you divide by?")


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("weights", "array", "float", ("the shape of scores",)),),
    probes=problems,
    properties=(does_not_sum_to_one,),
    hints=(
        "Adding the same number to all scores of a row does not change its weights. Which number "
        "makes the largest exponent exactly 0?",
        "Subtract the maximum along `axis`, take exp, divide by the sum along `axis`. "
        "`keepdims=True` keeps the shapes aligned for any number of axes.",
        "A smaller version first: `x = np.array([[1.0, 3.0], [5.0, 2.0]])`. What are the shapes of "
        "`x.max(axis=0)`, `x.max(axis=1)` and `x.max(axis=1, keepdims=True)`, and which of them "
        "can you subtract from `x` so that each row loses its own maximum?",
    ),
    marking=Marking(shares={"values": 0.4, "edges": 0.5, "hygiene": 0.1}),
)
