"""Wrong models of lesson 03: what products with a mix-up of axes, items or sums come out as."""

import math
from collections.abc import Callable

import torch


def product(a, b) -> torch.Tensor:
    """The right product, for models that spoil it afterwards."""
    return torch.einsum("...nk,...km->...nm", a, b)


def first_for_all(x) -> torch.Tensor:
    """Item 0 in the place of every item."""
    if x.dim() < 3:
        return x
    return x[:1].expand_as(x)


def running_total(a, b, axes) -> torch.Tensor:
    """Sums that are not started anew along the last `axes` axes of the result."""
    right = product(a, b)
    return right.flatten(-axes).cumsum(dim=-1).reshape(right.shape)


def only_first_item(a, b) -> torch.Tensor:
    right = product(a, b)
    return torch.cat([right[:1], torch.zeros_like(right[1:])])


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


def same_buffer_for_all(a, b) -> torch.Tensor:
    """One buffer for all items, stored without a copy: every item shows the last state."""
    return product(a, b).sum(dim=0, keepdim=True).expand(len(a), -1, -1).clone()


# ---------------------------------------------------------------- any number of axes
def summed_over_batch(a, b) -> torch.Tensor:
    right = product(a, b)
    return right.flatten(0, -3).sum(dim=0) if right.dim() > 2 else right


def leading_axes_lost(function) -> Callable:
    """Leading axes are flattened into one and not restored."""

    def model(a, b) -> torch.Tensor:
        return function(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))

    return model


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
def cost(flops, size) -> Callable:
    """A cost function from two formulas in (B, n, m, d, d_v, bytes)."""

    def model(batch, num_queries, num_keys, d, d_v, bytes_per_element=4) -> dict[str, int]:
        given = batch, num_queries, num_keys, d, d_v, bytes_per_element
        return {"flops": flops(*given), "score_bytes": size(*given)}

    return model


def right_flops(B, n, m, d, v, e) -> int:
    return 2 * B * n * m * (d + v)


def right_size(B, n, m, d, v, e) -> int:
    return B * n * m * e
