"""Oracle of lesson 02: every weight is computed separately, with masks as rules."""

import math

import numpy as np

from course_lib.reference import Expected


def softmax_of(scores: list[float]) -> list[float]:
    """Return the softmax of a plain list of numbers."""
    largest = max(scores)
    exponentials = [math.exp(score - largest) for score in scores]
    total = math.fsum(exponentials)
    return [e / total for e in exponentials]


def stable_softmax(scores: np.ndarray, axis: int = -1) -> Expected:
    """Compute softmax along one axis, one line of numbers at a time."""
    moved = np.moveaxis(np.asarray(scores, dtype=np.float64), axis, -1)
    weights = np.empty(moved.shape)
    for index in np.ndindex(moved.shape[:-1]):
        weights[index] = softmax_of([float(s) for s in moved[index]])
    return Expected(np.moveaxis(weights, -1, axis))


def length_mask(valid_lens: np.ndarray, max_len: int) -> Expected:
    """Return True where the key's number is smaller than the length."""
    mask = np.empty((*valid_lens.shape, max_len), dtype=bool)
    for index in np.ndindex(mask.shape):
        mask[index] = index[-1] < valid_lens[index[:-1]]
    return Expected(mask)


def causal_mask(num_queries: int, num_keys: int | None = None) -> Expected:
    """Return True where the key is not after the query, both counted from the end."""
    num_keys = num_queries if num_keys is None else num_keys
    mask = np.empty((num_queries, num_keys), dtype=bool)
    for i, j in np.ndindex(mask.shape):
        mask[i, j] = (num_keys - 1 - j) >= (num_queries - 1 - i)
    return Expected(mask)


def combine_masks(*masks: np.ndarray | None) -> Expected:
    """Return True where all masks are True."""
    given = [mask for mask in masks if mask is not None]
    if not given:
        return Expected(None)
    given = np.broadcast_arrays(*given)
    combined = np.empty(given[0].shape, dtype=bool)
    for index in np.ndindex(combined.shape):
        combined[index] = all(bool(mask[index]) for mask in given)
    return Expected(combined)


def additive_mask(mask: np.ndarray, dtype: str) -> Expected:
    """Return 0 where a key is kept and -inf where it is dropped."""
    numbers = np.empty(mask.shape)
    for index in np.ndindex(mask.shape):
        numbers[index] = 0.0 if mask[index] else -math.inf
    return Expected(numbers)


def allowed_keys(
    shape: tuple[int, ...], valid_lens: np.ndarray | None = None, mask: np.ndarray | None = None
) -> np.ndarray:
    """Return a bool array of `shape` = (..., n, m) with True where a query may attend to a key."""
    allowed = np.ones(shape, dtype=bool)
    full_mask = None if mask is None else np.broadcast_to(mask, shape)
    for row in np.ndindex(shape[:-1]):
        if valid_lens is not None:
            length = valid_lens[row[0]] if valid_lens.ndim == 1 else valid_lens[row[0], row[-1]]
            allowed[row] = [key < length for key in range(shape[-1])]
        if full_mask is not None:
            allowed[row] &= full_mask[row]
    return allowed


def masked_softmax(
    scores: np.ndarray, valid_lens: np.ndarray | None = None, mask: np.ndarray | None = None
) -> Expected:
    """Compute softmax over the allowed keys of each row, with zeros elsewhere."""
    allowed = allowed_keys(scores.shape, valid_lens, mask)
    weights = np.zeros(scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        keys = [key for key, kept in enumerate(allowed[row].tolist()) if kept]
        if keys:
            numbers = scores[row].tolist()
            weights[row][keys] = softmax_of([numbers[key] for key in keys])
    return Expected(weights)


def attend(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, allowed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and weights of scaled dot products, one query at a time, over allowed keys."""
    weights = np.zeros(allowed.shape)
    outputs = np.zeros((*allowed.shape[:-1], values.shape[-1]))
    for row in np.ndindex(allowed.shape[:-1]):
        seen, item = np.flatnonzero(allowed[row]), row[:-1]
        if len(seen):
            scores = [float((queries[row] * keys[item][j]).sum()) for j in seen]
            weights[row][seen] = softmax_of([s / math.sqrt(queries.shape[-1]) for s in scores])
            outputs[row] = sum(weights[row][j] * values[item][j] for j in seen)
    return outputs, weights
