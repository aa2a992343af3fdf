"""Answers to `squared_distances`."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


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


@wrong("gradient_cut")
def through_numpy(queries, keys):
    q, k = queries.detach().numpy(), keys.detach().numpy()
    return torch.from_numpy(((q[:, None] - k[None]) ** 2).sum(-1))


@wrong()
def reshaped_wrongly(queries, keys):
    n, m = len(queries), len(keys)
    pairs = queries.repeat(m, 1) - keys.repeat(n, 1)
    return (pairs**2).sum(-1).reshape(n, m)


@wrong("returned_none")
def nothing(queries, keys):
    np.square(0.0)


keys_in_rows = wrong("transposed_result")(lambda queries, keys: torch.cdist(keys, queries) ** 2)
plain_cdist = wrong("root_of_the_result")(lambda queries, keys: torch.cdist(queries, keys))
loop_over_queries = wrong("loops")(
    lambda queries, keys: torch.stack([((q - keys) ** 2).sum(-1) for q in queries])
)
in_float32 = wrong("dtype_changed")(
    lambda queries, keys: ((queries[:, None].float() - keys.float()) ** 2).sum(-1)
)
squeezed_at_the_end = wrong("squeezed")(
    lambda queries, keys: torch.cdist(queries, keys).square().squeeze()
)
broadcast = right(lambda queries, keys: ((queries.unsqueeze(1) - keys.unsqueeze(0)) ** 2).sum(-1))
library_distance = right(lambda queries, keys: torch.cdist(queries, keys) ** 2)
adds_to_each_difference = wrong("precision_lost")(
    lambda queries, keys: torch.nn.functional.pairwise_distance(queries[:, None], keys[None]) ** 2
)


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
