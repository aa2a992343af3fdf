"""Answers to `numpy_attention`."""

import math

import numpy as np

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@right
def rows_in_a_loop(queries, keys, values, mask=None):
    n, m = len(queries), len(keys)
    weights = np.zeros((n, m))
    if mask is not None:
        mask = np.broadcast_to(mask, (n, m))
    for i in range(n):
        allowed = np.arange(m) if mask is None else np.flatnonzero(mask[i])
        if len(allowed) == 0:
            continue
        s = np.array([np.dot(queries[i], keys[j]) / np.sqrt(len(keys[j])) for j in allowed])
        weights[i, allowed] = softmax(s)
    return np.matmul(weights, values), weights


@right
def nan_to_num_at_the_end(queries, keys, values, mask=None):
    scores = (queries / np.sqrt(queries.shape[-1])) @ np.transpose(keys)
    if mask is not None:
        scores = scores + np.where(mask, 0.0, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(scores))
    return w.dot(values), w


@right
def from_logaddexp(queries, keys, values, mask=None):
    scores = np.dot(queries, keys.T) * keys.shape[-1] ** -0.5
    scores = np.where(True if mask is None else mask, scores, -np.inf)
    log_sums = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(log_sums), 0, log_sums))
    return np.einsum("nm,mv->nv", weights, values), weights


def masked(scores, mask, number=-np.inf):
    return scores if mask is None else np.where(mask, scores, number)


def scaled(queries, keys):
    return queries @ keys.T / np.sqrt(queries.shape[-1])


def attention(
    queries,
    keys,
    values,
    mask=None,
    *,
    score=scaled,
    weigh=lambda scores, mask: np.nan_to_num(softmax(masked(scores, mask))),
):
    """A right answer in steps; what follows changes one. NumPy says nothing of 0 / 0."""
    with np.errstate(all="ignore"):
        weights = weigh(score(queries, keys), mask)
    return weights @ values, weights


but = wrong_in(attention)


def without_a_maximum(scores, mask):
    exponentials = np.exp(masked(scores, mask))
    return exponentials / exponentials.sum(-1, keepdims=True)


@wrong("input_mutated")
def scales_in_place(queries, keys, values, mask=None):
    queries /= math.sqrt(queries.shape[-1])
    return rows_in_a_loop(queries * math.sqrt(queries.shape[-1]), keys, values, mask)


naive_exp = but("not_a_number", weigh=without_a_maximum)
infinity_times_zero = but(
    "not_a_number",
    weigh=lambda s, mask: softmax(s if mask is None else s + (1 - mask) * -np.inf),
)


@faulty("unscaled", "filled_with_zero", "no_maximum", "empty_rows")
def with_faults(faults):
    def attention(queries, keys, values, mask=None):
        s = queries @ keys.T
        if "unscaled" not in faults:
            s = s / math.sqrt(queries.shape[-1])
        if mask is not None:
            s = np.where(mask, s, 0.0 if "filled_with_zero" in faults else -np.inf)
        if "no_maximum" not in faults:
            top = s.max(axis=-1, keepdims=True)
            s = s - np.where(np.isneginf(top), 0, top)
        with np.errstate(all="ignore"):
            w = np.exp(s) / np.exp(s).sum(axis=-1, keepdims=True)
        if mask is not None and "empty_rows" not in faults:
            w = np.where(np.broadcast_to(mask, w.shape).any(axis=-1, keepdims=True), w, 0)
        return w @ values, w

    return attention
