"""`batch_items_independent`: a test that the items of a batch do not affect each other."""

import functools
from collections.abc import Callable, Iterator

import torch

from course_lib.checks.judge.definitions import Exercise
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._tests import (
    asked,
    asking_with_lengths,
    pairs,
    values_of_another_size,
)
from course_lib.exercises.kit import Problems, like, mistake

_BROKEN = ("fulmar", "batch_average_removed", "length_of_first_item_for_all", "later_items_doubled")
_KEEPERS = ("sound", "avocet", "curlew", "jacana")


def problems(rng) -> Problems:
    ask = asking_with_lengths(rng)
    drawn = student_tests.inputs_of(rng) | {"valid_lens": student_tests.lengths_of(rng)}
    yield from pairs(rng, _BROKEN, _KEEPERS)
    yield ask("one_item", "A batch of one item must work.", ("sound", "avocet"), [2], m=4)
    of_four = "A batch of four items must work."
    yield ask("four_items", of_four, ("later_items_doubled", "sound"), [2, 6, 1, 4], n=2, m=6)
    yield values_of_another_size(rng, "batch_average", "real_average", valid_lens=[2, 4, 3])
    yield student_tests.in_train_mode(rng, "company", **drawn)
    yield from student_tests.module_edges(rng, "company", "later_items_doubled", [2, 3, 2])


def alone(module, queries, keys, values, lens, items, agree=same) -> Iterator[bool]:
    """Yield for each item whether it gives the same outputs alone; `lens(item)` is its length."""
    together = module(queries, keys, values, *lens(slice(None)))
    for b in items:
        item = slice(b, b + 1)
        outputs = module(queries[item], keys[item], values[item], *lens(item))
        yield bool(agree(outputs, together[item]))


def with_comparison(agree) -> Callable:
    def batch_items_independent(module, queries, keys, values, valid_lens) -> bool:
        items = range(len(queries))
        return all(
            alone(module, queries, keys, values, lambda item: [valid_lens[item]], items, agree)
        )

    return batch_items_independent


@mistake
def lengths_only_together(module, queries, keys, values, valid_lens) -> bool:
    """You call the module with one item but no length: even a sound module may give other outputs.

    Which length belongs to item b?
    """

    def lens(item) -> list:
        return [valid_lens] if item == slice(None) else []

    return all(alone(module, queries, keys, values, lens, range(len(queries))))


@mistake
def one_item_only(module, queries, keys, values, valid_lens, item=0) -> bool:
    """A module with a wrong item can pass: you leave that item out, or one correct item is enough.

    Which items must be right before your test returns True?
    """
    item %= len(queries)
    return all(alone(module, queries, keys, values, lambda at: [valid_lens[at]], [item]))


@like(one_item_only)
def last_item_only(module, queries, keys, values, valid_lens) -> bool:
    return one_item_only(module, queries, keys, values, valid_lens, -1)


@like(one_item_only)
def any_item(module, queries, keys, values, valid_lens) -> bool:
    items = range(len(queries))
    return any(alone(module, queries, keys, values, lambda at: [valid_lens[at]], items))


@mistake
def copies_of_one_item(module, queries, keys, values, valid_lens) -> bool:
    """You call the module with a batch of copies of one item instead of that item alone. A module
    that gives wrong outputs for every batch of two or more items may pass.

    How many items should the module receive when you test one item alone?
    """
    given = queries, keys, values, valid_lens
    together = module(*given)
    copies = ([x[b].expand_as(x).contiguous() for x in given] for b in range(len(queries)))
    found = [same(module(*copy)[0], together[b]) for b, copy in enumerate(copies)]
    return all(found)


@mistake
def all_lengths(module, queries, keys, values, valid_lens) -> bool:
    """You call the module with a single item and the lengths of all items.

    Which length belongs to item b?
    """
    return all(alone(module, queries, keys, values, lambda _: [valid_lens], range(len(queries))))


@like(all_lengths)
def all_lengths_broadcast(module, queries, keys, values, valid_lens) -> bool:
    close = functools.partial(torch.allclose, atol=1e-5)  # of any shapes that fit each other
    items = range(len(queries))
    return all(alone(module, queries, keys, values, lambda _: [valid_lens], items, close))


@mistake
def items_reordered(module, queries, keys, values, valid_lens) -> bool:
    """You only change the order of the items. A module that mixes all items alike still gives the
    same outputs in the new order.

    What should the output of an item be if the other items are not there?
    """
    given = queries, keys, values, valid_lens
    return same(module(*(x.flip(0) for x in given)), module(*given).flip(0))


EXERCISE = Exercise(
    points=3,
    minutes=6,
    difficulty=1,
    returns=student_tests.ANSWERS,
    probes=problems,
    oracle=asked("items_apart", lambda queries, keys, values, valid_lens: len(queries) == 1),
    mistakes=student_tests.mistakes_of_comparisons(with_comparison),
    hints=(
        "An item's output should not depend on the rest of the batch. Call the module with the "
        "whole batch, then with each item alone.",
        "`x[b : b + 1]` is item b as a batch of one. Slice queries, keys, values and lengths, and "
        "compare with `together[b : b + 1]`, for every b.",
        "together = module(queries, keys, values, valid_lens)\n"
        "for b in range(len(queries)):\n"
        "    item = slice(b, b + 1)\n"
        "    alone = module(queries[item], keys[item], values[item], valid_lens[item])\n"
        "    ...  # compare with together[item]",
    ),
    marking=student_tests.marking(student_tests.of_modules, with_comparison(same)),
)
