"""Wrong models for lesson 01: each makes one mistake and is otherwise right."""

import math
import warnings

import numpy as np
import torch


def squared(queries, keys):
    """Squared distances, right."""
    return (queries[:, None] - keys[None]).square().sum(-1)


def pairwise(combine):
    """A wrong `squared_distances`: `combine` of the differences (n, m, d)."""
    return lambda queries, keys: combine(queries[:, None] - keys[None])


def expanded(norm_q=1.0, dots=-2.0, norm_k=1.0):
    """|q|^2, q.k and |k|^2, each with a factor."""

    def model(queries, keys):
        q2, k2 = queries.square().sum(-1)[:, None], keys.square().sum(-1)[None, :]
        return norm_q * q2 + dots * (queries @ keys.T) + norm_k * k2

    return model


def tiled_pairs(queries, keys):
    n, m = len(queries), len(keys)
    return (queries.repeat(m, 1) - keys.repeat(n, 1)).square().sum(-1).view(n, m)


def root_then_square(queries, keys):
    return squared(queries, keys).sqrt() ** 2


def row_by_row(queries, keys):
    return torch.stack([(query - keys).square().sum(-1) for query in queries])


def distances_without_graph(queries, keys):
    return squared(queries.detach(), keys.detach())


# ---------------------------------------------------------------- kernel_pooling
def pooling(weigh, check=True):
    """A wrong `kernel_pooling`: `weigh(squared distances, bandwidth)` gives the weights."""

    def model(queries, keys, values, bandwidth):
        if check and values.dim() != 2:
            raise ValueError("values")
        weights = weigh(squared(queries, keys), bandwidth)
        return weights @ values, weights

    return model


def scored(score, dim=-1):
    """Weights as the softmax of `score(squared distances, bandwidth)`."""
    return pooling(lambda s, h: torch.softmax(score(s, h), dim))


def gaussian(s, h):
    return torch.exp(-s / (2 * h**2))


def shifted(scores, dim):
    return scores - scores.amax(dim, keepdim=True)


def normalised(kernel):
    """Weights as a kernel divided by its total over the keys."""

    def weigh(s, h):
        values = kernel(s, h)
        return values / values.sum(-1, keepdim=True)

    return pooling(weigh)


def nearest(s, h):
    return torch.nn.functional.one_hot(s.argmin(-1), s.shape[-1]).to(s.dtype)


