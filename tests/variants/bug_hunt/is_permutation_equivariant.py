"""Answers to `is_permutation_equivariant`."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def all_adjacent_swaps(fn, x):
    y = fn(x)
    for i in range(x.shape[1] - 1):
        order = list(range(x.shape[1]))
        order[i], order[i + 1] = order[i + 1], order[i]
        if not torch.allclose(fn(x[:, order]), y[:, order], atol=1e-6):
            return False
    return True


@right
def permutation_matrix(fn, x):
    n = x.shape[1]
    for order in ([1, 0, *range(2, n)], [n - 1, *range(n - 1)]):
        P = torch.eye(n, dtype=x.dtype)[order]
        if not torch.allclose(fn(P @ x), P @ fn(x), rtol=1e-5, atol=1e-5):
            return False
    return True


@wrong("accepts_last_item")
def one_item(fn, x):
    y = fn(x)
    for order in ([1, 0, *range(2, x.shape[1])], [*range(1, x.shape[1]), 0]):
        if not torch.allclose(fn(x[:, order])[0], y[0, order], atol=1e-6):
            return False
    return True


def _mixed(x, seed=4):
    return torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(seed))


@right
def one_order_undone(fn, x):
    p = _mixed(x)
    return torch.allclose(fn(x[:, p])[:, p.argsort()], fn(x), atol=1e-6)


def _close(a, b):
    return torch.allclose(a, b, atol=1e-6)


def mixed(agree=_close, order=_mixed):
    """A test by one order of the positions, `order(x)`, after which the outputs must `agree`."""

    def test(fn, x):
        p = order(x)
        return bool(agree(fn(x[:, p]), fn(x)[:, p]))

    return test


exact = wrong("rejects_rounding")(mixed(torch.equal))
default_tolerance = wrong("tolerance_too_small")(mixed(torch.allclose))
more_than_allowed = wrong("accepts_always_nan")(mixed(lambda a, b: not (a - b).abs().max() > 1e-6))
nan_equal = wrong("accepts_always_nan")(
    mixed(lambda a, b: torch.allclose(a, b, atol=1e-6, equal_nan=True))
)
first_two = wrong("accepts_third_looks_ahead")(
    mixed(order=lambda x: [*range(x.shape[1])[1::-1], *range(2, x.shape[1])])
)
global_random_numbers = wrong("global_rng_used")(
    lambda fn, x: all(
        torch.allclose(fn(x[:, order]), fn(x)[:, order], atol=1e-6)
        for order in (torch.randperm(x.shape[1]) for _ in range(20))
    )
)


@faulty("one_sided", "first_item", "only_rotated", "loose")
def with_faults(faults):
    def is_permutation_equivariant(fn, x):
        y, n = fn(x), x.shape[1]
        orders = [[*range(1, n), 0]]
        if "only_rotated" not in faults:
            orders.append([1, 0, *range(2, n)])
        for order in orders:
            gap = fn(x[:, order]) - y[:, order]
            gap = gap[:1] if "first_item" in faults else gap
            gap = gap if "one_sided" in faults else gap.abs()
            if not gap.max() < (0.03 if "loose" in faults else 1e-6):
                return False
        return True

    return is_permutation_equivariant


@wrong("wrong_type")
def bool_of_numpy(fn, x):
    return np.bool_(all_adjacent_swaps(fn, x))
