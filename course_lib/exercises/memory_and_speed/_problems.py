"""Problems for attention in blocks."""

import numpy as np

from course_lib.checks.observe.probe import Array, tensor


def drawn(rng, n, m, d, v, *batch, **options) -> list[Array]:
    """Draw queries, keys and values of these sizes."""
    shapes = ((*batch, n, d), (*batch, m, d), (*batch, m, v))
    return [tensor(rng.normal(0, 1.2, shape), **options) for shape in shapes]


def some(rng, *shape) -> np.ndarray:
    """Draw a mask that is True for the first and last key, and for about two thirds of the rest."""
    mask = rng.random(shape) < 0.65
    mask[..., [0, -1]] = True
    return mask


def lengths(m, *lens) -> np.ndarray:
    """Return a mask (batch, 1, m) that allows the first `lens[i]` keys of item i."""
    return np.arange(m) < np.array(lens)[:, None, None]


def rising(rng, n, m, d, v) -> list[Array]:
    """Return a problem whose later keys have ever larger scores, with steps of about 1."""
    queries, keys, values = drawn(rng, n, m, d, v)
    larger = np.abs(keys.data) * 0.2 + np.arange(m)[:, None] * 0.6
    return [tensor(np.abs(queries.data) + 0.5), tensor(larger), values]


# The worked example of the lesson, with scores 1, 0 and 2.
BY_HAND = [[1.0]], [[1.0], [0.0], [2.0]], [[1.0], [3.0], [5.0]]
