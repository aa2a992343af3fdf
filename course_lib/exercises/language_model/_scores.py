"""What the two scores of a head share: weights to look at, and models of wrong means."""

from collections.abc import Callable

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


def mean_of(
    columns: Callable[[int], int],
    first: int,
    weights: torch.Tensor,
    num_counted: int | None = None,
) -> torch.Tensor:
    """The sum of the weights [i, columns(i)] over i >= first, divided by how many those are.

    Columns out of range are left out of the sum and of the count; a negative one wraps around.
    """
    n = weights.shape[-1]
    places = [(i, columns(i)) for i in range(first, n) if -n <= columns(i) < n]
    total = sum((weights[:, i, j] for i, j in places), start=torch.zeros_like(weights[:, 0, 0]))
    return total / max(len(places) if num_counted is None else num_counted, 1)
