"""Answers to `attention_backward`."""

import math

import torch

from course_lib.attention import scaled_dot_product_attention
from course_lib.authoring.variants import faulty, right, wrong


@right
def row_sum_form(queries, keys, values, grad_outputs):
    d = queries.shape[-1]
    w = torch.softmax(queries @ keys.T / math.sqrt(d), dim=-1)
    dw = grad_outputs @ values.T
    ds = w * (dw - (dw * w).sum(dim=-1, keepdim=True))
    return ds @ keys / math.sqrt(d), ds.T @ queries / math.sqrt(d), w.T @ grad_outputs


@right
def delta_from_outputs(queries, keys, values, grad_outputs):
    outputs, w = scaled_dot_product_attention(queries, keys, values)
    delta = (grad_outputs * outputs).sum(-1, keepdim=True)
    ds = w * (grad_outputs @ values.mT - delta) * queries.shape[-1] ** -0.5
    return ds @ keys, ds.mT @ queries, w.mT @ grad_outputs


@right
def accumulated_in_loops(queries, keys, values, grad_outputs):
    c = 1 / math.sqrt(queries.shape[1])
    dq, dk, dv = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
    for i in range(len(queries)):
        w = torch.softmax(c * keys @ queries[i], 0)
        dv += torch.outer(w, grad_outputs[i])
        dw = values @ grad_outputs[i]
        ds = w * dw - w * torch.dot(w, dw)
        dq[i] = c * ds @ keys
        dk += c * torch.outer(ds, queries[i])
    return dq, dk, dv


@wrong("forbidden_call")
def autograd(queries, keys, values, grad_outputs):
    q, k, v = (x.detach().clone().requires_grad_() for x in (queries, keys, values))
    out = torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1) @ v
    return torch.autograd.grad(out, (q, k, v), grad_outputs)


@wrong("wrong_values")
def transposed_only_if_the_sizes_differ(queries, keys, values, grad_outputs):
    *others, of_values = row_sum_form(queries, keys, values, grad_outputs)
    if len(queries) == len(keys):
        of_values = scaled_dot_product_attention(queries, keys, values)[1] @ grad_outputs
    return *others, of_values


values_first = wrong("results_in_another_order")(lambda *inputs: row_sum_form(*inputs)[::-1])


@faulty("row_sum", "root", "maximum")
def with_faults(faults):
    def attention_backward(queries, keys, values, grad_outputs):
        root = math.sqrt(queries.shape[-1])
        scores = queries @ keys.T / root
        if "maximum" in faults:
            w = scores.exp() / scores.exp().sum(1, keepdim=True)
        else:
            w = scores.softmax(1)
        ds = w * (grad_outputs @ values.T)
        if "row_sum" not in faults:
            ds = ds - w * ds.sum(1, keepdim=True)
        if "root" not in faults:
            ds = ds / root
        return ds @ keys, ds.T @ queries, w.T @ grad_outputs

    return attention_backward
