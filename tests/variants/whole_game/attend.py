"""Answers to `attend`, right and wrong ones as students write them."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong


def weights_of(query, keys):
    return torch.softmax(keys @ query / query.shape[-1] ** 0.5, dim=-1)


@right
def query_divided_first(query, keys, values):
    scores = torch.matmul(keys, query / math.sqrt(query.shape[0]))
    weights = F.softmax(scores, dim=-1)
    return torch.matmul(weights, values), weights


@right
def as_a_row(query, keys, values):
    scores = query[None] @ keys.T / query.numel() ** 0.5
    weights = scores.softmax(dim=1)
    return (weights @ values)[0], weights[0]


@right
def einsums(query, keys, values):
    weights = torch.softmax(torch.einsum("d,md->m", query, keys) / len(query) ** 0.5, dim=0)
    return torch.einsum("m,mv->v", weights, values), weights


@right
def products_summed(query, keys, values):
    scores = (keys * query).sum(dim=1) * query.shape[0] ** -0.5
    weights = torch.softmax(scores, dim=0)
    return (weights[:, None] * values).sum(dim=0), weights


@right
def loop_over_keys(query, keys, values):
    scores = torch.stack([torch.dot(query, key) for key in keys]) / math.sqrt(len(query))
    weights = torch.softmax(scores, dim=0)
    output = torch.zeros_like(values[0])
    for weight, value in zip(weights, values, strict=True):
        output = output + weight * value
    return output, weights


@right
def own_softmax(query, keys, values):
    scores = keys.mv(query) / torch.tensor(len(query), dtype=query.dtype).sqrt()
    exponentials = torch.exp(scores - scores.max())
    weights = exponentials / exponentials.sum()
    return values.mT @ weights, weights


textbook = right(lambda q, k, v: ((w := weights_of(q, k)) @ v, w))
output_only = wrong("one_result_only")(lambda q, k, v: weights_of(q, k) @ v)
weights_only = wrong()(lambda q, k, v: weights_of(q, k))
weights_first = wrong("results_in_another_order")(lambda q, k, v: ((w := weights_of(q, k)), w @ v))
detached = wrong("gradient_cut")(lambda q, k, v: ((w := weights_of(q, k).detach()) @ v, w))
kept_rows = wrong()(lambda q, k, v: ((w := weights_of(q, k)[None]) @ v, w))
halved = wrong("rows_do_not_sum_to_one")(lambda q, k, v: ((w := weights_of(q, k) / 2) @ v, w))
evenly = wrong()(lambda q, k, v: (v.mean(dim=0), torch.ones_like(k[:, 0]) / len(k)))
not_summed = wrong()(lambda q, k, v: ((w := weights_of(q, k))[:, None] * v, w))
float32 = wrong("dtype_changed")(lambda q, k, v: textbook(q.float(), k.float(), v.float()))
query_times_keys = wrong()(lambda q, k, v: ((w := torch.softmax(q @ k / len(q) ** 0.5, 0)) @ v, w))
on_the_cpu = wrong()(lambda q, k, v: ((w := weights_of(q, k).cpu()) @ v, w))


@wrong()
def best_key_only(query, keys, values):
    weights = torch.zeros_like(keys[:, 0])
    weights[(keys @ query).argmax()] = 1
    return weights @ values, weights


@wrong("input_mutated")
def divides_in_place(query, keys, values):
    with torch.no_grad():
        query /= len(query) ** 0.5
    weights = torch.softmax(keys @ query, dim=0)
    return weights @ values, weights


@wrong()
def through_numpy(query, keys, values):
    scores = keys.detach().numpy() @ query.detach().numpy() / np.sqrt(len(query))
    powers = np.exp(scores - scores.max())
    weights = torch.from_numpy(powers / powers.sum())
    return weights @ values, weights


@faulty("unscaled", "overflows", "detached", "always_float64")
def several_faults(faults):
    def attend(query, keys, values):
        if "always_float64" in faults:
            query, keys, values = query.double(), keys.double(), values.double()
        if "detached" in faults:
            keys = keys.detach()
        scores = keys @ query
        if "unscaled" not in faults:
            scores = scores / math.sqrt(len(query))
        if "overflows" in faults:
            weights = scores.exp() / scores.exp().sum()
        else:
            weights = torch.softmax(scores, dim=0)
        return weights @ values, weights

    return attend
