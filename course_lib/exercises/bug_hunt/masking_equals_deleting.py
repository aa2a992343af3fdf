"""A test that masking keys has the same effect as deleting them."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._builders import Given, mistake
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._tests import (
    asked,
    asking_with_lengths,
    pairs,
    values_of_another_size,
)

_BROKEN = (
    *("curlew", "fulmar", "zero_after_softmax"),
    *("zeroed_pads", "one_key_more", "one_key_less", "average_over_keys_removed"),
)


def _masking_probes(rng) -> list[Probe]:
    ask = asking_with_lengths(rng)
    keys = np.array([[[1.0, 0.0], [2.0, 0.0], [9.0, 0.0]]])
    by_hand: Given = {"queries": tensor([[[1.0, -1.0]]]), "keys": tensor(keys)}
    by_hand |= {"values": tensor(keys - keys[..., ::-1]), "valid_lens": tensor([2])}
    pair = student_tests.modules(rng, "plain_average", "sound", heads=1, embed_dim=2)
    drawn = student_tests.inputs_of(rng) | {"valid_lens": student_tests.lengths_of(rng)}
    return [
        student_tests.question("by_hand", *pair, **by_hand),
        *pairs(rng, _BROKEN, ("sound", "avocet")),
        ask("one_key", "Items with one key must work.", ("sound", "bittern"), [1, 1], m=1),
        ask("nothing_to_delete", "Items without padding must work.", ("sound", "bittern"),
            [5, 5, 5]),
        ask("full_items", "Items without padding must work.", ("one_key_less", "sound"), [4, 4],
            m=4),
        values_of_another_size(rng, "real_average", "plain_average", valid_lens=[2, 4, 3]),
        student_tests.in_train_mode(rng, "pads", **drawn),
        *student_tests.module_edges(rng, "pads", "curlew", [2, 3, 2]),
    ]  # fmt: skip


def _masking(
    delete, agree=same, items: Callable = range, mode=None, found=all, again=False
) -> Callable:
    """Return a test that applies `delete(x, length)` to keys and values."""

    def test(module, queries, keys, values, valid_lens) -> bool:
        if mode is not None:
            module.train(mode)
        masked = module(queries, keys, values, valid_lens)
        results = []
        for b in items(len(queries)):
            item, length = slice(b, b + 1), int(valid_lens[b])
            lens = (valid_lens[item],) if again else ()
            shorter = [delete(x[item], length) for x in (keys, values)]
            deleted = module(queries[item], *shorter, *lens)
            results.append(bool(agree(masked[item], deleted)))
        return bool(found(results))

    return test


def _shorter(x, length) -> torch.Tensor:
    return x[:, :length]


def _masking_to_the_longest(module, queries, keys, values, valid_lens) -> bool:
    m = int(valid_lens.max())
    return same(
        module(queries, keys, values, valid_lens), module(queries, keys[:, :m], values[:, :m])
    )


EXERCISE = Exercise(
    points=4,
    minutes=10,
    difficulty=2,
    returns=student_tests.ANSWERS,
    probes=_masking_probes,
    oracle=asked(
        "masking_equals_deleting",
        lambda queries, keys, values, valid_lens: (valid_lens == keys.shape[1]).all(),
    ),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    confirms=_masking(_shorter),
    tally=student_tests.of_modules,
    mistakes=(
        mistake("lengths_given_again", _masking(_shorter, again=True)).says(
            "You pass the lengths to the second call, too. A mask that drops one real key drops "
            "it in both calls, so your test does not notice.",
            "Which arguments does the call with deleted keys need?",
        ),
        mistake("longest_only", _masking_to_the_longest).says(
            "You cut the keys of all items at the same place, although each item has a length of "
            "its own.",
            "How many keys must an item of length 2 keep?",
        ),
        mistake(
            "one_item_only",
            _masking(_shorter, items=lambda count: [0]),
            twins=(
                _masking(_shorter, items=lambda count: [count - 1]),
                _masking(_shorter, found=any),
            ),
        ).says(
            "A module with a wrong item can pass: you leave that item out, or one correct item "
            "is enough.",
            "Which items must be right before your test returns True?",
        ),
        mistake("mode_changed", _masking(_shorter, mode=False)).says(
            "You switch the module to eval mode. A module that is wrong only in train mode passes, "
            "and your caller's module may stay in eval mode.",
            "In which mode was the module that you were given?",
        ),
        *student_tests.mistakes_of_comparisons(lambda agree: _masking(_shorter, agree=agree)),
    ),
    hints=(
        "Two calls that should agree: one with all keys and `valid_lens`, one with only the real "
        "keys and no lengths at all.",
        "Lengths differ, so go item by item. `keys[b : b + 1, :length]` keeps the batch axis and "
        "the real keys. Compare with `torch.allclose` and a tolerance such as 1e-5.",
        "masked = module(queries, keys, values, valid_lens)\n"
        "for b, length in enumerate(valid_lens.tolist()):\n"
        "    item = slice(b, b + 1)\n"
        "    deleted = module(queries[item], keys[item, :length], ...)\n"
        "    if not torch.allclose(masked[item], deleted, atol=1e-5): return False\n"
        "return True",
    ),
)
