"""Lesson 01: attention before neural networks. A prediction is a weighted average of values."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def squared_distances(
    queries: Float[Tensor, "num_queries d"], keys: Float[Tensor, "num_keys d"]
) -> Float[Tensor, "num_queries num_keys"]:
    """Return the squared Euclidean distance between every query and every key.

    distance^2_ij = sum_c (queries_ic - keys_jc)^2

    Args:
        queries: one row for each query.
        keys: one row for each key, as wide as the queries.

    Returns:
        Tensor `(num_queries, num_keys)`.
    """
    differences = queries[:, None, :] - keys[None, :, :]  # (num_queries, num_keys, d)
    return differences.square().sum(dim=-1)  # (num_queries, num_keys)


@checked
def kernel_pooling(
    queries: Float[Tensor, "num_queries d"],
    keys: Float[Tensor, "num_keys d"],
    values: Float[Tensor, "num_keys v"],
    bandwidth: int | float | Tensor,
) -> tuple[Float[Tensor, "num_queries v"], Float[Tensor, "num_queries num_keys"]]:
    """Return for each query an average of all values in which near keys count most.

    weight_ij is proportional to exp(-distance_ij^2 / (2 bandwidth^2)) and sums to 1 over the keys.
    The constant in front of the Gaussian density cancels and is left out.

    Args:
        queries: the places to predict at.
        keys: the places where a value is known.
        values: the value of each key, one per row.
        bandwidth: h > 0, in the units of the distances; a number or a tensor that holds one.

    Returns:
        The outputs `(num_queries, v)` and the attention weights `(num_queries, num_keys)`.

    Raises:
        ValueError: `values` does not have two axes.

    Source: Nadaraya 1964, https://doi.org/10.1137/1109020; Watson 1964,
        https://www.jstor.org/stable/25049340
    """
    if values.dim() != 2:
        raise ValueError(f"`values` must have shape (num_keys, v); got {tuple(values.shape)}.")
    scores = -squared_distances(queries, keys) / (2 * bandwidth**2)  # (num_queries, num_keys)
    attention_weights = torch.softmax(scores, dim=-1)  # (num_queries, num_keys)
    return attention_weights @ values, attention_weights


@checked
def leave_one_out(
    inputs: Float[Tensor, "num_points"],
    targets: Float[Tensor, "num_points"],
    bandwidth: int | float | Tensor,
) -> Float[Tensor, "num_points"]:
    """Predict each target from all the other pairs.

    Args:
        inputs: one number for each point; both queries and keys.
        targets: the number to predict at each point; the values.
        bandwidth: h > 0; a number or a tensor that holds one. The predictions are differentiable
            with respect to it.

    Returns:
        Tensor `(num_points,)`: at i, the kernel average of the targets without pair i; 0 if
        there is only one point.

    Source: Hastie, Tibshirani & Friedman 2009, section 7.10,
        https://hastie.su.domains/ElemStatLearn/
    """
    points = inputs[:, None]  # (num_points, 1)
    scores = -squared_distances(points, points) / (2 * bandwidth**2)  # (num_points, num_points)
    itself = torch.eye(len(inputs), dtype=torch.bool, device=inputs.device)
    weights = torch.softmax(scores.masked_fill(itself, -math.inf), dim=-1)
    return weights.masked_fill(itself, 0.0) @ targets  # (num_points,)


@checked
def fit_bandwidth(
    inputs: Float[Tensor, "num_points"],
    targets: Float[Tensor, "num_points"],
    initial: int | float = 1.0,
    num_steps: int = 200,
    lr: int | float = 0.1,
) -> float:
    """Find the bandwidth with the smallest mean squared leave-one-out error.

    Gradient descent (Adam) on the logarithm of the bandwidth, which keeps it positive.

    Args:
        inputs: one number for each point.
        targets: the number to predict at each point.
        initial: the bandwidth to start from, > 0.
        num_steps: how many steps to take.
        lr: the size of a step, > 0.

    Returns:
        The bandwidth, a positive Python float.

    Source: Kingma & Ba 2015, https://arxiv.org/abs/1412.6980
    """
    inputs, targets = inputs.detach(), targets.detach()
    log_bandwidth = inputs.new_tensor(math.log(initial)).requires_grad_()
    optimizer = torch.optim.Adam([log_bandwidth], lr=lr)
    for _ in range(num_steps):
        predictions = leave_one_out(inputs, targets, log_bandwidth.exp())
        error = (predictions - targets).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return log_bandwidth.exp().item()


@checked
def gaussian_as_dot_product(
    queries: Float[Tensor, "num_queries d"],
    keys: Float[Tensor, "num_keys d"],
    bandwidth: int | float | Tensor,
) -> Float[Tensor, "num_queries num_keys"]:
    """Return scores, made of dot products, whose softmax gives the weights of `kernel_pooling`.

    Args:
        queries: one row for each query.
        keys: one row for each key, of any length.
        bandwidth: h > 0; a number or a tensor that holds one.

    Returns:
        Scores `(num_queries, num_keys)`; the softmax runs over the keys.

    Source: Tsai et al. 2019, section 3, https://arxiv.org/abs/1908.11775
    """
    dot_products = queries @ keys.mT  # (num_queries, num_keys)
    half_norms = keys.square().sum(dim=-1) / 2  # (num_keys,)
    return (dot_products - half_norms) / bandwidth**2
