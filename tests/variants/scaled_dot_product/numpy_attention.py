"""Answers to `numpy_attention`."""

import math

import numpy as np

from course_lib.exercises.variants import faulty, right, wrong


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
def softmax_zero_renormalise(queries, keys, values, mask=None):
    scores = np.einsum("nd,md->nm", queries, keys) / queries.shape[1] ** 0.5
    allowed = np.ones_like(scores) if mask is None else np.broadcast_to(mask, scores.shape) * 1.0
    top = np.max(np.where(allowed > 0, scores, -np.inf), axis=1)
    top[~np.isfinite(top)] = 0
    e = np.exp(np.minimum(scores - top[:, None], 0)) * allowed
    total = e.sum(1, keepdims=True)
    w = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return w @ values, w


@right
def nan_to_num_at_the_end(queries, keys, values, mask=None):
    scores = (queries / np.sqrt(queries.shape[-1])) @ np.transpose(keys)
    if mask is not None:
        scores = scores + np.where(mask, 0.0, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(scores))
    return w.dot(values), w


@right
def fourth_root_of_both(queries, keys, values, mask=None):
    d = keys.shape[-1]
    scores = np.inner(queries / d**0.25, keys / d**0.25)
    if mask is not None:
        scores[~np.broadcast_to(mask, scores.shape)] = np.finfo(scores.dtype).min
    w = softmax(scores)
    if mask is not None:
        w = w * mask
    return w @ values, w


@wrong("unscaled")
def seed_001_scaled(queries, keys, values, mask=None):
    scaled = np.matmul(queries, keys.T)
    if mask is not None:
        scaled = np.where(mask, scaled, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(scaled))
    return w @ values, w


@wrong("zero_one_mask_added")
def seed_001_combined(queries, keys, values, mask=None):
    scaled = np.matmul(queries, keys.T) / np.sqrt(queries.shape[-1])
    if mask is not None:
        scaled = scaled + mask
    e = np.exp(scaled - scaled.max(-1, keepdims=True))
    w = (e.T / np.sum(e, axis=-1)).T
    return w @ values, w


