"""Numbers to try an answer of lesson 01 on, and steps that several wrong answers share."""

from collections.abc import Callable

import numpy as np
import torch


def normal(rng, *shape) -> np.ndarray:
    """Numbers of a size that no kernel finds too near or too far."""
    return rng.normal(0, 1.3, shape)


def points(rng, count, spread=3.0) -> np.ndarray:
    """Points that have neighbours: evenly spread, then shaken and shuffled."""
    even = np.linspace(-spread, spread, count) + rng.uniform(-0.25, 0.25, count) * spread / count
    return rng.permutation(even)


def of_distances(score) -> Callable:
    """`score(squared distances, bandwidth)` for every query and key."""
    return lambda queries, keys, bandwidth: score(
        (queries[:, None] - keys[None]).square().sum(-1), bandwidth
    )


def gaussian(s, h) -> torch.Tensor:
    return torch.exp(-s / (2 * h**2))
