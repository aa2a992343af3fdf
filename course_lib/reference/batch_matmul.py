"""Oracle of lesson 03: every number of a product is a separate sum."""

import math

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import softmax_of


def dot(left: np.ndarray, right: np.ndarray) -> float:
    """Return the sum of products of two vectors of the same length."""
    return math.fsum(float(x) * float(y) for x, y in zip(left, right, strict=True))


def bmm(a: np.ndarray, b: np.ndarray) -> Expected:
    """Multiply row i of each item's `a` by column j of its `b` for each entry (..., i, j)."""
    product = np.empty((*a.shape[:-1], b.shape[-1]))
    for index in np.ndindex(product.shape):
        item, i, j = index[:-2], index[-2], index[-1]
        product[index] = dot(a[item][i], b[item][:, j])
    return Expected(product)


def bmm_loops(a: np.ndarray, b: np.ndarray) -> Expected:
    """Return the product for exactly one leading axis."""
    assert a.ndim == b.ndim == 3
    return bmm(a, b)


def batched_scores(queries: np.ndarray, keys: np.ndarray) -> Expected:
    """Multiply query i by key j of the same item for each entry (..., i, j)."""
    scores = np.empty((*queries.shape[:-1], keys.shape[-2]))
    for index in np.ndindex(scores.shape):
        item, i, j = index[:-2], index[-2], index[-1]
        scores[index] = dot(queries[item][i], keys[item][j])
    return Expected(scores)


def attention_pooling(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> Expected:
    """Compute scores, a softmax of each row, and the weighted sum of values one by one."""
    scores = batched_scores(queries, keys).outputs
    weights = np.empty(scores.shape)
    outputs = np.zeros((*scores.shape[:-1], values.shape[-1]))
    for row in np.ndindex(scores.shape[:-1]):
        weights[row] = softmax_of([float(score) for score in scores[row]])
        for j, weight in enumerate(weights[row]):
            outputs[row] += weight * values[(*row[:-1], j)]
    return Expected((outputs, weights))


def attention_cost(
    batch: int, num_queries: int, num_keys: int, d: int, d_v: int, bytes_per_element: int = 4
) -> Expected:
    """Count the operations of an entry of each product, and multiply by the number of entries."""
    per_score = 2 * d  # d multiplications, each added to a running sum
    per_output = 2 * num_keys  # for each key, a product that is added
    scores, outputs = batch * num_queries * num_keys, batch * num_queries * d_v
    flops = scores * per_score + outputs * per_output
    return Expected({"flops": flops, "score_bytes": scores * bytes_per_element})
