"""Problems of lesson 01, and a step that several wrong answers share."""

import numpy as np
from torch import Tensor


def normal(rng, *shape) -> np.ndarray:
    """Draw numbers that are neither too near nor too far for a kernel."""
    return rng.normal(0, 1.3, shape)


def points(rng, count, spread=3.0) -> np.ndarray:
    """Draw points with neighbors, by perturbing and shuffling an even grid."""
    even = np.linspace(-spread, spread, count) + rng.uniform(-0.25, 0.25, count) * spread / count
    return rng.permutation(even)


def far_from_all(rng) -> tuple[np.ndarray, np.ndarray]:
    """Return two queries and five keys, of which two are nearest to each query.

    Both of these keys have the same distance from the query. Float32 makes the same error in both
    distances, so each weight stays one half.
    """
    near, far = rng.uniform(0.2, 1.5, 2)
    keys = np.array([[2, near], [2, -near], [-2, far], [-2, -far], [0, near]])
    return np.array([[60.0, 0], [-80.0, 0]]), rng.permutation(keys)


def minus_half_squared(queries, keys) -> Tensor:
    """Return -distance^2 / 2 for each query and key."""
    return -(queries[:, None] - keys[None]).square().sum(-1) / 2
