"""Wrong models for lesson 01: each makes one mistake and is otherwise right."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch

from course_lib.exercises._rows import in_steps


def pairwise(combine) -> Callable:
    """A wrong `squared_distances`: `combine` of the differences (n, m, d)."""
    return lambda queries, keys: combine(queries[:, None] - keys[None])


def spoilt(change) -> Callable:
    """The right squared distances, and what `change` makes of them."""
    return pairwise(lambda differences: change(differences.square().sum(-1)))


def expanded(norm_q, dots, norm_k) -> Callable:
    """|q|^2, q.k and |k|^2, each with a factor."""

    def model(queries, keys) -> torch.Tensor:
        q2, k2 = queries.square().sum(-1)[:, None], keys.square().sum(-1)[None, :]
        return norm_q * q2 + dots * (queries @ keys.T) + norm_k * k2

    return model


# ---------------------------------------------------------------- kernel_pooling
def of_distances(score) -> Callable:
    """`score(squared distances, bandwidth)` for every query and key."""
    return lambda queries, keys, bandwidth: score(
        (queries[:, None] - keys[None]).square().sum(-1), bandwidth
    )


def pooling(weigh, finish=lambda outputs, weights: (outputs, weights)) -> Callable:
    """A wrong `kernel_pooling`: `weigh(squared distances, bandwidth)` gives the weights."""

    def model(queries, keys, values, bandwidth) -> tuple[torch.Tensor, torch.Tensor]:
        if values.dim() != 2:
            raise ValueError("values")
        weights = of_distances(weigh)(queries, keys, bandwidth)
        return finish(weights @ values, weights)

    return model


def scored(score, dim=-1) -> Callable:
    """Weights as the softmax of `score(squared distances, bandwidth)`."""
    return pooling(lambda s, h: torch.softmax(score(s, h), dim))


def gaussian(s, h) -> torch.Tensor:
    return torch.exp(-s / (2 * h**2))


def shifted(scores, dim) -> torch.Tensor:
    return scores - scores.amax(dim, keepdim=True)


def normalised(kernel) -> Callable:
    """Weights as a kernel divided by its total over the keys."""

    def weigh(s, h) -> torch.Tensor:
        values = kernel(s, h)
        return values / values.sum(-1, keepdim=True)

    return pooling(weigh)


def nearest(s, h) -> torch.Tensor:
    return torch.nn.functional.one_hot(s.argmin(-1), s.shape[-1]).to(s.dtype)


swapped = pooling(
    lambda s, h: torch.softmax(-s / (2 * h**2), -1), lambda outputs, weights: (weights, outputs)
)


# ---------------------------------------------------------------- leave_one_out
def _others(inputs) -> torch.Tensor:
    return ~torch.eye(len(inputs), dtype=torch.bool)


def _line(inputs) -> torch.Tensor:
    return (inputs[:, None] - inputs[None, :]).square()


def _score(s, h) -> torch.Tensor:
    return -s / (2 * h**2)


@in_steps(score=_score, keep=_others, dim=-1, number=lambda bandwidth: bandwidth)
def left_out(score, keep, dim, number) -> Callable:
    """Leave-one-out over the pairs that `keep(inputs)` allows; a row without any gets 0."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        scores = score(_line(inputs), number(bandwidth)).masked_fill(~keep(inputs), -math.inf)
        return torch.softmax(scores, dim).nan_to_num(0.0) @ targets

    return model


def same(numbers) -> torch.Tensor:
    return numbers[:, None] == numbers[None, :]


def without(pairs) -> Callable:
    """Leaves out `pairs(inputs, targets)`."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        scores = -_line(inputs) / (2 * bandwidth**2)
        return torch.softmax(scores.masked_fill(pairs(inputs, targets), -math.inf), -1) @ targets

    return model


def itself(inputs, targets) -> torch.Tensor:
    return torch.eye(len(inputs), dtype=torch.bool)


def everyone(inputs) -> torch.Tensor:
    return torch.ones(len(inputs), len(inputs), dtype=torch.bool)


def others_in_place(inputs) -> torch.Tensor:
    """Leaves out every pair with the same input, twins included."""
    return _line(inputs) > 0


def distance_filled(number) -> Callable:
    """The diagonal of the distances is filled, before the bandwidth divides them."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        distances = _line(inputs).masked_fill(~_others(inputs), number)
        return torch.softmax(-distances / (2 * bandwidth**2), -1).nan_to_num(0.0) @ targets

    return model


def zero_weight_only(inputs, targets, bandwidth) -> torch.Tensor:
    weights = torch.softmax(-_line(inputs) / (2 * bandwidth**2), -1)
    return weights.masked_fill(~_others(inputs), 0.0) @ targets


def masked_weights(inputs, targets, bandwidth) -> torch.Tensor:
    weights = torch.softmax(-_line(inputs) / (2 * bandwidth**2), -1)
    return weights.masked_fill(~_others(inputs), -math.inf) @ targets


bandwidth_as_number = left_out(
    number=lambda bandwidth: bandwidth.item() if torch.is_tensor(bandwidth) else bandwidth
)


# ---------------------------------------------------------------- fit_bandwidth
def errors_at(inputs, targets, bandwidths, leave_out=True) -> np.ndarray:
    """Mean squared error of kernel pooling for many bandwidths at once, NumPy."""
    squared_line = (inputs[:, None] - inputs[None, :]) ** 2
    if leave_out:
        squared_line = squared_line + np.diag(np.full(len(inputs), np.inf))
    shifted = squared_line - squared_line.min(-1, keepdims=True)
    scale = 2 * np.asarray(bandwidths, dtype=float)[:, None, None] ** 2
    weights = np.exp(-shifted / scale)
    predictions = (weights / weights.sum(-1, keepdims=True)) @ targets
    return ((predictions - targets) ** 2).mean(-1)


def _error(inputs, targets, bandwidth) -> torch.Tensor:
    """Mean squared error of the leave-one-out predictions."""
    scores = _score(_line(inputs), bandwidth).masked_fill(~_others(inputs), -math.inf)
    return (torch.softmax(scores, -1) @ targets - targets).square().mean()


def _learned(initial) -> torch.Tensor:
    return torch.tensor(math.log(initial), dtype=torch.float64, requires_grad=True)


def step_without_a_leaf(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
    """After `s = s - lr * s.grad` there is no gradient any more."""
    place = _learned(initial)
    for _ in range(2):
        _error(inputs, targets, place.exp()).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own hint at the mistake
            place = place - lr * place.grad  # pyright: ignore[reportOperatorIssue]: None, the mistake


def step_recorded(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
    place = _learned(initial)
    place -= lr


def graph_used_twice(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
    bandwidth = _learned(initial).exp()
    for _ in range(2):
        _error(inputs, targets, bandwidth).backward()


def no_leaf_to_optimise(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
    raise ValueError("can't optimize a non-leaf Tensor")  # as torch.optim, which loads for a second


def no_gradient(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
    log_bandwidth = torch.tensor(math.log(initial), requires_grad=True)
    _error(inputs, targets, log_bandwidth.exp().item()).backward()
