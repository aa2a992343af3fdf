"""`stable_softmax`: a softmax that neither overflows nor changes what it is given."""

import numpy as np

from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe, array
from course_lib.reference import masked_softmax as oracle


def _stable_softmax_probes(rng):
    def normal(*shape):
        return rng.normal(0, 1.3, shape)

    return [
        Probe(
            "one_row",
            "A row of scores must become weights proportional to exp(score).",
            args={"scores": array([[0.0, 1.0, -0.5]])},
        ),
        Probe(
            "matrix",
            "Each row must be normalised on its own: it sums to 1 over the last axis.",
            args={"scores": array(normal(3, 5))},
        ),
        Probe(
            "three_axes",
            "Any number of leading axes must work: the last one sums to 1.",
            args={"scores": array(normal(2, 3, 5))},
        ),
        Probe(
            "first_axis",
            "`axis=0` must normalise over the first axis.",
            args={"scores": array(normal(4, 3))},
            kwargs={"axis": 0},
        ),
        Probe(
            "middle_axis",
            "`axis=1` of a 3-D array must normalise over the middle axis.",
            args={"scores": array(normal(2, 5, 3), strided=True)},
            kwargs={"axis": 1},
        ),
        Probe(
            "axis_from_the_end",
            "`axis=-2` must normalise over the last axis but one.",
            args={"scores": array(normal(2, 3, 4, 5))},
            kwargs={"axis": -2},
        ),
        Probe("vector", "A single vector must work.", args={"scores": array(normal(6))}),
        Probe(
            "float32",
            "Scores in float32 must give weights in float32.",
            part="edges",
            args={"scores": array(normal(3, 4).astype(np.float32))},
        ),
        Probe(
            "large",
            "Large scores must not overflow: exp(1000) is inf, yet the weights exist.",
            part="edges",
            args={"scores": array([[1000.0, 1001.0, 999.0]])},
        ),
        Probe(
            "very_negative",
            "Very negative scores must not underflow to 0 / 0.",
            part="edges",
            args={"scores": array([[-1000.0, -1001.5, -1000.3]])},
        ),
        Probe(
            "far_apart_scores",
            "Scores of one row may lie far apart: the largest takes all the weight.",
            part="edges",
            args={"scores": array([[-900.0, 1.0, 0.5], [0.5, 3000.0, -1.0]])},
        ),
        Probe(
            "far_apart_rows",
            "Rows of very different size must not disturb each other: subtract each row's own "
            "maximum, not the largest score of all.",
            part="edges",
            args={"scores": array(normal(3, 4) + np.array([[0.0], [900.0], [-900.0]]))},
        ),
    ]


def _softmax_numpy(scores, axis=-1, shift=True, total_axis="axis"):
    scores = scores - scores.max(axis=axis, keepdims=True) if shift else scores
    with np.errstate(all="ignore"):
        e = np.exp(scores)
        return e / (e.sum() if total_axis is None else e.sum(axis=axis, keepdims=True))


def _other_maximum(scores, axis, maximum_axis):
    shifted = scores - scores.max(axis=maximum_axis, keepdims=True)
    return _softmax_numpy(shifted, axis, shift=False)


def _in_place_softmax(scores, axis=-1):
    scores -= scores.max(axis=axis, keepdims=True)
    return _softmax_numpy(scores, axis)


def _transposed_softmax(scores, axis=-1):
    e = np.exp(scores)
    return (e.T / e.sum(axis=axis).T).T


def _transposed_softmax_plain(scores, axis=-1):
    e = np.exp(scores)
    return (e.T / e.sum(axis=axis)).T


def _sums_to_one_numpy(probe, outputs):
    axis = probe.kwargs.get("axis", -1)
    if np.isnan(outputs.data).any():  # said elsewhere
        return None
    with np.errstate(all="ignore"):
        sums = outputs.data.sum(axis=axis)
    if np.allclose(sums, 1.0, atol=1e-4):
        return None
    return f"Your weights sum to {_first_off(sums):.3f} along axis {axis} where they must sum to 1."


def _first_off(sums):
    flat = np.ravel(sums)
    return float(flat[np.argmax(np.abs(flat - 1.0))])


