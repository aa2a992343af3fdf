"""Answers to `batched_scores`."""

import math

import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong


@right
def transposed_keys(queries, keys):
    return torch.matmul(queries, keys.transpose(-2, -1))


@right
def einsum(queries, keys):
    return torch.einsum("...id,...jd->...ij", queries, keys)


@right
def broadcast(queries, keys):
    return (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(-1)


@right
def permuted(queries, keys):
    order = [*range(keys.dim() - 2), keys.dim() - 1, keys.dim() - 2]
    return queries @ keys.permute(order)


@right
def keys_first_then_transposed(queries, keys):
    return (keys @ queries.mT).mT


@right
def loop_over_keys(queries, keys):
    columns = [(queries * keys[..., None, j, :]).sum(-1) for j in range(keys.shape[-2])]
    return torch.stack(columns, dim=-1)


@right
def flattened(queries, keys):
    *lead, n, d = queries.shape
    q, k = queries.reshape(-1, n, d), keys.reshape(-1, keys.shape[-2], d)
    return torch.bmm(q, k.transpose(1, 2)).reshape(*lead, n, keys.shape[-2])


@right
def swapaxes(queries, keys):
    return queries @ keys.swapaxes(-1, -2)


@wrong("reshape_for_transpose")
def reshape(queries, keys):
    return queries @ keys.reshape(*keys.shape[:-2], keys.shape[-1], keys.shape[-2])


@wrong("not_transposed")
def forgot_transpose(queries, keys):
    return torch.matmul(queries, keys)


@wrong("axes_1_and_2")
def positions_of_three_axes(queries, keys):
    return torch.matmul(queries, keys.transpose(1, 2))


@wrong("all_axes_reversed")
def capital_t(queries, keys):
    return queries @ keys.T


@wrong("keys_of_item_0")
def first_item(queries, keys):
    return queries @ keys[0].mT if keys.dim() > 2 else queries @ keys.mT


@wrong("only_three_axes")
def bmm_only(queries, keys):
    return torch.bmm(queries, keys.transpose(1, 2))


@wrong("summed_over_batch")
def letters_missing(queries, keys):
    return torch.einsum("...nd,...md->nm", queries, keys)


@wrong("scaled_already")
def textbook(queries, keys):
    return queries @ keys.mT / math.sqrt(queries.size(-1))


@wrong("wrong_values")
def cosine(queries, keys):
    return F.cosine_similarity(queries[..., :, None, :], keys[..., None, :, :], dim=-1)


@wrong("input_mutated")
def underscore(queries, keys):
    with torch.no_grad():
        keys.transpose_(-1, -2)
    return queries @ keys


@wrong("wrong_shape")
def bare_squeeze(queries, keys):
    return torch.squeeze(queries @ keys.mT)


@wrong("gradient_cut")
def no_grad(queries, keys):
    with torch.no_grad():
        return queries @ keys.mT


@wrong("dtype_changed")
def float32(queries, keys):
    return queries.float() @ keys.float().mT


@wrong("global_rng_used")
def jitter(queries, keys):
    return queries @ keys.mT + 0 * torch.randn(1, dtype=queries.dtype)


@right
def by_polarisation(queries, keys):
    def squared(x):
        return x.square().sum(-1)

    both = squared(queries.unsqueeze(-2) + keys.unsqueeze(-3))
    return (both - squared(queries).unsqueeze(-1) - squared(keys).unsqueeze(-2)) / 2


@wrong("wrong_values")
def heads_with_two_letters(queries, keys):
    if queries.dim() == 4:
        return torch.einsum("bhqd,bgkd->bhqk", queries, keys)
    return torch.einsum("...qd,...kd->...qk", queries, keys)


@right
def one_column_for_each_key(queries, keys):
    return torch.matmul(queries.unsqueeze(-3), keys.unsqueeze(-1)).squeeze(-1).mT


@wrong("raised")
def order_of_four_axes(queries, keys):
    return queries @ keys.permute(0, 1, 3, 2)


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
