"""Answers to `batched_scores`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def permuted(queries, keys):
    order = [*range(keys.dim() - 2), keys.dim() - 1, keys.dim() - 2]
    return queries @ keys.permute(order)


@right
def loop_over_keys(queries, keys):
    columns = [(queries * keys[..., None, j, :]).sum(-1) for j in range(keys.shape[-2])]
    return torch.stack(columns, dim=-1)


@right
def flattened(queries, keys):
    *lead, n, d = queries.shape
    q, k = queries.reshape(-1, n, d), keys.reshape(-1, keys.shape[-2], d)
    return torch.bmm(q, k.transpose(1, 2)).reshape(*lead, n, keys.shape[-2])


@wrong("input_mutated")
def underscore(queries, keys):
    with torch.no_grad():
        keys.transpose_(-1, -2)
    return queries @ keys


@wrong("gradient_cut")
def no_grad(queries, keys):
    with torch.no_grad():
        return queries @ keys.mT


@wrong("wrong_values")
def heads_with_two_letters(queries, keys):
    if queries.dim() == 4:
        return torch.einsum("bhqd,bgkd->bhqk", queries, keys)
    return torch.einsum("...qd,...kd->...qk", queries, keys)


bare_squeeze = wrong("squeezed")(lambda queries, keys: torch.squeeze(queries @ keys.mT))
float32 = wrong("dtype_changed")(lambda queries, keys: queries.float() @ keys.float().mT)
order_of_four_axes = wrong("raised")(lambda queries, keys: queries @ keys.permute(0, 1, 3, 2))
transposed_keys = right(lambda queries, keys: torch.matmul(queries, keys.transpose(-2, -1)))
einsum = right(lambda queries, keys: torch.einsum("...id,...jd->...ij", queries, keys))
broadcast = right(lambda queries, keys: (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(-1))


@faulty("scaled", "squeezed", "detached", "always_float64")
def several_faults(faults):
    def batched_scores(queries, keys):
        if "always_float64" in faults:
            queries, keys = queries.double(), keys.double()
        if "detached" in faults:
            keys = keys.detach()
        scores = torch.einsum("...id,...jd->...ij", queries, keys)
        if "scaled" in faults:
            scores = scores / queries.shape[-1] ** 0.5
        return torch.squeeze(scores) if "squeezed" in faults else scores

    return batched_scores
