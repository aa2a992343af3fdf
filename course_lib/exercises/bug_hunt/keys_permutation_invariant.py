"""A test of a module: the order of the keys does not matter."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._rows import Given, mistake
from course_lib.exercises.bug_hunt._tests import (
    asked,
    constant,
    pairs,
    same,
    values_of_another_size,
)

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
        ask("equal_keys", "Here all keys of an item are equal.", "first_key_special", "sound",
            same_keys),
        ask("one_key", "Here there is one key.", "first_key_special", "sound", m=1),
        ask("one_item_and_query", "Here the batch is one item of one query.", "neighbours_count",
            "curlew", b=1, n=1, m=4),
        values_of_another_size(rng, "first_value", "plain_average"),
        ask("keys_in_order", "Here the first keys are in order.", "reversed_by_order", "sound",
            _keys_in_order(rng)),
        student_tests.in_train_mode(rng, "order", **_keys_in_order(rng)),
        *student_tests.module_edges(rng, "order", "first_key_special", num_keys=3),
    ]  # fmt: skip


def _keys_in_order(rng) -> Given:
    inputs = student_tests.inputs_of(rng, m=4)
    inputs["keys"].data[..., 1] = np.arange(4.0)
    return inputs


def _permuting(*orders, items=slice(None)) -> Callable:
    """A test with the given orders, `order(num_keys) -> list`."""

    def test(module, queries, keys, values) -> bool:
        outputs = module(queries, keys, values)[items]
        for order in orders:
            index = order(keys.shape[1])
            if not same(module(queries, keys[:, index], values[:, index])[items], outputs):
                return False
        return True

    return test


def _of_the_first_item(module, queries, keys, values) -> bool:
    swaps = [
        lambda count, j=j: [*range(j), j + 1, j, *range(j + 2, count)]
        for j in range(keys.shape[1] - 1)
    ]
    return _permuting(*swaps, items=slice(1))(module, queries, keys, values)


def _roll(count) -> list[int]:
    return [*range(1, count), 0]


def _flip(count) -> list[int]:
    return list(range(count))[::-1]


EXERCISE = Exercise(
    points=3,
    minutes=8,
    difficulty=2,
    returns=student_tests.ANSWERS,
    probes=_permutation_probes,
    oracle=asked("keys_permutation", lambda queries, keys, values: keys.shape[1] == 1),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    tally=student_tests.of_modules,
    mistakes=(
        mistake("only_a_flip", _permuting(_flip)).says(
            "You only reverse the keys. The middle key stays where it is, so a module that "
            "prefers it passes.",
            "Which order moves the middle key?",
        ),
        mistake("only_a_roll", _permuting(_roll)).says(
            "You only rotate the keys. Around the circle every key keeps its neighbours, so a "
            "module that looks at neighbours passes.",
            "Which order separates neighbours?",
        ),
        mistake("always_true", constant(True)).says(
            "Your test says True of every module, even the broken ones.",
            "Does the order you try differ from the one the keys had?",
        ),
        mistake("first_item_only", _of_the_first_item).says(
            "Your test looks at the first item only.", "Over which axes must the comparison run?"
        ),
    ),
    hints=(
        "A set of (key, value) pairs has no order. Pass the pairs in another order: nothing may "
        "change.",
        "`order` is a permutation of 0..m-1. Index keys and values with it along axis 1, and "
        "leave the queries alone. One order is not enough: a flip keeps the middle, a roll keeps "
        "the neighbours. Swap each pair of neighbours in turn.",
        "for j in range(keys.shape[1] - 1):\n"
        "    order = torch.arange(keys.shape[1], device=keys.device)\n"
        "    order[j], order[j + 1] = j + 1, j\n"
        "    swapped = module(queries, keys[:, order], values[:, order])\n"
        "    ...  # compare with module(queries, keys, values)",
    ),
)