@wrong("no_maximum_subtracted")
def naive_exp(queries, keys, values, mask=None):
    s = queries @ keys.T / np.sqrt(queries.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(all="ignore"):
        w = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    return w @ values, w


@wrong("mask_recoded_twice")
def cell_run_twice(queries, keys, values, mask=None):
    s = queries @ keys.T / np.sqrt(queries.shape[-1])
    if mask is not None:
        numbers = mask.astype(float)
        for _ in range(2):
            numbers[numbers == 0] = -np.inf
            numbers[numbers == 1] = 0
        s = s + numbers
    with np.errstate(all="ignore"):
        w = np.exp(s - s.max(-1, keepdims=True))
        w = w / w.sum(-1, keepdims=True)
    return w @ values, w


@wrong("empty_row_nan")
def forgets_empty_rows(queries, keys, values, mask=None):
    s = queries @ keys.T / math.sqrt(keys.shape[1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        w = softmax(s)
    return w @ values, w


@wrong("empty_row_uniform")
def minus_1e9(queries, keys, values, mask=None):
    s = queries @ keys.T / math.sqrt(keys.shape[1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    w = softmax(s)
    return w @ values, w


@wrong("inverted")
def masks_the_allowed(queries, keys, values, mask=None):
    s = queries @ keys.T / math.sqrt(keys.shape[1])
    if mask is not None:
        s = np.where(mask, -np.inf, s)
    with np.errstate(invalid="ignore"):
        w = softmax(s)
    w = np.nan_to_num(w)
    return w @ values, w


@wrong("over_queries")
def first_axis(queries, keys, values, mask=None):
    s = queries @ keys.T / math.sqrt(keys.shape[1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.exp(s - s.max(0))
        w = np.nan_to_num(w / w.sum(0))
    return w @ values, w


@wrong("bool_mask_ignored+divided_by_d")
def by_d_and_no_mask(queries, keys, values, mask=None):
    w = softmax(queries @ keys.T / keys.shape[1])
    return w @ values, w


@wrong("input_mutated")
def scales_in_place(queries, keys, values, mask=None):
    queries /= math.sqrt(queries.shape[-1])
    s = queries @ keys.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(s))
    return w @ values, w


@wrong("dtype_changed")
def single_precision(queries, keys, values, mask=None):
    queries, keys, values = (x.astype(np.float32) for x in (queries, keys, values))
    s = queries @ keys.T / np.float32(math.sqrt(keys.shape[1]))
    if mask is not None:
        s = np.where(mask, s, np.float32(-np.inf))
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(s))
    return w @ values, w


@wrong("wrong_type")
def a_list(queries, keys, values, mask=None):
    out, w = rows_in_a_loop(queries, keys, values, mask)
    return out.tolist(), w.tolist()


@wrong("raised")
def full_mask_only(queries, keys, values, mask=None):
    s = queries @ keys.T / math.sqrt(keys.shape[1])
    if mask is not None:
        for i in range(len(queries)):
            for j in range(len(keys)):
                if not mask[i, j]:
                    s[i, j] = -np.inf
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(s))
    return w @ values, w


@right
def bias_of_minus_infinity(queries, keys, values, mask=None):
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.T
    if mask is not None:
        bias = np.zeros(mask.shape)
        bias[~mask] = -np.inf
        scores = scores + bias
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(softmax(scores))
    return weights @ values, weights


@wrong("empty_row_has_weight")
def mask_only_if_something_is_allowed(queries, keys, values, mask=None):
    scores = queries @ keys.T / np.sqrt(queries.shape[-1])
    if mask is not None and mask.any():
        scores = np.where(mask, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(softmax(scores))
    return weights @ values, weights


@wrong("maximum_of_matrix")
def one_maximum(queries, keys, values, mask=None):
    scores = queries @ keys.T / np.sqrt(queries.shape[-1])
    kept = scores if mask is None else np.where(mask, scores, -np.inf)
    exponentials = np.exp(kept - kept[np.isfinite(kept)].max(initial=-1e300))
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = np.divide(exponentials, sums, out=np.zeros_like(scores), where=sums > 0)
    return weights @ values, weights


@wrong()
def scores_clipped(queries, keys, values, mask=None):
    scores = queries @ keys.T / np.sqrt(queries.shape[-1])
    exponentials = np.exp(np.clip(scores, -50, 50)) * (True if mask is None else mask)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums == 0, 1, sums)
    return weights @ values, weights


@right
def from_logaddexp(queries, keys, values, mask=None):
    scores = np.dot(queries, keys.T) * keys.shape[-1] ** -0.5
    scores = np.where(True if mask is None else mask, scores, -np.inf)
    log_sums = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(log_sums), 0, log_sums))
    return np.einsum("nm,mv->nv", weights, values), weights


@wrong("mask_recoded_twice")
def infinity_times_zero(queries, keys, values, mask=None):
    scores = queries @ keys.T / np.sqrt(queries.shape[-1])
    with np.errstate(invalid="ignore"):
        if mask is not None:
            scores = scores + (1 - mask) * -np.inf
        weights = softmax(scores)
    return weights @ values, weights


@wrong("global_rng_used")
def seeded_with_zero(queries, keys, values, mask=None):
    np.random.seed(0)
    return rows_in_a_loop(queries, keys, values, mask)


@wrong("zero_after_softmax")
def weights_zeroed(queries, keys, values, mask=None):
    w = softmax(np.dot(queries, keys.T) / np.sqrt(queries.shape[1]))
    if mask is not None:
        w[~np.broadcast_to(mask, w.shape)] = 0
    return w @ values, w


@wrong("filled_with_zero")
def scores_times_mask(queries, keys, values, mask=None):
    s = np.dot(queries, keys.T) / np.sqrt(queries.shape[1])
    w = softmax(s if mask is None else s * mask)
    return w @ values, w


@wrong("bool_mask_ignored")
def mask_forgotten(queries, keys, values, mask=None):
    w = softmax(np.inner(queries, keys) / keys.shape[1] ** 0.5)
    return w.dot(values), w


@wrong("divided_by_d")
def by_the_number_of_features(queries, keys, values, mask=None):
    s = np.einsum("nd,md->nm", queries, keys) / keys.shape[1]
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(softmax(s))
    return w @ values, w


@wrong("over_queries")
def columns_sum_to_one(queries, keys, values, mask=None):
    s = queries.dot(keys.T) / np.sqrt(len(queries[0]))
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(axis=0))
        w = e / e.sum(axis=0)
    return w @ values, w


@wrong("allowed_key_has_no_weight")
def maximum_of_the_row_then_masked(queries, keys, values, mask=None):
    s = queries @ keys.T / np.sqrt(queries.shape[1])
    e = np.exp(s - s.max(axis=1, keepdims=True)) * (1 if mask is None else mask)
    total = e.sum(axis=1, keepdims=True)
    w = e / np.where(total == 0, 1, total)
    return w @ values, w


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
