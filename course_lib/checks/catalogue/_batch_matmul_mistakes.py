"""Wrong models of lesson 03: what products with a mix-up of axes, items or sums come out as."""

import itertools
import math

import torch


def product(a, b):
    """The right product, for models that spoil it afterwards."""
    return torch.einsum("...nk,...km->...nm", a, b)


def first_for_all(x):
    """Item 0 in the place of every item."""
    if x.dim() < 3:
        return x
    return x[:1].expand_as(x)


def last_for_all(x):
    """The last item in the place of every item."""
    if x.dim() < 3:
        return x
    return x[-1:].expand_as(x)


def running_total(a, b, axes):
    """Sums that are not started anew along the last `axes` axes of the result."""
    right = product(a, b)
    return right.flatten(-axes).cumsum(dim=-1).reshape(right.shape)


def only_first_item(a, b):
    right = product(a, b)
    return torch.cat([right[:1], torch.zeros_like(right[1:])])


def truncated_terms(a, b):
    return (a[..., :, :, None] * b[..., None, :, :]).trunc().sum(dim=-2)


def swapped_indices_of_b(a, b):
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


def columns_counted_like_rows(a, b):
    """Columns 0..n-1 are filled, the others stay 0; too few columns raise IndexError."""
    right, n = product(a, b), a.shape[1]
    if n > b.shape[-1]:
        raise IndexError("index out of range")
    return torch.cat([right[..., :n], torch.zeros_like(right[..., n:])], dim=-1)


def terms_counted_like_rows(a, b):
    """The sum runs over n terms instead of k; too few terms raise IndexError."""
    n, k = a.shape[1:]
    if n > k:
        raise IndexError("index out of range")
    return product(a[..., :n], b[:, :n])


def by_indices(term, place=lambda x, i, j: (x, i, j), shape=None):
    """Four loops that add up `term(a, b, x, i, j, t)`; a wrong index raises IndexError."""

    def model(a, b):
        batch, n, k = a.shape
        m = b.shape[-1]
        out = a.new_zeros(shape(a, b) if shape else (batch, n, m))
        for x, i, j, t in itertools.product(range(batch), range(n), range(m), range(k)):
            out[place(x, i, j)] += term(a, b, x, i, j, t)
        return out

    return model


def right_term(a, b, x, i, j, t):
    return a[x, i, t] * b[x, t, j]


def only_first(count):
    """What is there after the first `count` entries of an item: a `return` inside the loops."""

    def model(a, b):
        right = product(a, b)
        kept = count(right) if callable(count) else count
        first = torch.arange(right.numel()) < kept
        return right * first.reshape(right.shape)

    return model


def without_item(index):
    def model(a, b):
        right = product(a, b)
        kept = torch.ones(len(right), 1, 1).to(right)
        kept[index] = 0
        return right * kept

    return model


def one_row_for_all(combine):
    """Rows (and items) that are one and the same list: `[[0] * m] * n`."""
    return lambda a, b: combine(product(a, b)).expand(len(a), a.shape[1], -1).clone()


def accumulated_over_items(a, b):
    """One buffer for all items, copied after each of them."""
    return product(a, b).cumsum(dim=0)


def same_buffer_for_all(a, b):
    """One buffer for all items, stored without a copy: every item shows the last state."""
    return product(a, b).sum(dim=0, keepdim=True).expand(len(a), -1, -1).clone()


# ---------------------------------------------------------------- any number of axes
def summed_over_batch(a, b):
    right = product(a, b)
    return right.flatten(0, -3).sum(dim=0) if right.dim() > 2 else right


def leading_axes_lost(function):
    """Leading axes are flattened into one and not restored."""

    def model(a, b):
        return function(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))

    return model


def three_axes_by_position(a, b):
    return (a.unsqueeze(3) * b.unsqueeze(1)).sum(2)


def reshaped(x):
    """The last two sizes exchanged by a reshape: same numbers in the same order, rows torn up."""
    return x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])


def cube(a, b):
    """Every product of an entry of `a` with one of `b`, not yet summed: (..., n, k, m)."""
    return a[..., :, :, None] * b[..., None, :, :]


def rolled(x):
    """Each item gets its neighbour's matrix."""
    return x.roll(1, dims=0) if x.dim() > 2 else x


# ---------------------------------------------------------------- scores
def in_place_transpose(queries, keys):
    return queries @ keys.transpose_(-2, -1)


def cosine(queries, keys):
    return torch.nn.functional.normalize(queries, dim=-1) @ (
        torch.nn.functional.normalize(keys, dim=-1).mT
    )


def negative_distance(queries, keys):
    return -(queries[..., :, None, :] - keys[..., None, :, :]).square().sum(dim=-1) / 2


def negative_plain_distance(queries, keys):
    return -torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")


def heads_summed(queries, keys):
    """bhqd,bgkd->bhqk: right without heads."""
    return queries @ (keys if keys.dim() < 4 else keys.sum(1, keepdim=True)).mT


def softmaxed(queries, keys):
    return torch.softmax(queries @ keys.mT, dim=-1)


def scaled(power):
    def model(queries, keys):
        return queries @ keys.mT / math.pow(queries.shape[-1], power)

    return model


def scaled_by_num_keys(queries, keys):
    return queries @ keys.mT / math.sqrt(keys.shape[-2])


# ---------------------------------------------------------------- weighted sums
def renormalised(weights, values):
    return weights / weights.sum(dim=-1, keepdim=True) @ values


def renormalised_but_zeros(weights, values):
    return torch.nan_to_num(weights / weights.sum(dim=-1, keepdim=True)) @ values


def softmaxed_again(weights, values):
    return torch.softmax(weights, dim=-1) @ values


def hardest(weights, values):
    """Only the value with the largest weight."""
    best = weights.argmax(dim=-1, keepdim=True)  # (..., n, 1)
    return torch.zeros_like(weights).scatter(-1, best, 1.0) @ values


def weights_squeezed(weights, values):
    """A bare squeeze drops every axis of size 1."""
    return (weights @ values).squeeze()


# ---------------------------------------------------------------- cost
def cost(flops, size):
    """A cost function from two formulas in (B, n, m, d, d_v, bytes)."""

    def model(batch, num_queries, num_keys, d, d_v, bytes_per_element=4):
        given = batch, num_queries, num_keys, d, d_v, bytes_per_element
        return {"flops": flops(*given), "score_bytes": size(*given)}

    return model


def right_flops(B, n, m, d, v, e):
    return 2 * B * n * m * (d + v)


def right_size(B, n, m, d, v, e):
    return B * n * m * e


def cost_without_default(batch, num_queries, num_keys, d, d_v, bytes_per_element):
    return cost(right_flops, right_size)(batch, num_queries, num_keys, d, d_v, bytes_per_element)


def cost_of_half_precision(batch, num_queries, num_keys, d, d_v, bytes_per_element=2):
    return cost(right_flops, right_size)(batch, num_queries, num_keys, d, d_v, bytes_per_element)
