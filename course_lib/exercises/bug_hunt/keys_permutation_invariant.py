"""A test that the order of the keys does not matter."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._builders import Given, mistake
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._tests import asked, pairs, values_of_another_size

_BROKEN = ("jacana", "first_key_special", "middle_keys_special", "neighbours_count")
_KEEPERS = ("sound", "avocet", "bittern", "egret")


def _permutation_probes(rng) -> list[Probe]:
    same_keys = student_tests.inputs_of(rng, m=4)
    same_keys["keys"] = tensor(np.repeat(rng.normal(0, 1.4, (3, 1, 6)), 4, axis=1))

    def ask(name, says, first, second, inputs=None, **sizes) -> Probe:
        pair = student_tests.modules(rng, first, second)
        inputs = inputs or student_tests.inputs_of(rng, **sizes)
        return student_tests.question(name, *pair, says=says, **inputs)

    return [
        *pairs(rng, _BROKEN, _KEEPERS, lengths=False, m=5),
        ask("equal_keys", "Items whose keys are all equal must work.", "first_key_special", "sound",
            same_keys),
        ask("one_key", "Items with one key must work.", "first_key_special", "sound", m=1),
        ask("one_item_and_query", "One item with one query must work.", "neighbours_count",
            "curlew", b=1, n=1, m=4),
        values_of_another_size(rng, "first_value", "plain_average"),
        ask("keys_in_order", "Keys whose feature 1 ascends must work.",
            "reversed_by_order", "sound", _keys_in_order(rng)),
        ask("far_apart", "Keys whose feature 1 ascends must work.",
            "reversed_by_third", "sound", _keys_in_order(rng)),
        student_tests.in_train_mode(rng, "order", **_keys_in_order(rng)),
        *student_tests.module_edges(rng, "order", "first_key_special", num_keys=3),
    ]  # fmt: skip


def _keys_in_order(rng) -> Given:
    inputs = student_tests.inputs_of(rng, m=4)
    inputs["keys"].data[..., 1] = np.arange(4.0)
    return inputs


def _permuting(order, value_order=None, agree=same) -> Callable:
    """Return a test that orders keys and values by `order(num_keys)`."""

    def test(module, queries, keys, values) -> bool:
        moved = order(keys.shape[1])
        also = moved if value_order is None else value_order(keys.shape[1])
        changed = module(queries, keys[:, moved], values[:, also])
        return bool(agree(changed, module(queries, keys, values)))

    return test


def _roll(count) -> list[int]:
    return [*range(1, count), 0]


def _all_rotations(*inputs) -> bool:
    tests = [_permuting(lambda n, k=k: [(i + k) % n for i in range(n)]) for k in range(5)]
    return all(test(*inputs) for test in tests)


def _flip(count) -> list[int]:
    return list(range(count))[::-1]


def _mixed(count) -> list[int]:
    return [*range(1, count, 2), *range(0, count, 2)]


EXERCISE = Exercise(
    points=3,
    minutes=8,
    difficulty=2,
    returns=student_tests.ANSWERS,
    probes=_permutation_probes,
    oracle=asked("keys_permutation", lambda queries, keys, values: keys.shape[1] == 1),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    confirms=_permuting(_mixed),
    tally=student_tests.of_modules,
    mistakes=(
        mistake("only_a_flip", _permuting(_flip)).says(
            "You only reverse the keys. Those in the middle stay there, and neighbors stay "
            "neighbors, so a module that depends on either may pass.",
            "What does a reversal leave unchanged, and which orders change it?",
        ),
        mistake("neighbors_kept", _permuting(_roll), twins=(_all_rotations,)).says(
            "In each of your orders, every key keeps its neighbors in a circle, so a module that "
            "combines neighbors in a circle passes.",
            "Which order separates neighbors?",
        ),
        mistake(
            "values_left",
            _permuting(_flip, range),
            twins=(
                _permuting(_roll, range),
                _permuting(_mixed, range),
                _permuting(_flip, _roll),
                _permuting(range, _flip),
            ),
        ).says(
            "You order keys and values differently, so even a sound module may give other outputs.",
            "Which value belongs to a key after the permutation?",
        ),
        *student_tests.mistakes_of_comparisons(lambda agree: _permuting(_mixed, agree=agree)),
    ),
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
)