def dot_products(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    weights = torch.softmax(queries @ keys.T / bandwidth**2, -1)
    return weights @ values, weights


def first_feature(queries, keys, values, bandwidth):
    return pooling(lambda s, h: torch.softmax(-s / (2 * h**2), -1))(
        queries[:, :1], keys[:, :1], values, bandwidth
    )


def absolute_distance(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    taxi = (queries[:, None] - keys[None]).abs().sum(-1)
    weights = torch.softmax(-(taxi**2) / (2 * bandwidth**2), -1)
    return weights @ values, weights


def mean_distance(queries, keys, values, bandwidth):
    return right_pooling(queries, keys, values, bandwidth * math.sqrt(keys.shape[-1]))


def scaled_by_root_d(queries, keys, values, bandwidth):
    return right_pooling(queries, keys, values, bandwidth * keys.shape[-1] ** 0.25)


def right_pooling(queries, keys, values, bandwidth, check=True):
    return pooling(lambda s, h: torch.softmax(-s / (2 * h**2), -1), check)(
        queries, keys, values, bandwidth
    )


def only_outputs(*args):
    return right_pooling(*args)[0]


def swapped(*args):
    return right_pooling(*args)[::-1]


def weights_transposed(*args):
    outputs, weights = right_pooling(*args)
    return outputs, weights.T


def kernel_instead_of_weights(queries, keys, values, bandwidth):
    outputs, _ = right_pooling(queries, keys, values, bandwidth)
    return outputs, gaussian(squared(queries, keys), bandwidth)


def pooling_without_graph(queries, keys, values, bandwidth):
    return right_pooling(queries.detach(), keys.detach(), values, bandwidth)


# ---------------------------------------------------------------- leave_one_out
def _others(inputs):
    return ~torch.eye(len(inputs), dtype=torch.bool)


def _line(inputs):
    return (inputs[:, None] - inputs[None, :]).square()


def left_out(score=lambda s, h: -s / (2 * h**2), keep=_others, dim=-1, empty=0.0):
    """Leave-one-out over the pairs that `keep(inputs)` allows; `empty` fills rows without any."""

    def model(inputs, targets, bandwidth):
        scores = score(_line(inputs), bandwidth).masked_fill(~keep(inputs), -math.inf)
        return torch.softmax(scores, dim).nan_to_num(empty) @ targets

    return model


def same(numbers):
    return numbers[:, None] == numbers[None, :]


def without(pairs):
    """Leaves out `pairs(inputs, targets)`."""

    def model(inputs, targets, bandwidth):
        scores = -_line(inputs) / (2 * bandwidth**2)
        return torch.softmax(scores.masked_fill(pairs(inputs, targets), -math.inf), -1) @ targets

    return model


def everyone(inputs):
    return torch.ones(len(inputs), len(inputs), dtype=torch.bool)


def others_in_place(inputs):
    """Leaves out every pair with the same input, twins included."""
    return _line(inputs) > 0


def first_for_all(inputs):
    return (torch.arange(len(inputs)) > 0).expand(len(inputs), -1)


def next_one(inputs):
    return ~torch.roll(torch.eye(len(inputs), dtype=torch.bool), 1, dims=1)


def earlier_ones(inputs):
    return torch.ones(len(inputs), len(inputs), dtype=torch.bool).tril(-1)


def later_ones(inputs):
    return earlier_ones(inputs).mT


def distance_filled(number):
    """The diagonal of the distances is filled, before the bandwidth divides them."""

    def model(inputs, targets, bandwidth):
        distances = _line(inputs).masked_fill(~_others(inputs), number)
        return torch.softmax(-distances / (2 * bandwidth**2), -1).nan_to_num(0.0) @ targets

    return model


def infinity_times_zero(inputs, targets, bandwidth):
    scores = -_line(inputs) / (2 * bandwidth**2)
    return torch.softmax(scores - math.inf * torch.eye(len(inputs)).to(scores), -1) @ targets


def zero_weight_only(inputs, targets, bandwidth):
    weights = torch.softmax(-_line(inputs) / (2 * bandwidth**2), -1)
    return weights.masked_fill(~_others(inputs), 0.0) @ targets


def only_itself(inputs, targets, bandwidth):
    return targets.clone()


def masked_weights(inputs, targets, bandwidth):
    weights = torch.softmax(-_line(inputs) / (2 * bandwidth**2), -1)
    return weights.masked_fill(~_others(inputs), -math.inf) @ targets


def kernel_not_normalised(inputs, targets, bandwidth):
    return gaussian(_line(inputs), bandwidth).masked_fill(~_others(inputs), 0.0) @ targets


def leave_one_out_of_sorted_points(inputs, targets, bandwidth):
    order = inputs.argsort()
    return left_out()(inputs[order], targets[order], bandwidth)


def leave_one_out_with_epsilon(inputs, targets, bandwidth):
    kernel = gaussian(_line(inputs), bandwidth).masked_fill(~_others(inputs), 0.0)
    return kernel @ targets / (kernel.sum(-1) + 1e-10)


def residuals(inputs, targets, bandwidth):
    return targets - left_out()(inputs, targets, bandwidth)


def squared_errors(inputs, targets, bandwidth):
    return residuals(inputs, targets, bandwidth).square()


def mean_error(inputs, targets, bandwidth):
    return squared_errors(inputs, targets, bandwidth).mean()


def bandwidth_as_number(inputs, targets, bandwidth):
    number = bandwidth.item() if isinstance(bandwidth, torch.Tensor) else bandwidth
    return left_out()(inputs, targets, number)


def loo_without_graph(inputs, targets, bandwidth):
    return left_out()(inputs.detach(), targets.detach(), bandwidth_as_plain(bandwidth))


def bandwidth_as_plain(bandwidth):
    return bandwidth.detach() if isinstance(bandwidth, torch.Tensor) else bandwidth


def other_inputs_average(inputs, targets, bandwidth):
    """The plain average of the other targets."""
    return (targets.sum() - targets) / (len(targets) - 1)


def nearest_other(inputs, targets, bandwidth):
    return targets[_line(inputs).masked_fill(~_others(inputs), math.inf).argmin(-1)]


# ---------------------------------------------------------------- fit_bandwidth
def errors_at(inputs, targets, bandwidths, leave_out=True):
    """Mean squared error of kernel pooling for many bandwidths at once, NumPy."""
    squared_line = (inputs[:, None] - inputs[None, :]) ** 2
    if leave_out:
        squared_line = squared_line + np.diag(np.full(len(inputs), np.inf))
    shifted = squared_line - squared_line.min(-1, keepdims=True)
    scale = 2 * np.asarray(bandwidths, dtype=float)[:, None, None] ** 2
    weights = np.exp(-shifted / scale)
    predictions = (weights / weights.sum(-1, keepdims=True)) @ targets
    return ((predictions - targets) ** 2).mean(-1)


def _learned(initial):
    return torch.tensor(math.log(initial), dtype=torch.float64, requires_grad=True)


def step_without_a_leaf(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    """After `s = s - lr * s.grad` there is no gradient any more."""
    place = _learned(initial)
    for _ in range(2):
        (left_out()(inputs, targets, place.exp()) - targets).square().mean().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own hint at the mistake
            place = place - lr * place.grad


def step_recorded(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    place = _learned(initial)
    place -= lr


def graph_used_twice(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    bandwidth = _learned(initial).exp()
    for _ in range(2):
        (left_out()(inputs, targets, bandwidth) - targets).square().mean().backward()


def no_leaf_to_optimise(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    raise ValueError("can't optimize a non-leaf Tensor")  # as torch.optim, which loads for a second


def no_gradient(inputs, targets, initial=1.0, num_steps=200, lr=0.1):
    log_bandwidth = torch.tensor(math.log(initial), requires_grad=True)
    predictions = left_out()(inputs, targets, log_bandwidth.exp().item())
    (predictions - targets).square().mean().backward()
