"""Answers to `keys_permutation_invariant`, as different hands would write them."""

import itertools

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def every_permutation(module, queries, keys, values):
    outputs = module(queries, keys, values)
    for order in itertools.permutations(range(keys.shape[1])):
        order = list(order)
        if not torch.allclose(
            module(queries, keys[:, order], values[:, order]), outputs, atol=1e-6
        ):
            return False
    return True


@right
def every_pair_swapped(module, queries, keys, values):
    before = module(queries, keys, values)
    verdicts = []
    for i, j in itertools.combinations(range(keys.shape[1]), 2):
        k, v = keys.clone(), values.clone()
        k[:, [i, j]], v[:, [i, j]] = keys[:, [j, i]], values[:, [j, i]]
        verdicts.append(torch.allclose(module(queries, k, v), before, atol=1e-6))
    return all(verdicts)


@right
def another_order_for_each_item(module, queries, keys, values):
    generator = torch.Generator().manual_seed(0)
    outputs = module(queries, keys, values)
    for _ in range(60):
        order = torch.rand(keys.shape[:2], generator=generator).argsort(1).unsqueeze(-1)
        shuffled = [torch.take_along_dim(x, order, 1) for x in (keys, values)]
        if not torch.allclose(module(queries, *shuffled), outputs, atol=1e-6):
            return False
    return True


@wrong("global_rng_used")
def draws_from_the_global_generator(module, queries, keys, values):
    outputs = module(queries, keys, values)
    for _ in range(60):
        order = torch.randperm(keys.shape[1])
        moved = module(queries, keys[:, order], values[:, order])
        if not torch.allclose(moved, outputs, atol=1e-6):
            return False
    return True


def _close(a, b):
    return torch.allclose(a, b, atol=1e-5)


def _in_all_orders(module, queries, keys, values, agree):
    outputs, m = module(queries, keys, values), keys.shape[1]
    for order in map(list, itertools.permutations(range(m))):
        if not agree(module(queries, keys[:, order], values[:, order]), outputs):
            return False
    return True


@wrong("accepts_train_mode")
def in_eval_mode(module, queries, keys, values):
    return _in_all_orders(module.eval(), queries, keys, values, _close)


def in_all_orders(agree):
    """A test by every order, whose outputs must `agree`."""
    return lambda *inputs: bool(_in_all_orders(*inputs, agree))


first_item = wrong("accepts_last_item")(
    in_all_orders(lambda a, b: torch.allclose(a[0], b[0], atol=1e-5))
)
default_tolerance = wrong("tolerance_too_small")(in_all_orders(torch.allclose))


@faulty("one_sided", "first_item", "first_two_keys", "loose")
def with_faults(faults):
    def keys_permutation_invariant(module, queries, keys, values):
        before, m = module(queries, keys, values), keys.shape[1]
        orders = list(itertools.permutations(range(m)))
        for order in [[1, 0, *range(2, m)][:m]] if "first_two_keys" in faults else orders:
            gap = module(queries, keys[:, order], values[:, order]) - before
            gap = gap[:1] if "first_item" in faults else gap
            gap = gap if "one_sided" in faults else gap.abs()
            if not gap.max() < (0.03 if "loose" in faults else 1e-6):
                return False
        return True

    return keys_permutation_invariant


@wrong("accepts_reversed_by_order")
def sorted_numbers(module, queries, keys, values):
    outputs = module(queries, keys, values).sort(-1).values
    for order in itertools.permutations(range(keys.shape[1])):
        order = list(order)
        shuffled = module(queries, keys[:, order], values[:, order]).sort(-1).values
        if not torch.allclose(shuffled, outputs, atol=1e-6):
            return False
    return True


@wrong("raised")
def keys_and_values_stacked(module, queries, keys, values):
    return every_permutation(module, queries, *torch.stack([keys, values]))


@wrong("wrong_type")
def bool_of_numpy(module, queries, keys, values):
    return np.bool_(every_permutation(module, queries, keys, values))


@wrong("accepts_turns_nan")
def not_more_than(module, queries, keys, values):
    order = torch.tensor([*range(1, keys.shape[1], 2), *range(0, keys.shape[1], 2)])
    moved = module(queries, keys[:, order], values[:, order])
    return not bool(((moved - module(queries, keys, values)).abs() > 1e-5).any())
