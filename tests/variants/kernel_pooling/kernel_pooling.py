"""Answers to `kernel_pooling`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong


def distances(queries, keys):
    return ((queries[:, None, :] - keys[None, :, :]) ** 2).sum(-1)


@right
def softmax_of_cdist(queries, keys, values, bandwidth):
    if values.ndim != 2:
        raise ValueError("values must have two axes")
    weights = torch.softmax(-0.5 * (torch.cdist(queries, keys) / bandwidth) ** 2, dim=1)
    return weights @ values, weights


@right
def query_norm_dropped(queries, keys, values, bandwidth):
    if values.dim() == 1:
        raise ValueError("values")
    scores = (queries @ keys.T - (keys**2).sum(-1) / 2) / bandwidth**2
    weights = torch.nn.functional.softmax(scores, dim=-1)
    return torch.matmul(weights, values), weights


@right
def bandwidth_as_unit(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    scores = -distances(queries / bandwidth, keys / bandwidth) / 2
    weights = scores.softmax(-1)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("no_error")
def no_check(queries, keys, values, bandwidth):
    weights = torch.softmax(-distances(queries, keys) / (2 * bandwidth**2), -1)
    return weights @ values, weights


@wrong("other_error")
def assertion(queries, keys, values, bandwidth):
    assert values.dim() == 2
    return no_check(queries, keys, values, bandwidth)


def weighing(weigh):
    """Right but for the weights, which are `weigh(squared distances, bandwidth)`."""

    def kernel_pooling(queries, keys, values, bandwidth):
        if values.dim() != 2:
            raise ValueError("values")
        weights = weigh(distances(queries, keys), bandwidth)
        return weights @ values, weights

    return kernel_pooling


def scoring(score):
    """Right but for the scores, which are `score(squared distances, bandwidth)`."""
    return weighing(lambda squared, h: torch.softmax(score(squared, h), -1))


def kernel(squared, h):
    return torch.exp(-squared / (2 * h**2))


weights_detached = wrong("gradient_cut")(
    lambda *inputs: ((pooled := bandwidth_as_unit(*inputs))[0], pooled[1].detach())
)
no_grad = wrong("gradient_cut")(scoring(lambda squared, h: -squared.detach() / (2 * h**2)))
item_of_an_int = wrong("raised")(
    lambda *given: bandwidth_as_unit(
        *given[:3], given[3] if isinstance(given[3], float) else given[3].item()
    )
)


@wrong()
def small_number_in_the_denominator(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values must have two axes")
    kernel = torch.exp(-distances(queries, keys) / (2 * bandwidth**2))
    weights = kernel / (kernel.sum(dim=1, keepdim=True) + 1e-8)
    return weights @ values, weights


forgot_the_weights = wrong("one_result_only")(lambda *inputs: bandwidth_as_unit(*inputs)[0])
single_precision = wrong("dtype_changed")(
    lambda queries, keys, values, bandwidth: bandwidth_as_unit(
        queries.float(), keys.float(), values.float(), bandwidth
    )
)


@faulty("bandwidth_once", "no_shift", "no_check", "detached", "always_float64")
def several_faults(faults):
    def kernel_pooling(queries, keys, values, bandwidth):
        if "no_check" not in faults and values.dim() != 2:
            raise ValueError("values must have two axes")
        if "always_float64" in faults:
            queries, keys, values = queries.double(), keys.double(), values.double()
        squared = distances(queries, keys)
        if "detached" in faults:
            squared = squared.detach()
        scores = -squared / (2 * (bandwidth if "bandwidth_once" in faults else bandwidth**2))
        if "no_shift" not in faults:
            scores = scores - scores.max(dim=1, keepdim=True).values
        kernel = torch.exp(scores)
        weights = kernel / kernel.sum(dim=1, keepdim=True)
        return weights @ values, weights

    return kernel_pooling
