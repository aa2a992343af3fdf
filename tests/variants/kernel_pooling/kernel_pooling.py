"""Answers to `kernel_pooling`."""

import math

import torch

from course_lib.exercises.variants import faulty, right, wrong


def distances(queries, keys):
    return ((queries[:, None, :] - keys[None, :, :]) ** 2).sum(-1)


@right
def softmax_of_cdist(queries, keys, values, bandwidth):
    if values.ndim != 2:
        raise ValueError("values must have two axes")
    weights = torch.softmax(-0.5 * (torch.cdist(queries, keys) / bandwidth) ** 2, dim=1)
    return weights @ values, weights


@right
def shifted_exp_over_sum(queries, keys, values, bandwidth):
    if len(values.shape) != 2:
        raise ValueError(f"values has shape {tuple(values.shape)}")
    d = distances(queries, keys)
    d = d - d.min(dim=1, keepdim=True).values
    kernel = torch.exp(-d / (2 * bandwidth**2))
    weights = kernel / kernel.sum(dim=1, keepdim=True)
    return torch.einsum("nm,mv->nv", weights, values), weights


@right
def query_norm_dropped(queries, keys, values, bandwidth):
    if values.dim() == 1:
        raise ValueError("values")
    scores = (queries @ keys.T - (keys**2).sum(-1) / 2) / bandwidth**2
    weights = torch.nn.functional.softmax(scores, dim=-1)
    return torch.matmul(weights, values), weights


@right
def log_density(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    constant = math.log(bandwidth * math.sqrt(2 * math.pi))
    log_pdf = -distances(queries, keys) / (2 * bandwidth**2) - constant
    weights = torch.exp(log_pdf - torch.logsumexp(log_pdf, dim=1, keepdim=True))
    return weights.mm(values), weights


@right
def loop_over_queries(queries, keys, values, bandwidth):
    _, _ = ValueError, values.shape
    if values.dim() != 2:
        raise ValueError("values")
    outputs, rows = [], []
    for query in queries:
        w = torch.softmax(-((query - keys) ** 2).sum(-1) / 2 / bandwidth**2, 0)
        rows.append(w)
        outputs.append((w[:, None] * values).sum(0))
    return torch.stack(outputs), torch.stack(rows)


@right
def bandwidth_as_unit(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    scores = -distances(queries / bandwidth, keys / bandwidth) / 2
    weights = scores.softmax(-1)
    return (weights.unsqueeze(-1) * values).sum(1), weights


def pooled(weights, values):
    if values.dim() != 2:
        raise ValueError("values")
    return weights @ values, weights


@wrong("over_queries")
def softmax_over_rows(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / (2 * bandwidth**2), 0), values)


@wrong("not_normalised")
def kernel_sum(queries, keys, values, bandwidth):
    return pooled(torch.exp(-distances(queries, keys) / (2 * bandwidth**2)), values)


@wrong("plus_distance")
def sign_forgotten(queries, keys, values, bandwidth):
    return pooled(torch.softmax(distances(queries, keys) / (2 * bandwidth**2), -1), values)


@wrong("distance_not_squared")
def cdist_not_squared(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-torch.cdist(queries, keys) / (2 * bandwidth**2), -1), values)


@wrong("bandwidth_multiplied")
def precedence(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / 2 * bandwidth**2, -1), values)


@wrong("half_missing")
def no_half(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / bandwidth**2, -1), values)


@wrong("bandwidth_ignored")
def bandwidth_unused(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / 2, -1), values)


@wrong("bandwidth_not_squared")
def bandwidth_once(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / (2 * bandwidth), -1), values)


@wrong("far_query_nan")
def naive(queries, keys, values, bandwidth):
    kernel = torch.exp(-distances(queries, keys) / (2 * bandwidth**2))
    return pooled(kernel / kernel.sum(-1, keepdim=True), values)


@wrong("softmax_of_the_kernel")
def exponentiated_twice(queries, keys, values, bandwidth):
    kernel = torch.exp(-distances(queries, keys) / (2 * bandwidth**2))
    return pooled(torch.softmax(kernel, -1), values)


@wrong("no_error")
def no_check(queries, keys, values, bandwidth):
    weights = torch.softmax(-distances(queries, keys) / (2 * bandwidth**2), -1)
    return weights @ values, weights


@wrong()
def flat_values_unsqueezed(queries, keys, values, bandwidth):
    weights = torch.softmax(-distances(queries, keys) / (2 * bandwidth**2), -1)
    return weights @ (values if values.dim() == 2 else values[:, None]), weights


@wrong("wrong_type")
def forgot_the_weights(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / (2 * bandwidth**2), -1), values)[0]


