"""Answers to `attention_backward`."""

import math

import torch

from course_lib.attention.scaled_dot_product import scaled_dot_product_attention
from course_lib.exercises.variants import faulty, right, wrong


@right
def row_sum_form(queries, keys, values, grad_outputs):
    d = queries.shape[-1]
    w = torch.softmax(queries @ keys.T / math.sqrt(d), dim=-1)
    dw = grad_outputs @ values.T
    ds = w * (dw - (dw * w).sum(dim=-1, keepdim=True))
    return ds @ keys / math.sqrt(d), ds.T @ queries / math.sqrt(d), w.T @ grad_outputs


@right
def explicit_jacobian(queries, keys, values, grad_outputs):
    n, d = queries.shape
    w = torch.softmax(torch.einsum("nd,md->nm", queries, keys) / d**0.5, dim=1)
    rows = []
    for i in range(n):
        jacobian = torch.diag(w[i]) - torch.outer(w[i], w[i])
        rows.append(jacobian @ (values @ grad_outputs[i]))
    ds = torch.stack(rows) / d**0.5
    return (
        ds @ keys,
        torch.einsum("nm,nd->md", ds, queries),
        torch.einsum("nm,nv->mv", w, grad_outputs),
    )


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


@wrong("row_sum_forgotten")
def elementwise(queries, keys, values, grad_outputs):
    c = queries.shape[-1] ** -0.5
    w = torch.softmax(queries @ keys.T * c, -1)
    ds = w * (grad_outputs @ values.T)
    return c * ds @ keys, c * ds.T @ queries, w.T @ grad_outputs


@wrong("root_forgotten")
def no_root(queries, keys, values, grad_outputs):
    w = torch.softmax(queries @ keys.T / math.sqrt(queries.shape[-1]), -1)
    dw = grad_outputs @ values.T
    ds = w * (dw - (w * dw).sum(-1, keepdim=True))
    return ds @ keys, ds.T @ queries, w.T @ grad_outputs


@wrong("not_transposed")
def no_transpose(queries, keys, values, grad_outputs):
    c = queries.shape[-1] ** -0.5
    w = torch.softmax(queries @ keys.T * c, -1)
    dw = grad_outputs @ values.T
    ds = c * w * (dw - (w * dw).sum(-1, keepdim=True))
    return ds @ keys, ds @ queries, w.T @ grad_outputs


@wrong("forbidden_call")
def autograd(queries, keys, values, grad_outputs):
    q, k, v = (x.detach().clone().requires_grad_() for x in (queries, keys, values))
    out = torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1) @ v
    return torch.autograd.grad(out, (q, k, v), grad_outputs)


@wrong("forbidden_call")
def backward_called(queries, keys, values, grad_outputs):
    q, k, v = (x.detach().clone().requires_grad_() for x in (queries, keys, values))
    out = torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1) @ v
    out.backward(grad_outputs)
    return q.grad, k.grad, v.grad


@wrong("column_sum")
def wrong_axis(queries, keys, values, grad_outputs):
    c = queries.shape[-1] ** -0.5
    w = torch.softmax(queries @ keys.T * c, -1)
    dw = grad_outputs @ values.T
    ds = c * w * (dw - (w * dw).sum(0))
    return ds @ keys, ds.T @ queries, w.T @ grad_outputs


@wrong("queries_and_keys_swapped")
def swapped(queries, keys, values, grad_outputs):
    dq, dk, dv = row_sum_form(queries, keys, values, grad_outputs)
    return dk, dq, dv


@wrong("unscaled_everywhere")
def plain_dot_product(queries, keys, values, grad_outputs):
    w = torch.softmax(queries @ keys.T, -1)
    dw = grad_outputs @ values.T
    ds = w * (dw - (w * dw).sum(-1, keepdim=True))
    return ds @ keys, ds.T @ queries, w.T @ grad_outputs


@wrong("root_forgotten_for_keys")
def only_queries_scaled(queries, keys, values, grad_outputs):
    q = queries / math.sqrt(queries.shape[-1])
    w = torch.softmax(q @ keys.T, -1)
    dw = grad_outputs @ values.T
    ds = w * (dw - (w * dw).sum(-1, keepdim=True))
    return ds @ keys / math.sqrt(queries.shape[-1]), ds.T @ queries, w.T @ grad_outputs


@wrong("not_a_number")
def naive_exponentials(queries, keys, values, grad_outputs):
    c = queries.shape[-1] ** -0.5
    e = torch.exp(queries @ keys.T * c)
    w = e / e.sum(-1, keepdim=True)
    dw = grad_outputs @ values.T
    ds = c * w * (dw - (w * dw).sum(-1, keepdim=True))
    return ds @ keys, ds.T @ queries, w.T @ grad_outputs


def _forward(queries, keys):
    return torch.softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), dim=-1)


def _finish(grad_scores, weights, queries, keys, grad_outputs):
    root = math.sqrt(queries.shape[-1])
    return grad_scores @ keys / root, grad_scores.mT @ queries / root, weights.mT @ grad_outputs


@wrong("gradient_times_a_factor")
def subtracted_the_other_way(queries, keys, values, grad_outputs):
    w, dw = _forward(queries, keys), grad_outputs @ values.mT
    return _finish(w * ((w * dw).sum(-1, keepdim=True) - dw), w, queries, keys, grad_outputs)


@wrong("wrong_shape")
def values_first(queries, keys, values, grad_outputs):
    w, dw = _forward(queries, keys), grad_outputs @ values.mT
    grads = _finish(w * (dw - (w * dw).sum(-1, keepdim=True)), w, queries, keys, grad_outputs)
    return grads[2], grads[1], grads[0]


@wrong("wrong_values")
def reshaped(queries, keys, values, grad_outputs):
    w, dw = _forward(queries, keys), grad_outputs @ values.mT
    ds = w * (dw - (w * dw).sum(-1, keepdim=True)) / math.sqrt(queries.shape[-1])
    return ds @ keys, ds.reshape(len(keys), len(queries)) @ queries, w.mT @ grad_outputs


@right
def in_numpy_and_back(queries, keys, values, grad_outputs):
    q, k, v, g = (x.numpy() for x in (queries, keys, values, grad_outputs))
    w = _forward(queries, keys).numpy()
    dw = g @ v.T
    ds = w * (dw - (w * dw).sum(1, keepdims=True)) / math.sqrt(q.shape[1])
    return tuple(torch.from_numpy(x) for x in (ds @ k, ds.T @ q, w.T @ g))


@wrong("wrong_values")
def columns_instead_of_rows(queries, keys, values, grad_outputs):
    w = torch.softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), dim=0)
    dw = grad_outputs @ values.mT
    return _finish(w * (dw - (w * dw).sum(0)), w, queries, keys, grad_outputs)


@wrong("row_sum_without_axis")
def sums_without_keepdim(queries, keys, values, grad_outputs):
    w, dw = _forward(queries, keys), grad_outputs @ values.mT
    return _finish(w * (dw - torch.sum(w * dw, dim=1)), w, queries, keys, grad_outputs)


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
