"""Oracle of lesson 01: explicit sums, one query at a time."""

import math

import numpy as np

from course_lib.reference import Expected


def squared_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the squared Euclidean distance of two vectors."""
    return math.fsum((float(x) - float(y)) ** 2 for x, y in zip(a, b, strict=True))


def squared_distances(queries: np.ndarray, keys: np.ndarray) -> Expected:
    """Return one squared distance for each pair."""
    result = np.empty((len(queries), len(keys)))
    for i, j in np.ndindex(result.shape):
        result[i, j] = squared_distance(queries[i], keys[j])
    return Expected(result)


def gaussian_weights(squared: list[float], bandwidth: float) -> list[float]:
    """Divide the kernel values by their sum, relative to the nearest key's value."""
    nearest = min(squared)
    kernel = [math.exp(-(s - nearest) / (2 * bandwidth * bandwidth)) for s in squared]
    total = math.fsum(kernel)
    return [k / total for k in kernel]


def kernel_pooling(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, bandwidth: float
) -> Expected:
    """Return outputs and weights, one query at a time."""
    weights = np.empty((len(queries), len(keys)))
    outputs = np.zeros((len(queries), values.shape[1]))
    for i, query in enumerate(queries):
        weights[i] = gaussian_weights([squared_distance(query, key) for key in keys], bandwidth)
        for j, value in enumerate(values):
            outputs[i] += weights[i, j] * value
    return Expected((outputs, weights))


def leave_one_out(inputs: np.ndarray, targets: np.ndarray, bandwidth: float) -> Expected:
    """Delete each pair in turn and predict it from the rest, or 0 if nothing is left."""
    predictions = np.zeros(len(inputs))
    for i in range(len(inputs)):
        others = [j for j in range(len(inputs)) if j != i]
        if others:
            squared = [float(inputs[i] - inputs[j]) ** 2 for j in others]
            weights = gaussian_weights(squared, bandwidth)
            predictions[i] = math.fsum(w * targets[j] for w, j in zip(weights, others, strict=True))
    return Expected(predictions)


def fit_bandwidth(
    inputs: np.ndarray,
    targets: np.ndarray,
    initial: float = 1.0,
    num_steps: int = 200,
    lr: float = 0.1,
) -> Expected:
    """Search bandwidths from 0.002 to 20 times the range of the inputs on finer and finer grids."""
    spread = math.log(np.ptp(inputs) or 1.0)
    grid = np.linspace(spread + math.log(0.002), spread + math.log(20.0), 41)
    while grid[-1] - grid[0] > 1e-4:
        predictions = [leave_one_out(inputs, targets, math.exp(x)).outputs for x in grid]
        best = np.argmin(((predictions - targets) ** 2).sum(axis=1))
        low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
        grid = np.linspace(low, high, 9)
    return Expected(math.exp((grid[0] + grid[-1]) / 2))


def gaussian_as_dot_product(queries: np.ndarray, keys: np.ndarray, bandwidth: float) -> Expected:
    """Return the exponent of the Gaussian kernel from explicit squared distances."""
    return Expected(-squared_distances(queries, keys).outputs / (2 * bandwidth * bandwidth))