STABLE_SOFTMAX = Exercise(
    name="stable_softmax",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("weights", "array", "float", ("the shape of scores",)),),
    probes=_stable_softmax_probes,
    oracle=oracle.stable_softmax,
    mistakes=(
        Mistake(
            "no_maximum_subtracted",
            lambda scores, axis=-1: _softmax_numpy(scores, axis, shift=False),
            "The formula is right, but exp overflows for large scores and the result is NaN "
            "(or 0 / 0 for very negative ones).",
            "Which number can you subtract from every score of a row without changing its weights?",
        ),
        Mistake(
            "no_maximum_subtracted_zeros",
            lambda scores, axis=-1: np.nan_to_num(_softmax_numpy(scores, axis, shift=False)),
            "exp overflows for large scores and underflows for very negative ones, and the NaN "
            "that follows becomes 0.",
            "Which number can you subtract from every score of a row without changing its weights?",
        ),
        Mistake(
            "wrong_axis",
            lambda scores, axis=-1: _softmax_numpy(scores, 0 if axis != 0 else -1),
            "Your weights are normalised over another axis than `axis`.",
            "Which axis do the maximum and the sum run over, and is it written there as a number?",
        ),
        Mistake(
            "axis_ignored",
            lambda scores, axis=-1: _softmax_numpy(scores, -1),
            "The last axis is right, but the argument `axis` changes nothing.",
            "Where does your code use `axis`?",
        ),
        Mistake(
            "global_sum",
            lambda scores, axis=-1: _softmax_numpy(scores, axis, total_axis=None),
            "You divide by the sum of all exponentials, so the whole array sums to 1 instead of "
            "each row.",
            "What do `axis=` and `keepdims=True` do in `sum`?",
        ),
        Mistake(
            "global_sum_and_maximum",
            lambda scores, axis=-1: _softmax_numpy(
                scores - scores.max(), axis, shift=False, total_axis=None
            ),
            "You divide by the sum of all exponentials, so the whole array sums to 1 instead of "
            "each row.",
            "What do `axis=` and `keepdims=True` do in `max` and `sum`?",
        ),
        Mistake(
            "global_maximum",
            lambda scores, axis=-1: _softmax_numpy(scores - scores.max(), axis, shift=False),
            "You subtract the largest score of the whole array; rows far below it underflow to "
            "0 / 0.",
            "Which maximum belongs to each row?",
        ),
        Mistake(
            "maximum_over_another_axis",
            lambda scores, axis=-1: _other_maximum(scores, axis, -1),
            "The sum runs over `axis`, the maximum over another axis: what you subtract differs "
            "from score to score of a row, and that changes the weights.",
            "Which axis does your `max` run over?",
        ),
        Mistake(
            "maximum_over_the_first_axis",
            lambda scores, axis=-1: _other_maximum(scores, axis, 0),
            "The sum runs over `axis`, the maximum over the first axis: what you subtract differs "
            "from score to score of a row, and that changes the weights.",
            "Which axis does your `max` run over?",
        ),
        Mistake(
            "another_number_subtracted",
            lambda scores, axis=-1: _softmax_numpy(
                scores - scores.mean(axis=axis, keepdims=True), axis, shift=False
            ),
            "You subtract a number of each row that need not be its largest score, such as the "
            "mean; a score far above it still overflows.",
            "Which number makes the largest exponent exactly 0?",
        ),
        Mistake(
            "transpose_trick",
            _transposed_softmax_plain,
            "Dividing through `.T` works for matrices only: in 3-D `.T` reverses all axes.",
            "What does `keepdims=True` make of the shape of the sum?",
        ),
        Mistake(
            "transpose_trick_everywhere",
            _transposed_softmax,
            "Transposing with `.T` turns all axes round, and no maximum is subtracted, so large "
            "scores overflow.",
            "What does `keepdims=True` make of the shape of the sum?",
        ),
        Mistake(
            "scores_overwritten",
            _in_place_softmax,
            "The weights are right, but `-=` writes the shifted scores into the caller's array.",
            "What is the difference between `x -= m` and `x = x - m`?",
        ),
    ),
    properties=(
        Property(
            "does_not_sum_to_one",
            _sums_to_one_numpy,
            "Which axis does the sum run over?",
        ),
    ),
    hints=(
        "Adding the same number to all scores of a row leaves its weights as they are. Which "
        "number makes the largest exponent exactly 0?",
        "Subtract the maximum along `axis`, take exp, divide by the sum along `axis`. "
        "`keepdims=True` keeps the shapes aligned for any number of axes.",
        "shifted = scores - scores.max(axis=..., keepdims=True)\n"
        "exponentials = np.exp(shifted)\n"
        "return exponentials / exponentials.sum(...)",
    ),
)
