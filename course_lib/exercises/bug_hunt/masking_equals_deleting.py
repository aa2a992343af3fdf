"""`masking_equals_deleting`: a test that masking keys has the same effect as deleting them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import tensor
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._tests import (
    asked,
    asking_with_lengths,
    pairs,
    values_of_another_size,
)
from course_lib.exercises.kit import Problems, like, mistake

_BROKEN = (
    *("curlew", "fulmar", "zero_after_softmax"),
    *("zeroed_pads", "one_key_more", "one_key_less", "average_over_keys_removed"),
)


def problems(rng) -> Problems:
    ask = asking_with_lengths(rng)
    keys = np.array([[[1.0, 0.0], [2.0, 0.0], [9.0, 0.0]]])
    by_hand: dict[str, Any] = {"queries": tensor([[[1.0, -1.0]]]), "keys": tensor(keys)}
    by_hand |= {"values": tensor(keys - keys[..., ::-1]), "valid_lens": tensor([2])}
    pair = student_tests.modules(rng, "plain_average", "sound", heads=1, embed_dim=2)
    drawn = student_tests.inputs_of(rng) | {"valid_lens": student_tests.lengths_of(rng)}
    yield student_tests.question("by_hand", *pair, **by_hand)
    yield from pairs(rng, _BROKEN, ("sound", "avocet"))
    yield ask("one_key", "Items with one key must work.", ("sound", "bittern"), [1, 1], m=1)
    full = "Items without padding must work."
    yield ask("nothing_to_delete", full, ("sound", "bittern"), [5, 5, 5])
    yield ask("full_items", full, ("one_key_less", "sound"), [4, 4], m=4)
    yield values_of_another_size(rng, "real_average", "plain_average", valid_lens=[2, 4, 3])
    yield student_tests.in_train_mode(rng, "pads", **drawn)
    yield from student_tests.module_edges(rng, "pads", "curlew", [2, 3, 2])


def deleted(
    module, queries, keys, values, valid_lens, items, agree=same, lens_again=False
) -> list[bool]:
    """Return for each item whether it gives the same outputs without its padded keys."""
    masked = module(queries, keys, values, valid_lens)
    found = []
    for b in items:
        item, length = slice(b, b + 1), int(valid_lens[b])
        lens = [valid_lens[item]] if lens_again else []
        outputs = module(queries[item], keys[item, :length], values[item, :length], *lens)
        found.append(bool(agree(masked[item], outputs)))
    return found


def with_comparison(agree) -> Callable:
    return lambda *given: all(deleted(*given, items=range(len(given[1])), agree=agree))


@mistake
def lengths_given_again(module, queries, keys, values, valid_lens) -> bool:
    """You pass the lengths to the second call, too. A mask that drops one real key drops it in both
    calls, so your test does not notice.

    Which arguments does the call with deleted keys need?
    """
    items = range(len(queries))
    return all(deleted(module, queries, keys, values, valid_lens, items, lens_again=True))


@like(lengths_given_again)
def zeroed_with_lengths(module, queries, keys, values, valid_lens) -> bool:
    real = (torch.arange(keys.shape[1]) < valid_lens[:, None])[..., None]
    zeroed = module(queries, keys * real, values * real, valid_lens)
    return same(module(queries, keys, values, valid_lens), zeroed)


@mistake
def zeroed_for_deleted(module, queries, keys, values, valid_lens) -> bool:
    """You set the padded keys and values to 0 instead of deleting them. The zeroed keys still get
    positive weights, so your test rejects even a sound module.

    Does the softmax give a score of 0 a weight of 0?
    """
    real = (torch.arange(keys.shape[1]) < valid_lens[:, None])[..., None]
    zeroed = module(queries, keys * real, values * real)
    return same(module(queries, keys, values, valid_lens), zeroed)


@mistake
def longest_only(module, queries, keys, values, valid_lens) -> bool:
    """You cut the keys of all items at the same place, although each item has a length of its own.

    How many keys must an item of length 2 keep?
    """
    m = int(valid_lens.max())
    cut = module(queries, keys[:, :m], values[:, :m])
    return same(module(queries, keys, values, valid_lens), cut)


@like(longest_only)
def shortest_only(module, queries, keys, values, valid_lens) -> bool:
    m = int(valid_lens.min())
    cut = module(queries, keys[:, :m], values[:, :m])
    return same(module(queries, keys, values, torch.full_like(valid_lens, m)), cut)


@mistake
def real_keys_deleted(module, queries, keys, values, valid_lens) -> bool:
    """You delete the real keys and keep the padding, so your test rejects even a sound module.

    Which keys of an item of length 2 must the second call get?
    """
    padding = zip(queries, keys, values, valid_lens, strict=True)
    alone = [module(q[None], k[None, n:], v[None, n:])[0] for q, k, v, n in padding]
    return same(module(queries, keys, values, valid_lens), torch.stack(alone))


@mistake
def queries_cut(module, queries, keys, values, valid_lens) -> bool:
    """You cut the queries to the item's length, too, although lengths apply only to keys. Your test
    never compares the outputs of the queries that you cut off.

    How many queries does every item have, whatever its length?
    """
    masked = module(queries, keys, values, valid_lens)
    items = [(slice(b, b + 1), slice(int(n))) for b, n in enumerate(valid_lens)]
    return all(same(masked[i], module(queries[i], keys[i], values[i])) for i in items)


@mistake
def one_item_only(module, queries, keys, values, valid_lens) -> bool:
    """A module with a wrong item can pass: you leave that item out, or one correct item is enough.

    Which items must be right before your test returns True?
    """
    return all(deleted(module, queries, keys, values, valid_lens, [0]))


@like(one_item_only)
def last_item_only(module, queries, keys, values, valid_lens) -> bool:
    return all(deleted(module, queries, keys, values, valid_lens, [len(queries) - 1]))


@like(one_item_only)
def any_item(module, queries, keys, values, valid_lens) -> bool:
    return any(deleted(module, queries, keys, values, valid_lens, range(len(queries))))


@mistake
def mode_changed(module, queries, keys, values, valid_lens) -> bool:
    """You switch the module to eval mode. A module that is wrong only in train mode passes, and
    your caller's module may stay in eval mode.

    In which mode was the module that you were given?
    """
    module.train(False)
    return all(deleted(module, queries, keys, values, valid_lens, range(len(queries))))


EXERCISE = Exercise(
    points=4,
    minutes=10,
    difficulty=2,
    returns=student_tests.ANSWERS,
    probes=problems,
    oracle=asked(
        "masking_equals_deleting",
        lambda queries, keys, values, valid_lens: (valid_lens == keys.shape[1]).all(),
    ),
    mistakes=student_tests.mistakes_of_comparisons(with_comparison),
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
    marking=student_tests.marking(student_tests.of_modules, with_comparison(same)),
)
