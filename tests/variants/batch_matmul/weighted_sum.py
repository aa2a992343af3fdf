"""Answers to `weighted_sum`."""

import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def loop_over_keys(weights, values):
    total = torch.zeros(*weights.shape[:-1], values.shape[-1], dtype=weights.dtype)
    for j in range(weights.shape[-1]):
        total = total + weights[..., j, None] * values[..., None, j, :]
    return total


@right
def loop_over_queries(weights, values):
    rows = [(w[..., None] * values).sum(-2) for w in weights.unbind(-2)]
    return torch.stack(rows, dim=-2)


@right
def flattened(weights, values):
    *lead, n, m = weights.shape
    out = torch.bmm(weights.reshape(-1, n, m), values.reshape(-1, m, values.shape[-1]))
    return out.reshape(*lead, n, -1)


@wrong("renormalised")
def normalised_first(weights, values):
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ values


@wrong("gradient_cut")
def no_grad(weights, values):
    with torch.no_grad():
        return weights @ values


@right
def last_of_the_running_sums(weights, values):
    products = weights[..., None] * values[..., None, :, :]
    return products.cumsum(-2)[..., -1, :]


@right
def values_as_a_layer(weights, values):
    if weights.dim() == 2:
        return torch.nn.functional.linear(weights, values.T)
    return torch.stack([values_as_a_layer(w, v) for w, v in zip(weights, values, strict=True)])


_kept = {}
w_transposed = wrong("weights_transposed")(
    lambda weights, values: torch.matmul(weights.transpose(-2, -1), values)
)
wrong_axis = wrong("summed_over_queries")(
    lambda weights, values: (weights[..., :, :, None] * values[..., None, :, :]).sum(-3)
)
star = wrong("elementwise")(lambda weights, values: weights * values)
first_values = wrong("values_of_item_0")(
    lambda weights, values: weights @ (values[0] if values.dim() > 2 else values)
)
softmax_twice = wrong("softmax_again")(lambda weights, values: weights.softmax(-1) @ values)
bmm = wrong("only_three_axes")(lambda weights, values: torch.bmm(weights, values))
squeezed = wrong("wrong_shape")(lambda weights, values: (weights @ values).squeeze())
forgot_sum = wrong("wrong_shape")(
    lambda weights, values: weights.unsqueeze(-1) * values.unsqueeze(-3)
)
float32 = wrong("dtype_changed")(
    lambda weights, values: weights.to(torch.float32) @ values.to(torch.float32)
)
safe_average = wrong("wrong_values")(
    lambda weights, values: (weights / weights.sum(-1, keepdim=True)).nan_to_num() @ values
)
two_letters_for_the_keys = wrong("outside_the_values")(
    lambda weights, values: torch.einsum("...nm,...kv->...nv", weights, values)
)
remembers_by_shape = wrong("wrong_values")(
    lambda weights, values: _kept.setdefault((weights.shape, values.shape), weights) @ values
)
at_sign = right(lambda weights, values: weights @ values)
einsum = right(lambda weights, values: torch.einsum("...ij,...jv->...iv", weights, values))
broadcast = right(
    lambda weights, values: (weights.unsqueeze(-1) * values.unsqueeze(-3)).sum(dim=-2)
)
transposed_twice = right(lambda weights, values: (values.mT @ weights.mT).mT)
both_transposed_twice = right(lambda weights, values: (values.mT @ weights.mT).mT)


@faulty("signs_dropped", "squeezed", "detached", "always_float64")
def several_faults(faults):
    def weighted_sum(weights, values):
        if "always_float64" in faults:
            weights, values = weights.double(), values.double()
        if "detached" in faults:
            weights = weights.detach()
        if "signs_dropped" in faults:
            weights = weights.abs()
        outputs = (weights.unsqueeze(-1) * values.unsqueeze(-3)).sum(dim=-2)
        return outputs.squeeze() if "squeezed" in faults else outputs

    return weighted_sum
