"""Lesson 01: numbers to try an answer on."""

import numpy as np


def normal(rng, *shape) -> np.ndarray:
    """Numbers of a size that no kernel finds too near or too far."""
    return rng.normal(0, 1.3, shape)


def points(rng, count, spread=3.0) -> np.ndarray:
    """Points that have neighbours: evenly spread, then shaken and shuffled."""
    even = np.linspace(-spread, spread, count) + rng.uniform(-0.25, 0.25, count) * spread / count
    return rng.permutation(even)
