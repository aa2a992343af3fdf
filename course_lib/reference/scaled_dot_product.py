"""Oracle of lesson 05: every weight, every output and every gradient from plain sums."""

import math

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import masked_softmax


def score_variance(d: int, num_samples: int, scaled: bool, generator: object = None) -> Expected:
    """Return the exact variance: d terms of variance 1 each, divided by d if scaled."""
    return Expected(1.0 if scaled else float(d))


def scores_of(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the scaled dot products (..., n, m) of all pairs, summed over the features."""
    products = queries[..., :, None, :] * keys[..., None, :, :]
    return products.sum(axis=-1) / math.sqrt(queries.shape[-1])


def scaled_dot_product_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    valid_lens: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Expected:
    """Return outputs and weights, summing only over keys that have a weight."""
    weights = masked_softmax(scores_of(queries, keys), valid_lens, mask).outputs
    shares = weights[..., None] * values[..., None, :, :]  # (..., n, m, v)
    return Expected((np.where(weights[..., None] > 0, shares, 0.0).sum(axis=-2), weights))


def numpy_attention(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray | None = None
) -> Expected:
    """Return outputs and weights without lengths and without a batch axis."""
    return scaled_dot_product_attention(queries, keys, values, None, mask)


def dot_product_attention(
    construct: dict,
    state: dict,
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    valid_lens: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Expected:
    """Return the module's outputs in eval mode, and the weights as an attribute."""
    found = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)
    outputs, weights = found.outputs
    return Expected(outputs, attributes={"attention_weights": weights})
