"""Answers to `stable_softmax`."""

import numpy as np
import torch

from course_lib.exercises.variants import faulty, right, wrong


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
def pairwise_differences(scores, axis=-1):
    moved = np.moveaxis(scores, axis, -1)
    with np.errstate(over="ignore"):
        out = 1.0 / np.exp(moved[..., None, :] - moved[..., :, None]).sum(-1)
    return np.moveaxis(out, -1, axis)


@right
def copied_then_in_place(scores, axis=-1):
    out = scores.copy()
    out -= out.max(axis=axis, keepdims=True)
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


@wrong("axis_ignored")
def last_axis_only(scores, axis=-1):
    shifted = scores - scores.max(-1)[..., None]
    return np.exp(shifted) / np.exp(shifted).sum(-1)[..., None]


@wrong("does_not_sum_to_one")
def sums_everything(scores, axis=-1):
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / e.sum()


@wrong("global_maximum")
def one_maximum(scores, axis=-1):
    e = np.exp(scores - scores.max())
    return e / e.sum(axis=axis, keepdims=True)


@wrong("scores_overwritten")
def in_place(scores, axis=-1):
    scores -= scores.max(axis=axis, keepdims=True)
    e = np.exp(scores)
    return e / e.sum(axis=axis, keepdims=True)


@wrong("dtype_changed")
def in_float32(scores, axis=-1):
    shifted = (scores - scores.max(axis=axis, keepdims=True)).astype(np.float32)
    return np.exp(shifted) / np.exp(shifted).sum(axis=axis, keepdims=True)


@wrong()
def clipped(scores, axis=-1):
    e = np.exp(np.clip(scores, -50, 50))
    return e / e.sum(axis=axis, keepdims=True)


@wrong()
def with_epsilon(scores, axis=-1):
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / (e.sum(axis=axis, keepdims=True) + 1e-3)


@right
def shifted_twice(scores, axis=-1):
    shifted = scores - scores.mean(axis=axis, keepdims=True)
    e = np.exp(shifted - shifted.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@wrong()
def first_axis_in_the_maximum(scores, axis=-1):
    e = np.exp(scores - scores.max(0))
    return e / e.sum(axis=axis, keepdims=True)


@wrong("keepdims_forgotten")
def keepdims_in_neither(scores, axis=-1):
    scores = scores - np.max(scores, axis)
    exps = np.exp(scores)
    return exps / np.sum(exps, axis)


@wrong("wrong_axis")
def columns_sum_to_one(scores, axis=-1):
    shifted = scores - scores.max(axis=0)
    return np.exp(shifted) / np.exp(shifted).sum(axis=0)


naive = wrong("no_maximum_subtracted")(
    lambda scores, axis=-1: np.exp(scores) / np.exp(scores).sum(axis=axis, keepdims=True)
)
returns_a_tensor = wrong("wrong_type")(
    lambda scores, axis=-1: torch.softmax(torch.from_numpy(scores.copy()), dim=axis)
)
through_torch = right(
    lambda scores, axis=-1: torch.softmax(torch.from_numpy(scores.copy()), dim=axis).numpy()
)
in_logarithms = right(
    lambda scores, axis=-1: np.exp(scores - np.logaddexp.reduce(scores, axis=axis, keepdims=True))
)


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


@faulty("no_maximum", "one_total", "in_place")
def slips_with_one_total(faults):
    def stable_softmax(scores, axis=-1):
        if "no_maximum" not in faults:
            top = scores.max(axis=axis, keepdims=True)
            scores = np.subtract(scores, top, out=scores if "in_place" in faults else None)
        elif "in_place" in faults:
            np.exp(scores, out=scores)
            scores = np.log(scores)
        with np.errstate(all="ignore"):
            exps = np.exp(scores)
            total = exps.sum() if "one_total" in faults else exps.sum(axis=axis, keepdims=True)
            return exps / total

    return stable_softmax
