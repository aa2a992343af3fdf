"""Answers to `jacobian_wrt_query`."""

import math

import torch

from course_lib.authoring.variants import faulty, right, wrong


def weights_of(query, keys):
    return torch.softmax(keys @ query / math.sqrt(len(query)), dim=0)


@right
def closed_form(query, keys):
    w = weights_of(query, keys)
    mean = w @ keys
    return (keys.T @ torch.diag(w) @ keys - torch.outer(mean, mean)) / math.sqrt(len(query))


@right
def by_autograd(query, keys):
    return torch.autograd.functional.jacobian(lambda q: weights_of(q, keys) @ keys, query)


@right
def torch_cov(query, keys):
    w = weights_of(query, keys)
    cov = torch.cov(keys.T, aweights=w, correction=0)
    return cov.reshape(len(query), len(query)) / math.sqrt(len(query))


@right
def forward_mode(query, keys):
    def attend(query):
        return torch.softmax((keys * query).sum(-1) / math.sqrt(len(query)), dim=0) @ keys

    return torch.func.jacfwd(attend)(query)


@wrong()
def wrong_length(query, keys):
    root = math.sqrt(len(keys))
    w = torch.softmax(keys @ query / root, dim=0)
    centred = keys - w @ keys
    return torch.einsum("m,ma,mb->ab", w, centred, centred) / root


def spread(weights, keys):
    """The covariance matrix of the keys."""
    centred = keys - weights @ keys
    return torch.einsum("m,ma,mb->ab", weights, centred, centred)


def of_weights(jacobian):
    """A matrix `jacobian(weights, keys, root of the number of features)`."""
    return lambda query, keys: jacobian(weights_of(query, keys), keys, math.sqrt(len(query)))


@wrong()
def finite_differences(query, keys, step=1e-3):
    """Each column is a difference of two outputs, which float32 rounds too much."""

    def output(q):
        return weights_of(q, keys) @ keys

    steps = step * torch.eye(len(query), dtype=query.dtype, device=query.device)
    columns = [(output(query + e) - output(query - e)) / (2 * step) for e in steps]
    return torch.stack(columns, dim=1)


multiplied = wrong()(of_weights(lambda w, keys, root: spread(w, keys) * root))
torchs_covariance = wrong("squeezed")(
    of_weights(lambda w, keys, root: torch.cov(keys.T, correction=0, aweights=w) / root)
)


@faulty("no_root", "not_centred", "filled_in_float32")
def with_faults(faults):
    def jacobian_wrt_query(query, keys):
        w = weights_of(query, keys)
        mean = torch.zeros_like(query) if "not_centred" in faults else w @ keys
        dtype = torch.float32 if "filled_in_float32" in faults else query.dtype
        jacobian = query.new_zeros(len(query), len(query), dtype=dtype)
        for weight, key in zip(w, keys):
            jacobian += weight * torch.outer(key - mean, key - mean)
        return jacobian if "no_root" in faults else jacobian / math.sqrt(len(query))

    return jacobian_wrt_query
