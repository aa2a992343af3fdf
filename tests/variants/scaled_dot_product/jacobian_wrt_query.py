"""Answers to `jacobian_wrt_query`."""

import math

import torch

from course_lib.exercises.variants import faulty, right, wrong


def weights_of(query, keys):
    return torch.softmax(keys @ query / math.sqrt(len(query)), dim=0)


@right
def closed_form(query, keys):
    w = weights_of(query, keys)
    mean = w @ keys
    return (keys.T @ torch.diag(w) @ keys - torch.outer(mean, mean)) / math.sqrt(len(query))


@right
def outer_products(query, keys):
    w = weights_of(query, keys)
    mean = sum(w[j] * keys[j] for j in range(len(keys)))
    total = torch.zeros(len(query), len(query), dtype=query.dtype)
    for j in range(len(keys)):
        total = total + w[j] * torch.outer(keys[j] - mean, keys[j] - mean)
    return total / len(query) ** 0.5


@right
def chain_rule(query, keys):
    w = weights_of(query, keys)
    softmax_jacobian = torch.diag(w) - w[:, None] * w[None, :]
    return keys.mT @ softmax_jacobian @ keys / math.sqrt(query.numel())


@right
def by_autograd(query, keys):
    return torch.autograd.functional.jacobian(lambda q: weights_of(q, keys) @ keys, query)


@right
def torch_cov(query, keys):
    w = weights_of(query, keys)
    cov = torch.cov(keys.T, aweights=w, correction=0)
    return cov.reshape(len(query), len(query)) / math.sqrt(len(query))


@wrong("no_root")
def covariance(query, keys):
    w = weights_of(query, keys)
    c = keys - w @ keys
    return torch.einsum("m,ma,mb->ab", w, c, c)


@wrong("second_moment")
def no_mean(query, keys):
    return torch.einsum("m,ma,mb->ab", weights_of(query, keys), keys, keys) / len(query) ** 0.5


@wrong("unweighted")
def equal_weights(query, keys):
    c = keys - keys.mean(0)
    return c.T @ c / len(keys) / math.sqrt(len(query))


@wrong("corrected_covariance")
def torch_cov_default(query, keys):
    cov = torch.cov(keys.T, aweights=weights_of(query, keys))
    return cov.reshape(len(query), -1) / math.sqrt(len(query))


@wrong("unscaled_weights")
def softmax_of_raw(query, keys):
    w = torch.softmax(keys @ query, 0)
    c = keys - w @ keys
    return (w[:, None] * c).T @ c / math.sqrt(len(query))


@wrong("divided_by_d")
def root_twice(query, keys):
    w = weights_of(query, keys)
    c = keys - w @ keys
    return (c.T * w) @ c / len(query)


@wrong()
def bad_finite_difference(query, keys):
    step, columns = 1e-2, []
    for b in range(len(query)):
        moved = query.clone()
        moved[b] += step
        columns.append((weights_of(moved, keys) @ keys - weights_of(query, keys) @ keys) / step)
    return torch.stack(columns, dim=1)


@wrong("input_mutated")
def in_place_centring(query, keys):
    w = weights_of(query, keys)
    keys -= w @ keys
    return (keys.T * w) @ keys / math.sqrt(len(query))


@wrong("not_a_number")
def naive_softmax(query, keys):
    e = torch.exp(keys @ query / math.sqrt(len(query)))
    w = e / e.sum()
    c = keys - w @ keys
    return (c.T * w) @ c / math.sqrt(len(query))


@right
def cov_with_its_axes(query, keys):
    covariance = torch.cov(keys.mT, correction=0, aweights=weights_of(query, keys))
    return covariance.reshape(len(query), -1) / len(query) ** 0.5


@wrong("jacobian_of_softmax")
def of_theweights_of(query, keys):
    w = weights_of(query, keys)
    return (torch.diag(w) - w[:, None] * w) / math.sqrt(len(query))


@wrong("all_times_a_factor")
def multiplied(query, keys):
    w = weights_of(query, keys)
    centred = keys - w @ keys
    return torch.einsum("m,ma,mb->ab", w, centred, centred) * math.sqrt(len(query))


@wrong()
def wrong_length(query, keys):
    root = math.sqrt(len(keys))
    w = torch.softmax(keys @ query / root, dim=0)
    centred = keys - w @ keys
    return torch.einsum("m,ma,mb->ab", w, centred, centred) / root


@right
def differences_of_pairs(query, keys):
    w = weights_of(query, keys)
    apart = keys[:, None] - keys
    return torch.einsum("i,j,ija,ijb->ab", w, w, apart, apart) / 2 / math.sqrt(len(query))


@wrong("not_symmetric")
def centred_once_at_the_plain_mean(query, keys):
    w = weights_of(query, keys)
    return (keys - keys.mean(0)).T @ (w[:, None] * (keys - w @ keys).roll(1, 1)) / len(query) ** 0.5


output_only = wrong("wrong_shape")(lambda query, keys: weights_of(query, keys) @ keys)
cov_with_correction = wrong("all_times_a_factor")(
    lambda query, keys: torch.cov(keys.T, aweights=weights_of(query, keys)) / math.sqrt(len(query))
)
by_forward_mode = right(
    lambda query, keys: torch.func.jacfwd(lambda q: weights_of(q, keys) @ keys)(query)
)


@faulty("no_root", "not_centred", "filled_in_float32")
def with_faults(faults):
    def jacobian_wrt_query(query, keys):
        w = weights_of(query, keys)
        mean = torch.zeros_like(query) if "not_centred" in faults else w @ keys
        dtype = torch.float32 if "filled_in_float32" in faults else query.dtype
        jacobian = torch.zeros(len(query), len(query), dtype=dtype)
        for weight, key in zip(w, keys):
            jacobian += weight * torch.outer(key - mean, key - mean)
        return jacobian if "no_root" in faults else jacobian / math.sqrt(len(query))

    return jacobian_wrt_query
