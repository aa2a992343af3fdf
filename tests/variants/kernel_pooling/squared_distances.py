"""Answers to `squared_distances`."""

import numpy as np
import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def expanded_square(queries, keys):
    q2 = (queries * queries).sum(dim=1, keepdim=True)
    k2 = (keys * keys).sum(dim=1)
    return q2 - 2 * queries @ keys.T + k2


@right
def einsum_of_differences(queries, keys):
    d = queries[:, None] - keys
    return torch.einsum("nmd,nmd->nm", d, d)


@right
def norm_squared(queries, keys):
    return torch.linalg.vector_norm(queries[:, None, :] - keys[None, :, :], dim=-1) ** 2


@right
def clamped_expansion(queries, keys):
    products = torch.einsum("nd,md->nm", queries, keys)
    squares = queries.pow(2).sum(-1).view(-1, 1) + keys.pow(2).sum(-1).view(1, -1)
    return (squares - 2 * products).clamp(min=0)


@right
def vmapped(queries, keys):
    one = lambda q: ((keys - q) ** 2).sum(-1)  # noqa: E731
    return torch.vmap(one)(queries)


@wrong("loops")
def double_loop(queries, keys):
    result = torch.zeros(len(queries), len(keys), dtype=queries.dtype)
    for i in range(len(queries)):
        for j in range(len(keys)):
            result[i, j] = ((queries[i] - keys[j]) ** 2).sum()
    return result


@wrong("gradient_cut")
def through_numpy(queries, keys):
    q, k = queries.detach().numpy(), keys.detach().numpy()
    return torch.from_numpy(((q[:, None] - k[None]) ** 2).sum(-1))


@wrong("wrong_type")
def numpy_result(queries, keys):
    q, k = queries.detach().numpy(), keys.detach().numpy()
    return ((q[:, None] - k[None]) ** 2).sum(-1)


@wrong()
def reshaped_wrongly(queries, keys):
    n, m = len(queries), len(keys)
    pairs = queries.repeat(m, 1) - keys.repeat(n, 1)
    return (pairs**2).sum(-1).reshape(n, m)


@wrong("returned_none")
def nothing(queries, keys):
    np.square(0.0)


@right
def one_product_of_longer_rows(queries, keys):
    ones_q, ones_k = torch.ones_like(queries[:, :1]), torch.ones_like(keys[:, :1])
    left = torch.cat([queries.square().sum(1, keepdim=True), ones_q, -2 * queries], dim=1)
    right_side = torch.cat([ones_k, keys.square().sum(1, keepdim=True), keys], dim=1)
    return left @ right_side.T


@right
def mapped_twice(queries, keys):
    def squared(query, key):
        return (query - key).dot(query - key)

    return torch.vmap(torch.vmap(squared, (None, 0)), (0, None))(queries, keys)


@right
def block_of_a_gram_matrix(queries, keys):
    points = torch.cat([queries, keys])
    products = points @ points.T
    norms = products.diagonal()
    return (norms[:, None] + norms - 2 * products)[: len(queries), len(queries) :]


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries, keys):
        ctx.save_for_backward(queries, keys)
        return torch.cdist(queries, keys) ** 2

    @staticmethod
    def backward(ctx, grad):
        queries, keys = ctx.saved_tensors
        differences = 2 * (queries[:, None] - keys) * grad[..., None]
        return differences.sum(1), -differences.sum(0)


keys_in_rows = wrong("transposed")(lambda queries, keys: torch.cdist(keys, queries) ** 2)
plain_cdist = wrong("root_taken")(lambda queries, keys: torch.cdist(queries, keys))
matching_rows_only = wrong("elementwise_only")(
    lambda queries, keys: torch.sum((queries - keys) ** 2, dim=1)
)
cube_of_squares = wrong("features_not_summed")(
    lambda queries, keys: (queries[:, None] - keys[None]) ** 2
)
averaged = wrong("mean_over_features")(
    lambda queries, keys: torch.mean((queries[:, None] - keys[None]) ** 2, -1)
)
sum_then_square = wrong("squared_after_the_sum")(
    lambda queries, keys: (queries.sum(-1)[:, None] - keys.sum(-1)[None, :]) ** 2
)
loop_over_queries = wrong("loops")(
    lambda queries, keys: torch.stack([((q - keys) ** 2).sum(-1) for q in queries])
)
half_a_binomial = wrong("factor_two_missing")(
    lambda queries, keys: (queries**2).sum(-1)[:, None] + (keys**2).sum(-1) - queries @ keys.T
)
root_undone = wrong("gradient_at_zero_nan")(
    lambda queries, keys: torch.sqrt(((queries[:, None] - keys) ** 2).sum(-1)).pow(2)
)
in_float32 = wrong("dtype_changed")(
    lambda queries, keys: ((queries[:, None].float() - keys.float()) ** 2).sum(-1)
)
kernel_exponent = wrong("wrong_values")(
    lambda queries, keys: 0.5 * (queries[:, None] - keys).square().sum(-1)
)
squeezed_at_the_end = wrong("wrong_shape")(
    lambda queries, keys: torch.cdist(queries, keys).square().squeeze()
)
broadcast = right(lambda queries, keys: ((queries.unsqueeze(1) - keys.unsqueeze(0)) ** 2).sum(-1))
library_distance = right(lambda queries, keys: torch.cdist(queries, keys) ** 2)
with_pairwise_distance = right(
    lambda queries, keys: torch.nn.functional.pairwise_distance(queries[:, None], keys[None]) ** 2
)
own_backward = right(lambda queries, keys: _Squared.apply(queries, keys))


@faulty("loop", "averaged", "squeezed", "detached", "always_float64")
def several_faults(faults):
    def squared_distances(queries, keys):
        if "detached" in faults:
            queries, keys = queries.detach(), keys.detach()
        if "always_float64" in faults:
            queries, keys = queries.double(), keys.double()
        over_features = torch.mean if "averaged" in faults else torch.sum
        if "loop" in faults:
            result = torch.stack([over_features((q - keys) ** 2, dim=1) for q in queries])
        else:
            result = over_features((queries[:, None] - keys) ** 2, dim=2)
        return result.squeeze() if "squeezed" in faults else result

    return squared_distances
