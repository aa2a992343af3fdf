"""`keys_permutation_invariant`: a test that the order of the keys does not matter."""

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._tests import asked, pairs, values_of_another_size
from course_lib.exercises.kit import Problems, like, mistake

_BROKEN = ("jacana", "first_key_special", "middle_keys_special", "neighbours_count")
_KEEPERS = ("sound", "avocet", "bittern", "egret")


def problems(rng) -> Problems:
    same_keys = student_tests.inputs_of(rng, m=4)
    same_keys["keys"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 4, axis=1))

    def ask(name, says, first, second, inputs=None, **sizes) -> Probe:
        pair = student_tests.modules(rng, first, second)
        inputs = inputs or student_tests.inputs_of(rng, **sizes)
        return student_tests.question(name, *pair, says=says, **inputs)

    yield from pairs(rng, _BROKEN, _KEEPERS, lengths=False, m=5)
    of_equal = "Items whose keys are all equal must work."
    yield ask("equal_keys", of_equal, "first_key_special", "sound", same_keys)
    yield ask("one_key", "Items with one key must work.", "first_key_special", "sound", m=1)
    of_one = "One item with one query must work."
    yield ask("one_item_and_query", of_one, "neighbours_count", "curlew", b=1, n=1, m=4)
    yield values_of_another_size(rng, "first_value", "plain_average")
    ascending = "Keys whose feature 1 ascends must work."
    in_order = keys_in_order(rng)
    yield ask("keys_in_order", ascending, "reversed_by_order", "sound", in_order)
    in_order = keys_in_order(rng)
    yield ask("far_apart", ascending, "reversed_by_third", "sound", in_order)
    yield student_tests.in_train_mode(rng, "order", **keys_in_order(rng))
    yield from student_tests.module_edges(rng, "order", "first_key_special", num_keys=3)


def keys_in_order(rng) -> dict[str, Any]:
    inputs = student_tests.inputs_of(rng, m=4)
    inputs["keys"].data[..., 1] = np.arange(4.0)
    return inputs


def permuted(module, queries, keys, values, of_keys, of_values, agree=same) -> bool:
    """Return whether the outputs stay for keys and values in these orders."""
    m = keys.shape[1]
    changed = module(queries, keys[:, of_keys(m)], values[:, of_values(m)])
    return bool(agree(changed, module(queries, keys, values)))


def mixed(count) -> list[int]:
    return [*range(1, count, 2), *range(0, count, 2)]


def rolled(count) -> list[int]:
    return [*range(1, count), 0]


def flipped(count) -> list[int]:
    return list(range(count))[::-1]


def with_comparison(agree) -> Callable:
    return lambda *given: permuted(*given, of_keys=mixed, of_values=mixed, agree=agree)


@mistake
def only_a_flip(module, queries, keys, values) -> bool:
    """You only reverse the keys. Those in the middle stay there, and neighbors stay neighbors, so a
    module that depends on either may pass.

    What does a reversal leave unchanged, and which orders change it?
    """
    return permuted(module, queries, keys, values, flipped, flipped)


@mistake
def neighbors_kept(module, queries, keys, values) -> bool:
    """In each of your orders, every key keeps its neighbors in a circle, so a module that combines
    neighbors in a circle passes.

    Which order separates neighbors?
    """
    return permuted(module, queries, keys, values, rolled, rolled)


@like(neighbors_kept)
def all_rotations(module, queries, keys, values) -> bool:
    def by(shift) -> Callable:
        return lambda count: [*range(shift, count), *range(shift)]

    turns = map(by, range(1, keys.shape[1]))
    return all(permuted(module, queries, keys, values, turn, turn) for turn in turns)


@mistake
def neighbors_swapped(module, queries, keys, values) -> bool:
    """Each of your orders swaps only one pair of neighboring keys. Any two keys that are not
    neighbors keep their relative order, so a module that depends on the order of keys 0 and 2 may
    pass.

    Which of your orders puts key 2 before key 0?
    """

    def swapped(i) -> bool:
        def order(count) -> list[int]:
            return [*range(i), i + 1, i, *range(i + 2, count)]

        return permuted(module, queries, keys, values, order, order)

    return all(swapped(i) for i in range(keys.shape[1] - 1))


@mistake
def items_reordered(module, queries, keys, values) -> bool:
    """You reorder the items of the batch instead of the keys within each item, so your test rejects
    even a sound module.

    Which axis of `keys` indexes the keys?
    """
    changed = module(queries, keys.flip(0), values.flip(0))
    return same(changed, module(queries, keys, values))


@mistake
def values_left(module, queries, keys, values) -> bool:
    """You order keys and values differently, so even a sound module may give other outputs.

    Which value belongs to a key after the permutation?
    """
    return permuted(module, queries, keys, values, flipped, range)


@like(values_left)
def values_in_another_order(module, queries, keys, values) -> bool:
    return permuted(module, queries, keys, values, flipped, rolled)


EXERCISE = Exercise(
    points=3,
    minutes=8,
    difficulty=2,
    returns=student_tests.ANSWERS,
    probes=problems,
    oracle=asked("keys_permutation", lambda queries, keys, values: keys.shape[1] == 1),
    mistakes=student_tests.mistakes_of_comparisons(with_comparison),
    hints=(
        "A set of (key, value) pairs has no order. Pass the pairs in another order: nothing may "
        "change.",
        "`order` is a permutation of 0..m-1. Index keys and values with it along axis 1, and "
        "leave the queries alone. One order is not enough: a flip keeps the middle, a roll keeps "
        "the neighbors. Try many random orders, drawn from a generator of your own.",
        "generator = torch.Generator().manual_seed(0)\n"
        "for _ in range(20):\n"
        "    order = torch.randperm(keys.shape[1], generator=generator)\n"
        "    shuffled = module(queries, keys[:, order], values[:, order])\n"
        "    ...  # compare with module(queries, keys, values)",
    ),
    marking=student_tests.marking(student_tests.of_modules, with_comparison(same)),
)
