"""Answers to `gaussian_as_dot_product`."""

import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def expanded(queries, keys, bandwidth):
    return queries @ keys.T / bandwidth**2 - (keys**2).sum(-1) / (2 * bandwidth**2)


@right
def one_more_feature(queries, keys, bandwidth):
    ones = torch.ones_like(queries[:, :1])
    longer_keys = torch.cat([keys, -keys.square().sum(-1, keepdim=True) / 2], dim=-1)
    return torch.cat([queries, ones], dim=-1) @ longer_keys.mT / bandwidth**2


@right
def einsum(queries, keys, bandwidth):
    dots = torch.einsum("nd,md->nm", queries, keys)
    return (dots - 0.5 * torch.einsum("md,md->m", keys, keys)[None, :]) / bandwidth**2


@right
def loop(queries, keys, bandwidth):
    rows = [[(q @ k - k @ k / 2) / bandwidth**2 for k in keys] for q in queries]
    return torch.stack([torch.stack(row) for row in rows])


@right
def log_of_the_kernel(queries, keys, bandwidth):
    shift = 7.5  # any number per query
    return shift - ((queries[:, None] - keys[None]) ** 2).sum(-1) / (2 * bandwidth**2)


@wrong("weights_returned")
def already_softmaxed(queries, keys, bandwidth):
    return torch.softmax(-(torch.cdist(queries, keys) ** 2) / (2 * bandwidth**2), dim=-1)


@wrong("query_norm_instead_of_key_norm")
def wrong_norm(queries, keys, bandwidth):
    return (queries @ keys.T - (queries**2).sum(-1, keepdim=True) / 2) / bandwidth**2


@wrong("transposed")
def keys_first(queries, keys, bandwidth):
    return (keys @ queries.T - (keys**2).sum(-1, keepdim=True) / 2) / bandwidth**2


@wrong("gradient_cut")
def no_graph(queries, keys, bandwidth):
    with torch.no_grad():
        return (queries @ keys.T - (keys**2).sum(-1) / 2) / bandwidth**2


@right
def one_longer_product(queries, keys, bandwidth):
    left = torch.cat([queries, torch.full_like(queries[:, :1], -0.5)], dim=1) / bandwidth
    right_side = torch.cat([keys, keys.square().sum(1, keepdim=True)], dim=1) / bandwidth
    return left @ right_side.T


@right
def logarithms_of_the_weights(queries, keys, bandwidth):
    squared = torch.cdist(queries, keys).square()
    return torch.log_softmax(-squared / (2 * bandwidth**2), dim=-1)


@wrong("log_of_the_kernel")
def back_from_the_kernel(queries, keys, bandwidth):
    squared = (queries[:, None] - keys).square().sum(-1)
    return torch.exp(-squared / (2 * bandwidth**2)).log()


@wrong()
def back_with_a_floor(queries, keys, bandwidth):
    squared = (queries[:, None] - keys).square().sum(-1)
    return torch.log(torch.exp(-squared / (2 * bandwidth**2)) + 1e-12)


@wrong("wrong_factors")
def no_parentheses(queries, keys, bandwidth):
    return queries @ keys.mT / bandwidth**2 - keys.pow(2).sum(1) / 2 * bandwidth**2


@right
def keys_as_a_layer(queries, keys, bandwidth):
    penalty = keys.square().sum(1) / 2
    return torch.nn.functional.linear(queries, keys, bias=-penalty) / bandwidth**2


@right
def relative_to_the_mean_key(queries, keys, bandwidth):
    centre = keys.mean(0)
    q, k = (queries - centre) / bandwidth, (keys - centre) / bandwidth
    return q @ k.mT - torch.linalg.vecdot(k, k) / 2


@wrong("wrong_factors")
def mixed_term_once(queries, keys, bandwidth):
    norms = queries.square().sum(1, keepdim=True) + keys.square().sum(1)
    return (queries @ keys.T - norms) / (2 * bandwidth**2)


@wrong("not_finite")
def logarithm_of_the_weights(queries, keys, bandwidth):
    kernel = torch.exp(-torch.cdist(queries, keys).square() / (2 * bandwidth**2))
    return torch.log(kernel / kernel.sum(1, keepdim=True))


norms_forgotten = wrong("only_for_unit_keys")(
    lambda queries, keys, bandwidth: queries @ keys.T / bandwidth**2
)
without_bandwidth = wrong("bandwidth_missing")(
    lambda queries, keys, bandwidth: queries @ keys.T - 0.5 * (keys**2).sum(-1)
)
positive_square = wrong("square_positive")(
    lambda queries, keys, bandwidth: torch.cdist(queries, keys) ** 2 / (2 * bandwidth**2)
)
bandwidth_once = wrong("bandwidth_not_squared")(
    lambda queries, keys, bandwidth: (queries @ keys.T - (keys**2).sum(-1) / 2) / bandwidth
)
distance_without_square = wrong()(
    lambda queries, keys, bandwidth: -torch.cdist(queries, keys) / (2 * bandwidth**2)
)
single_precision = wrong("dtype_changed")(
    lambda queries, keys, bandwidth: expanded(queries.float(), keys.float(), bandwidth)
)
diagonal_only = wrong("wrong_shape")(
    lambda queries, keys, bandwidth: expanded(queries, keys, bandwidth)[0]
)
full_square = right(
    lambda queries, keys, bandwidth: -(torch.cdist(queries, keys) ** 2) / (2 * bandwidth**2)
)
midpoint = right(
    lambda queries, keys, bandwidth: ((queries[:, None] - keys / 2) * keys).sum(-1) / bandwidth**2
)


@faulty("no_bandwidth", "log_of_kernel", "detached", "squeezed", "always_float64")
def several_faults(faults):
    def gaussian_as_dot_product(queries, keys, bandwidth):
        if "always_float64" in faults:
            queries, keys = queries.double(), keys.double()
        if "detached" in faults:
            queries, keys = queries.detach(), keys.detach()
        squared = ((queries[:, None] - keys) ** 2).sum(-1)
        scores = -squared / (2 if "no_bandwidth" in faults else 2 * bandwidth**2)
        if "log_of_kernel" in faults:
            scores = scores.exp().log()
        return scores.squeeze() if "squeezed" in faults else scores

    return gaussian_as_dot_product
