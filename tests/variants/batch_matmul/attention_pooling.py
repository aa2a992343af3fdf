"""Answers to `attention_pooling`."""

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong


def weights_of(queries, keys):
    return torch.softmax(queries @ keys.mT, dim=-1)


@right
def three_lines(queries, keys, values):
    scores = queries @ keys.transpose(-2, -1)
    weights = F.softmax(scores, dim=-1)
    return weights @ values, weights


@right
def einsums(queries, keys, values):
    weights = torch.einsum("...nd,...md->...nm", queries, keys).softmax(-1)
    return torch.einsum("...nm,...mv->...nv", weights, values), weights


@right
def own_softmax(queries, keys, values):
    scores = (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(-1)
    exponentials = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    return (weights.unsqueeze(-1) * values.unsqueeze(-3)).sum(-2), weights


@right
def loop_over_queries(queries, keys, values):
    rows = [torch.softmax((keys * q.unsqueeze(-2)).sum(-1), -1) for q in queries.unbind(-2)]
    weights = torch.stack(rows, dim=-2)
    return torch.matmul(weights, values), weights


@wrong("forbidden_call")
def through_torch(queries, keys, values):
    outputs = F.scaled_dot_product_attention(queries, keys, values, scale=1.0)
    return outputs, weights_of(queries, keys)


@wrong("one_result_only")
def outputs_only(queries, keys, values):
    return weights_of(queries, keys) @ values


@wrong("input_mutated")
def queries_centred_in_place(queries, keys, values):
    with torch.no_grad():
        queries -= queries.mean(dim=-1, keepdim=True)
    return three_lines(queries, keys, values)


@wrong("gradient_cut")
def keys_detached(queries, keys, values):
    return three_lines(queries, keys.detach(), values)


@wrong("squeezed")
def squeezed(queries, keys, values):
    weights = weights_of(queries, keys)
    return (weights @ values).squeeze(), weights


_kept = {}


@wrong("wrong_values")
def remembers_by_shape(queries, keys, values):
    weights = _kept.setdefault((queries.shape, keys.shape), weights_of(queries, keys).detach())
    return weights @ values, weights


weights_detached = wrong("gradient_cut")(lambda q, k, v: ((w := weights_of(q, k)) @ v, w.detach()))
halved = wrong("rows_do_not_sum_to_one")(lambda q, k, v: ((w := weights_of(q, k) / 2) @ v, w))
weights_first = wrong("results_in_another_order")(lambda q, k, v: ((w := weights_of(q, k)), w @ v))
float32 = wrong("dtype_changed")(lambda q, k, v: three_lines(q.float(), k.float(), v.float()))


@faulty("overflows", "squeezed", "detached", "always_float64")
def several_faults(faults):
    def attention_pooling(queries, keys, values):
        if "always_float64" in faults:
            queries, keys, values = queries.double(), keys.double(), values.double()
        if "detached" in faults:
            values = values.detach()
        if "overflows" in faults:
            exponentials = torch.exp(queries @ keys.mT)
            weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
        else:
            weights = weights_of(queries, keys)
        outputs = torch.einsum("...nm,...mv->...nv", weights, values)
        return (torch.squeeze(outputs) if "squeezed" in faults else outputs), weights

    return attention_pooling
