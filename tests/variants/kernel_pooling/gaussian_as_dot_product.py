"""Answers to `gaussian_as_dot_product`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def expanded(queries, keys, bandwidth):
    return queries @ keys.T / bandwidth**2 - (keys**2).sum(-1) / (2 * bandwidth**2)


@right
def one_more_feature(queries, keys, bandwidth):
    ones = torch.ones_like(queries[:, :1])
    longer_keys = torch.cat([keys, -keys.square().sum(-1, keepdim=True) / 2], dim=-1)
    return torch.cat([queries, ones], dim=-1) @ longer_keys.mT / bandwidth**2


@right
def loop(queries, keys, bandwidth):
    rows = [[(q @ k - k @ k / 2) / bandwidth**2 for k in keys] for q in queries]
    return torch.stack([torch.stack(row) for row in rows])


full_square = right(
    lambda queries, keys, bandwidth: -(torch.cdist(queries, keys) ** 2) / (2 * bandwidth**2)
)


def of_kernel(score):
    """Scores from the exponent of the kernel, which is right."""
    return lambda queries, keys, bandwidth: score(full_square(queries, keys, bandwidth))


def of_norms(score):
    """Scores from dot products, (n, m), squared norms, (n, 1) and (m,), and the bandwidth."""
    return lambda queries, keys, bandwidth: score(
        queries @ keys.T, queries.pow(2).sum(1, keepdim=True), keys.pow(2).sum(1), bandwidth
    )


logarithms_of_the_weights = right(of_kernel(lambda s: torch.log_softmax(s, dim=-1)))
already_softmaxed = wrong("softmax_of_the_result")(of_kernel(lambda s: torch.softmax(s, dim=-1)))
back_with_a_floor = wrong()(of_kernel(lambda s: torch.log(torch.exp(s) + 1e-12)))
positive_square = wrong("negated")(of_kernel(torch.neg))
mixed_term_once = wrong()(of_norms(lambda dots, q, k, h: (dots - q - k) / (2 * h**2)))
no_graph = wrong("gradient_cut")(
    lambda queries, keys, bandwidth: expanded(queries.detach(), keys.detach(), bandwidth)
)
single_precision = wrong("dtype_changed")(
    lambda queries, keys, bandwidth: expanded(queries.float(), keys.float(), bandwidth)
)
diagonal_only = wrong("wrong_shape")(lambda *inputs: expanded(*inputs)[0])


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


@wrong()
def constant_penalty(queries, keys, bandwidth):
    with torch.no_grad():
        penalty = (keys * keys).sum(dim=1) / 2
    return (queries @ keys.T - penalty) / bandwidth**2
