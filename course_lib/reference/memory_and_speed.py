"""Oracle of lesson 08. There are no blocks here: every number comes from its definition."""

import math
from collections.abc import Sequence

import numpy as np

from course_lib.reference.masked_softmax import allowed_keys
from course_lib.reference.scaled_dot_product import scaled_dot_product_attention, scores_of


def log_sum_exp(scores: Sequence[float]) -> float:
    """log of the sum of the exponentials; -inf of nothing."""
    largest = max(scores, default=-math.inf)
    if largest == -math.inf:
        return -math.inf
    return largest + math.log(math.fsum(math.exp(score - largest) for score in scores))


def softmax_statistics(blocks: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Each row's largest number and its sum, with all its columns at hand."""
    scores = np.concatenate(list(blocks), axis=-1)
    maxima, totals = np.empty(scores.shape[:-1]), np.zeros(scores.shape[:-1])
    for row in np.ndindex(maxima.shape):
        finite = [float(score) for score in scores[row] if score > -math.inf]
        maxima[row] = max(finite, default=-math.inf)
        totals[row] = math.fsum(math.exp(score - maxima[row]) for score in finite)
    return maxima, totals


def blocked_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    mask: np.ndarray | None = None,
    block_size: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Lesson 05's outputs, and the logarithm of each query's sum; a block size changes nothing."""
    outputs, _ = scaled_dot_product_attention(queries, keys, values, None, mask)
    scores = scores_of(queries, keys)
    allowed = allowed_keys(scores.shape, None, mask)
    logsumexp = np.empty(scores.shape[:-1])
    for row in np.ndindex(logsumexp.shape):
        logsumexp[row] = log_sum_exp([float(score) for score in scores[row][allowed[row]]])
    return outputs, logsumexp


def recomputed_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    mask: np.ndarray | None = None,
    block_size: int = 1,
) -> np.ndarray:
    """Lesson 05's outputs; what is kept for the backward pass changes nothing."""
    return scaled_dot_product_attention(queries, keys, values, None, mask)[0]


def factored_additive_scores(
    projected_queries: np.ndarray, projected_keys: np.ndarray, w_v: np.ndarray
) -> np.ndarray:
    """w_v . tanh(query + key), one feature of one pair at a time."""
    batch, num_queries, _ = projected_queries.shape
    scores = np.empty((batch, num_queries, projected_keys.shape[1]))
    for b, i, j in np.ndindex(scores.shape):
        pairs = zip(w_v, projected_queries[b, i], projected_keys[b, j], strict=True)
        scores[b, i, j] = math.fsum(float(w) * math.tanh(float(q) + float(k)) for w, q, k in pairs)
    return scores
