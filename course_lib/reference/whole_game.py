"""Oracle of lesson 00: each row is scanned for the best position so far."""

import numpy as np

from course_lib.reference import Expected


def most_attended(attention_weights: np.ndarray) -> Expected:
    """Return the position of the largest weight of each row, the first one on ties."""
    positions = np.zeros(attention_weights.shape[:-1], dtype=np.int64)
    for index in np.ndindex(positions.shape):
        row = attention_weights[index]
        for key in range(len(row)):
            if row[key] > row[positions[index]]:
                positions[index] = key
    return Expected(positions)
