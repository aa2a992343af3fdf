"""Answers to `stable_softmax`."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def row_shift(scores, axis=-1):
    e = np.exp(scores - np.max(scores, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


@right
def log_sum_exp(scores, axis=-1):
    top = scores.max(axis, keepdims=True)
    return np.exp(scores - top - np.log(np.exp(scores - top).sum(axis, keepdims=True)))


@right
def moved_axis_and_loop(scores, axis=-1):
    moved = np.moveaxis(scores, axis, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    out = np.stack([np.exp(r - r.max()) / np.exp(r - r.max()).sum() for r in rows])
    return np.moveaxis(out.reshape(moved.shape), -1, axis)


@right
def copied_then_in_place(scores, axis=-1):
    out = scores.copy()
    out -= out.max(axis=axis, keepdims=True)
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


@wrong("input_mutated")
def in_place(scores, axis=-1):
    scores -= scores.max(axis=axis, keepdims=True)
    e = np.exp(scores)
    return e / e.sum(axis=axis, keepdims=True)


through_torch = right(
    lambda scores, axis=-1: torch.softmax(torch.from_numpy(scores.copy()), dim=axis).numpy()
)


def total(numbers, axis):
    return numbers.sum(axis=axis, keepdims=True)


def top(numbers, axis):
    return numbers.max(axis=axis, keepdims=True)


def of_shifted(weigh):
    """Weights from the scores less their maximum: `weigh(shifted, axis)`."""
    return lambda scores, axis=-1: weigh(scores - top(scores, axis), axis)


def shifting(shift):
    """Weights from the scores as `shift(scores, axis)` leaves them."""

    def stable_softmax(scores, axis=-1):
        e = np.exp(shift(scores, axis))
        return e / total(e, axis)

    return stable_softmax


in_float32 = wrong("dtype_changed")(
    shifting(lambda scores, axis: (scores - top(scores, axis)).astype(np.float32))
)
always_float64 = wrong("dtype_changed")(
    lambda scores, axis=-1: row_shift(scores.astype(np.float64), axis)
)
by_torch = wrong("wrong_type")(
    lambda scores, axis=-1: torch.softmax(torch.from_numpy(scores.copy()), axis)
)
sums_everything = wrong("does_not_sum_to_one")(
    of_shifted(lambda s, axis: np.exp(s) / np.exp(s).sum())
)
columns_sum_to_one = wrong("does_not_sum_to_one")(lambda scores, axis=-1: row_shift(scores, axis=0))


@faulty("no_maximum", "last_axis_only", "in_place", "in_float32")
def slips_along_an_axis(faults):
    def stable_softmax(scores, axis=-1):
        axis = -1 if "last_axis_only" in faults else axis
        work = scores if "in_place" in faults else scores.copy()
        if "no_maximum" not in faults:
            work -= work.max(axis=axis, keepdims=True)
        with np.errstate(all="ignore"):
            np.exp(work, out=work)
            weights = work / work.sum(axis=axis, keepdims=True)
        return weights.astype(np.float32) if "in_float32" in faults else weights

    return stable_softmax
