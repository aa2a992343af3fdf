"""Oracle of lesson 08: every number comes from its definition, without blocks."""

import math
from collections.abc import Sequence

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.batch_matmul import dot
from course_lib.reference.masked_softmax import softmax_of


def softmax_statistics(blocks: Sequence[np.ndarray]) -> Expected:
    """Return each row's maximum and its sum of exponentials, computed from all columns at once."""
    scores = np.concatenate(list(blocks), axis=-1)
    maxima, totals = np.empty(scores.shape[:-1]), np.zeros(scores.shape[:-1])
    for row in np.ndindex(maxima.shape):
        finite = [float(score) for score in scores[row] if score > -math.inf]
        maxima[row] = max(finite, default=-math.inf)
        totals[row] = math.fsum(math.exp(score - maxima[row]) for score in finite)
    return Expected((maxima, totals))


def blocked_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    mask: np.ndarray | None = None,
    block_size: int = 1,
) -> Expected:
    """Compute all scores at once, ignoring the block size."""
    scores = np.einsum("...nd,...md->...nm", queries, keys) / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -math.inf)
    largest = scores.max(-1, keepdims=True)
    exponentials = np.exp(scores - np.where(largest == -math.inf, 0.0, largest))
    totals = exponentials.sum(-1, keepdims=True)
    weights = exponentials / np.where(totals == 0, 1.0, totals)
    with np.errstate(divide="ignore"):
        logsumexp = (largest + np.log(totals))[..., 0]
    return Expected((np.einsum("...nm,...mv->...nv", weights, values), logsumexp))


def recomputed_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    mask: np.ndarray | None = None,
    block_size: int = 1,
) -> Expected:
    """Return the outputs, which do not depend on what is saved for the backward pass."""
    return Expected(blocked_attention(queries, keys, values, mask).outputs[0])


def factored_additive_scores(
    projected_queries: np.ndarray, projected_keys: np.ndarray, w_v: np.ndarray
) -> Expected:
    """Compute w_v . tanh(query + key), for all pairs."""
    return Expected(np.tanh(projected_queries[:, :, None] + projected_keys[:, None]) @ w_v)


def jacobian_wrt_query(query: np.ndarray, keys: np.ndarray) -> Expected:
    """Compute entry (a, b) as sum_j w_j (k_ja - mean_a) (k_jb - mean_b) / sqrt(d)."""
    d = len(query)
    weights = softmax_of([dot(query, key) / math.sqrt(d) for key in keys])
    pairs = list(zip(weights, keys, strict=True))
    mean = [math.fsum(w * float(key[a]) for w, key in pairs) for a in range(d)]
    jacobian = np.empty((d, d))
    for a, b in np.ndindex(d, d):
        terms = (w * (float(key[a]) - mean[a]) * (float(key[b]) - mean[b]) for w, key in pairs)
        jacobian[a, b] = math.fsum(terms) / math.sqrt(d)
    return Expected(jacobian)


def attention_backward(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, grad_outputs: np.ndarray
) -> Expected:
    """Add each query's share, through the explicit Jacobian of its softmax: diag(w) - w w^T."""
    d = queries.shape[-1]
    grads = np.zeros(queries.shape), np.zeros(keys.shape), np.zeros(values.shape)
    for i, (query, grad) in enumerate(zip(queries, grad_outputs, strict=True)):
        weights = softmax_of([dot(query, key) / math.sqrt(d) for key in keys])
        grad_weights = [dot(grad, value) for value in values]
        for j, weight in enumerate(weights):
            grads[2][j] += weight * grad
            grad_score = math.fsum(
                weight * ((j == k) - weights[k]) * grad_weights[k] for k in range(len(weights))
            )
            grads[0][i] += grad_score * keys[j] / math.sqrt(d)
            grads[1][j] += grad_score * query / math.sqrt(d)
    return Expected(grads)
