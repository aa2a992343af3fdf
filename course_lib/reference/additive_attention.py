"""Oracle of lesson 04: one pair of a query and a key at a time, one hidden feature at a time."""

import math

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.batch_matmul import dot
from course_lib.reference.masked_softmax import masked_softmax


def additive_scores(
    queries: np.ndarray, keys: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray
) -> Expected:
    """Return the score of every query and key of every item."""
    scores = np.zeros((len(queries), queries.shape[1], keys.shape[1]))
    for b, i, j in np.ndindex(scores.shape):
        for feature in range(len(w_v)):
            inside = dot(w_q[feature], queries[b, i]) + dot(w_k[feature], keys[b, j])
            scores[b, i, j] += float(w_v[feature]) * math.tanh(inside)
    return Expected(scores)


def additive_attention(
    construct: dict,
    state: dict[str, np.ndarray],
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    valid_lens: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Expected:
    """Return the outputs without dropout, and the weights that the module keeps."""
    scores = additive_scores(
        queries, keys, state["W_q.weight"], state["W_k.weight"], state["w_v.weight"][0]
    )
    weights = masked_softmax(scores.outputs, valid_lens, mask).outputs
    outputs = np.zeros((*weights.shape[:2], values.shape[2]))
    for b, i, j in np.ndindex(weights.shape):
        outputs[b, i] += weights[b, i, j] * values[b, j]
    return Expected(outputs, attributes={"attention_weights": weights})
