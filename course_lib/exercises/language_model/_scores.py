"""What the two scores of a head share: weights to look at, and models of wrong means."""

from collections.abc import Iterable

import numpy as np
import torch


def weights_of(rng, num_heads: int, num_positions: int, *, causal: bool = False) -> np.ndarray:
    """Attention weights `[head, position, key]` as a softmax makes them."""
    scores = rng.normal(0, 1.3, (num_heads, num_positions, num_positions))
    exponentials = np.exp(scores)
    exponentials = np.tril(exponentials) if causal else exponentials
    return exponentials / exponentials.sum(-1, keepdims=True)


def same_everywhere(rng, num_heads: int, num_positions: int) -> np.ndarray:
    """Weights that depend on the distance alone, in a circle: each diagonal is one number."""
    first = weights_of(rng, num_heads, num_positions)[:, 0]
    return np.stack([np.roll(first, i, axis=-1) for i in range(num_positions)], axis=1)


def equal_weights(num_heads: int, num_positions: int) -> np.ndarray:
    """Every position gets the same weight."""
    return np.full((num_heads, num_positions, num_positions), 1 / num_positions)


def mean_of(weights: torch.Tensor, rows: Iterable[int], offset: int, count: int) -> torch.Tensor:
    """The sum of the weights [i, i + offset] over the rows, divided by the count.

    Columns out of range are left out of the sum; a negative one wraps around.
    """
    n = weights.shape[-1]
    found = [weights[:, i, i + offset] for i in rows if i >= 0 and -n <= i + offset < n]
    return sum(found, start=torch.zeros_like(weights[:, 0, 0])) / max(count, 1)
