"""Oracle of lesson 00: one score, one weight and one value at a time."""

import math

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import softmax_of


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> Expected:
    """Compute the scores, their softmax, and the weighted sum of the values one by one."""
    scores = [
        math.fsum(float(x) * float(y) for x, y in zip(query, key, strict=True))
        / math.sqrt(len(query))
        for key in keys
    ]
    weights = np.array(softmax_of(scores))
    output = np.zeros(values.shape[1])
    for weight, value in zip(weights, values, strict=True):
        output += weight * value
    return Expected((output, weights))


def most_attended(attention_weights: np.ndarray) -> Expected:
    """Return the position of the largest weight of each row, the first one on ties."""
    positions = np.zeros(attention_weights.shape[:-1], dtype=np.int64)
    for index in np.ndindex(positions.shape):
        row = attention_weights[index]
        for key in range(len(row)):
            if row[key] > row[positions[index]]:
                positions[index] = key
    return Expected(positions)