@wrong("order_swapped")
def weights_first(queries, keys, values, bandwidth):
    outputs, weights = bandwidth_as_unit(queries, keys, values, bandwidth)
    return weights, outputs


@wrong("gradient_cut")
def no_grad(queries, keys, values, bandwidth):
    with torch.no_grad():
        weights = torch.softmax(-distances(queries, keys) / (2 * bandwidth**2), -1)
    return pooled(weights, values)


@wrong("gradient_not_finite")
def rooted(queries, keys, values, bandwidth):
    distance = torch.sqrt(distances(queries, keys))
    return pooled(torch.softmax(-(distance**2) / (2 * bandwidth**2), -1), values)


@wrong("dtype_changed")
def single_precision(queries, keys, values, bandwidth):
    outputs, weights = bandwidth_as_unit(queries.float(), keys.float(), values.float(), bandwidth)
    return outputs, weights


@wrong()
def dot_products(queries, keys, values, bandwidth):
    return pooled(torch.softmax(queries @ keys.T / (2 * bandwidth**2), -1), values)


@right
def through_a_ready_made_attention(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values must have two axes")
    penalty = -keys.square().sum(-1) / (2 * bandwidth**2)
    scale = 1 / bandwidth**2
    outputs = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=penalty.expand(len(queries), -1), scale=scale
    )
    return outputs, torch.softmax(scale * queries @ keys.T + penalty, dim=-1)


@right
def inputs_scaled_first(queries, keys, values, bandwidth=1.0, *, check=True):
    if check and values.ndim != 2:
        raise ValueError(f"values: {tuple(values.shape)}")
    differences = queries.unsqueeze(1) / bandwidth - keys.unsqueeze(0) / bandwidth
    weights = torch.softmax(-differences.square().sum(2) / 2, dim=1)
    return (weights.unsqueeze(2) * values).sum(1), weights


@wrong("far_query_underflows")
def nan_becomes_0(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    kernel = torch.exp(-torch.cdist(queries, keys).square() / (2 * bandwidth**2))
    weights = (kernel / kernel.sum(-1, keepdim=True)).nan_to_num(0.0)
    return weights @ values, weights


@wrong()
def bandwidth_kept_away_from_0(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values")
    squared = torch.cdist(queries, keys).square()
    weights = torch.softmax(-squared / (2 * max(bandwidth, 0.1) ** 2), dim=-1)
    return weights @ values, weights


@wrong("other_error")
def assertion(queries, keys, values, bandwidth):
    assert values.dim() == 2
    squared = torch.cdist(queries, keys).square()
    weights = torch.softmax(-squared / (2 * bandwidth**2), dim=-1)
    return weights @ values, weights


@right
def from_a_normal_distribution(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values must have two axes")
    spread = torch.as_tensor(bandwidth, dtype=queries.dtype)
    density = torch.distributions.Normal(queries[:, None], spread).log_prob(keys)
    weights = density.sum(-1).softmax(dim=1)
    return weights @ values, weights


@right
def softmin_in_a_list(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError("values must have two axes")
    weights = torch.nn.functional.softmin(distances(queries, keys) / (2 * bandwidth**2), dim=-1)
    return [torch.nn.functional.linear(weights, values.mT), weights]


@right
def unpacking_raises(queries, keys, values, bandwidth):
    _, _ = values.shape
    weights = torch.softmax(-distances(queries, keys) / (2 * bandwidth * bandwidth), 1)
    return torch.tensordot(weights, values, dims=1), weights


@wrong("not_a_number")
def epanechnikov(queries, keys, values, bandwidth):
    kernel = (1 - distances(queries, keys) / bandwidth**2).clamp(min=0)
    return pooled(kernel / kernel.sum(-1, keepdim=True), values)


@wrong("rows_do_not_sum_to_one")
def divided_by_the_number_of_keys(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise ValueError
    kernel = torch.exp(-(torch.cdist(queries, keys) ** 2) / (2 * bandwidth**2))
    return kernel @ values / len(keys), kernel / len(keys)


class NotTwoAxes(ValueError):
    pass


@right
def error_of_its_own(queries, keys, values, bandwidth):
    if values.dim() != 2:
        raise NotTwoAxes(tuple(values.shape))
    weights = torch.softmax(-0.5 * (torch.cdist(queries, keys) / bandwidth) ** 2, dim=1)
    return weights @ values, weights


@wrong("wrong_ratio_of_weights")
def two_in_the_square(queries, keys, values, bandwidth):
    return pooled(torch.softmax(-distances(queries, keys) / (2 * bandwidth) ** 2, -1), values)


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
