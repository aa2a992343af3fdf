"""Problems for attention in blocks."""

import numpy as np

from course_lib.checks.observe.probe import tensor
from course_lib.exercises._builders import Given


def problem(rng, n, m, d, v, *batch, scale=1.2, **options) -> Given:
    """Draw queries, keys and values of these sizes."""
    shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v)}
    return {k: tensor(rng.normal(0, scale, (*batch, *s)), **options) for k, s in shapes.items()}


def some(rng, *shape) -> np.ndarray:
    """Draw a mask that is True for the first and last key, and for about two thirds of the rest."""
    mask = rng.random(shape) < 0.65
    mask[..., [0, -1]] = True
    return mask


def lengths(m, *lens) -> np.ndarray:
    """Return a mask (batch, 1, m) that allows the first `lens[i]` keys of item i."""
    return np.arange(m) < np.array(lens)[:, None, None]


def rising(rng, n, m, d, v) -> Given:
    """Return a problem whose later keys have ever larger scores, with steps of about 1."""
    given = problem(rng, n, m, d, v)
    queries = np.abs(given["queries"].data) + 0.5
    keys = np.abs(given["keys"].data) * 0.2 + np.arange(m)[:, None] * 0.6
    return given | {"queries": tensor(queries), "keys": tensor(keys)}


def by_hand(**options) -> Given:
    """Return the worked example of the lesson, with scores 1, 0 and 2."""
    shapes = {"queries": [[1.0]], "keys": [[1.0], [0.0], [2.0]], "values": [[1.0], [3.0], [5.0]]}
    return {name: tensor(data, **options) for name, data in shapes.items()}
