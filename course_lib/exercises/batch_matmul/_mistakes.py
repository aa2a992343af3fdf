"""Wrong models of lesson 03: what products with a mix-up of axes, items or sums come out as."""

import math
from collections.abc import Callable

import torch

from course_lib.exercises._rows import in_steps


def spoilt(change) -> Callable:
    """The right product, and what `change` makes of it."""
    return lambda a, b: change(torch.einsum("...nk,...km->...nm", a, b))


def first_for_all(x) -> torch.Tensor:
    """Item 0 in the place of every item."""
    if x.dim() < 3:
        return x
    return x[:1].expand_as(x)


sum_never_reset = spoilt(lambda right: right.flatten().cumsum(dim=-1).reshape(right.shape))
only_first_item = spoilt(lambda right: torch.cat([right[:1], torch.zeros_like(right[1:])]))
# One buffer, stored without a copy: every item shows the last state.
same_buffer_for_all = spoilt(lambda right: right.sum(0, keepdim=True).expand_as(right).clone())


def swapped_indices_of_b(a, b) -> torch.Tensor:
    """b[item, j, t] where b[item, t, j] is meant: IndexError unless b is square."""
    batch, n, k = a.shape
    m = b.shape[-1]
    out = a.new_zeros(batch, n, m)
    for item in range(batch):
        for i in range(n):
            for j in range(m):
                for t in range(k):
                    out[item, i, j] += a[item, i, t] * b[item, j, t]
    return out


# ---------------------------------------------------------------- any number of axes
summed_over_batch = spoilt(
    lambda right: right.flatten(0, -3).sum(dim=0) if right.dim() > 2 else right
)
leading_axes_lost = spoilt(lambda right: right.reshape(-1, *right.shape[-2:]))


def reshaped(x) -> torch.Tensor:
    """The last two sizes exchanged by a reshape: same numbers in the same order, rows torn up."""
    return x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])


def cube(a, b) -> torch.Tensor:
    """Every product of an entry of `a` with one of `b`, not yet summed: (..., n, k, m)."""
    return a[..., :, :, None] * b[..., None, :, :]


# ---------------------------------------------------------------- scores


def scaled(power) -> Callable:
    def model(queries, keys) -> torch.Tensor:
        return queries @ keys.mT / math.pow(queries.shape[-1], power)

    return model


# ---------------------------------------------------------------- weighted sums
def renormalised(weights, values) -> torch.Tensor:
    return weights / weights.sum(dim=-1, keepdim=True) @ values


# ---------------------------------------------------------------- cost
@in_steps(
    flops=lambda B, n, m, d, v, e: 2 * B * n * m * (d + v),
    size=lambda B, n, m, d, v, e: B * n * m * e,
)
def cost(flops, size) -> Callable:
    """A cost function from two formulas in (B, n, m, d, d_v, bytes)."""

    def model(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
        given = batch, num_queries, num_keys, d, d_v, bytes_per_element
        return {"flops": flops(*given), "score_bytes": size(*given)}

    return model
