"""Answers to `is_permutation_equivariant`."""

import itertools

import numpy as np
import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def all_adjacent_swaps(fn, x):
    y = fn(x)
    for i in range(x.shape[1] - 1):
        order = list(range(x.shape[1]))
        order[i], order[i + 1] = order[i + 1], order[i]
        if not torch.allclose(fn(x[:, order]), y[:, order], atol=1e-6):
            return False
    return True


@wrong("accepts_turns_nan")
def several_random_ones(fn, x):
    generator = torch.Generator().manual_seed(7)
    y = fn(x)
    for _ in range(10):
        order = torch.randperm(x.shape[1], generator=generator)
        if (fn(x[:, order]) - y[:, order]).abs().max() > 1e-6:
            return False
    return True


@right
def sorted_out_again(fn, x):
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(x.shape[1], generator=generator)
    back = order.argsort()
    again = torch.randperm(x.shape[1], generator=generator)
    first = torch.allclose(fn(x[:, order])[:, back], fn(x), atol=1e-6)
    return first and torch.allclose(fn(x[:, again]), fn(x)[:, again], atol=1e-6)


@right
def every_permutation_of_four(fn, x):
    y, n = fn(x), x.shape[1]
    for head in itertools.permutations(range(min(4, n))):
        order = list(head) + list(range(len(head), n))
        order = order[1:] + order[:1]
        if not torch.allclose(fn(x[:, order]), y[:, order]):
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


@wrong("output_not_permuted")
def invariance(fn, x):
    order = torch.arange(x.shape[1]).flip(0)
    return torch.allclose(fn(x[:, order]), fn(x), atol=1e-6)


@wrong("identity_permutation")
def moves_nothing(fn, x):
    order = torch.arange(x.shape[1])
    return torch.allclose(fn(x[:, order]), fn(x)[:, order])


@wrong("batch_permuted")
def wrong_axis(fn, x):
    order = torch.arange(len(x)).flip(0)
    return torch.allclose(fn(x[order]), fn(x)[order])


@wrong("rejects_rounding")
def exact(fn, x):
    order = torch.tensor([3, 0, 5, 1, 4, 2, *range(6, x.shape[1])])[: x.shape[1]].argsort()
    return torch.equal(fn(x[:, order]), fn(x)[:, order])


@wrong()
def compares_sums(fn, x):
    order = torch.arange(x.shape[1]).roll(1)
    return torch.allclose(fn(x[:, order]).sum(1), fn(x).sum(1))


@wrong("wrong_type")
def tensor_answer(fn, x):
    order = torch.tensor([1, 0, *range(2, x.shape[1])])
    return ((fn(x[:, order]) - fn(x)[:, order]).abs() < 1e-6).all()


@wrong("only_first_item")
def one_item(fn, x):
    y = fn(x)
    for order in ([1, 0, *range(2, x.shape[1])], [*range(1, x.shape[1]), 0]):
        if not torch.allclose(fn(x[:, order])[0], y[0, order], atol=1e-6):
            return False
    return True


@right
def neighbours_by_matrix(fn, x):
    outputs, n = fn(x), x.shape[1]
    for i in range(n - 1):
        order = torch.eye(n, dtype=x.dtype)
        order[[i, i + 1]] = order[[i + 1, i]]
        moved = torch.einsum("ij,bj...->bi...", order, outputs)
        if not torch.allclose(fn(order @ x), moved, atol=1e-6):
            return False
    return True


def _mixed(x, seed=4):
    return torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(seed))


@right
def one_order_undone(fn, x):
    p = _mixed(x)
    return torch.allclose(fn(x[:, p])[:, p.argsort()], fn(x), atol=1e-6)


@wrong("accepts_copies_of_the_first")
def first_position_fixed(fn, x):
    p = torch.cat([torch.zeros(1).long(), 1 + _mixed(x[:, 1:], 1)])
    return torch.allclose(fn(x[:, p]), fn(x)[:, p], atol=1e-6)


@right
def several_random_ones_and_no_nan(fn, x):
    generator = torch.Generator().manual_seed(7)
    y = fn(x)
    for _ in range(10):
        order = torch.randperm(x.shape[1], generator=generator)
        if not (fn(x[:, order]) - y[:, order]).abs().max() < 1e-6:
            return False
    return True


def _close(a, b):
    return torch.allclose(a, b, atol=1e-6)


def mixed(agree=_close, order=_mixed):
    """A test by one order of the positions, `order(x)`, after which the outputs must `agree`."""

    def test(fn, x):
        p = order(x)
        return bool(agree(fn(x[:, p]), fn(x)[:, p]))

    return test


never = wrong("always_false")(lambda fn, x: False)
sums_compared = wrong("sums_compared")(
    lambda fn, x: torch.allclose(fn(x.roll(1, 1)).sum(1), fn(x).roll(1, 1).sum(1), atol=1e-5)
)
signed_difference = wrong("accepts_all_smaller")(mixed(lambda a, b: (a - b).max() < 1e-6))
signed_the_other_way = wrong("accepts_all_larger")(mixed(lambda a, b: (b - a).max() < 1e-6))
all_but_the_last_position = wrong("accepts_last_row")(
    mixed(lambda a, b: _close(a[:, :-1], b[:, :-1]))
)
all_but_the_first_position = wrong("accepts_first_row")(
    mixed(lambda a, b: _close(a[:, 1:], b[:, 1:]))
)
first_feature = wrong("accepts_last_feature")(mixed(lambda a, b: _close(a[..., 0], b[..., 0])))
last_feature = wrong("accepts_first_feature")(mixed(lambda a, b: _close(a[..., -1], b[..., -1])))
three_hundredths_allowed = wrong("accepts_a_hundredth")(
    mixed(lambda a, b: torch.allclose(a, b, rtol=0.0, atol=0.03))
)
ends_swapped = wrong("accepts_reversed")(
    mixed(order=lambda x: [x.shape[1] - 1, *range(1, x.shape[1] - 1), 0])
)
first_three_moved = wrong("accepts_last_one_special")(
    mixed(order=lambda x: torch.tensor([2, 0, 1, *range(3, x.shape[1])]))
)
rotation = wrong("only_rotated")(mixed(order=lambda x: torch.arange(x.shape[1]).roll(2)))
mirror = wrong("only_reversed")(mixed(order=lambda x: torch.arange(x.shape[1]).flip(0)))
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


@wrong("features_permuted")
def last_axis_shuffled(fn, x):
    order = torch.tensor([*range(1, x.shape[-1]), 0])
    moved = fn(x[..., order])
    y = fn(x)
    return torch.allclose(moved, y.roll(-1, dims=-1), atol=1e-5)


@wrong("accepts_one_entry")
def mean_of_the_difference(fn, x):
    y = fn(x)
    for i in range(x.shape[1] - 1):
        order = list(range(x.shape[1]))
        order[i], order[i + 1] = order[i + 1], order[i]
        difference = (fn(x[:, order]) - y[:, order]).abs().mean()
        if not difference < 1e-3:
            return False
    return True


@wrong("wrong_type")
def bool_of_numpy(fn, x):
    return np.bool_(all_adjacent_swaps(fn, x))
