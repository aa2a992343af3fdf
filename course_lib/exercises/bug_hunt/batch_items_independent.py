"""A test that the items of a batch do not affect each other."""

from collections.abc import Callable

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe
from course_lib.exercises import _student_tests as student_tests
from course_lib.exercises._builders import mistake
from course_lib.exercises._student_tests import same
from course_lib.exercises.bug_hunt._tests import (
    asked,
    asking_with_lengths,
    pairs,
    values_of_another_size,
)

_BROKEN = ("fulmar", "batch_average_removed", "length_of_first_item_for_all", "later_items_doubled")
_KEEPERS = ("sound", "avocet", "curlew", "jacana")


def _items_probes(rng) -> list[Probe]:
    ask = asking_with_lengths(rng)
    drawn = student_tests.inputs_of(rng) | {"valid_lens": student_tests.lengths_of(rng)}
    return [
        *pairs(rng, _BROKEN, _KEEPERS),
        ask("one_item", "A batch of one item must work.", ("sound", "avocet"), [2], m=4),
        ask("four_items", "A batch of four items must work.", ("later_items_doubled", "sound"),
            [2, 6, 1, 4], n=2, m=6),
        values_of_another_size(rng, "batch_average", "real_average", valid_lens=[2, 4, 3]),
        student_tests.in_train_mode(rng, "company", **drawn),
        *student_tests.module_edges(rng, "company", "later_items_doubled", [2, 3, 2]),
    ]  # fmt: skip


def _alone(lengths, agree=same, items: Callable = range, found=all) -> Callable:
    """Return a test that runs items alone, with `lengths` for a single item."""

    def test(module, queries, keys, values, valid_lens) -> bool:
        given = () if lengths == "never" else (valid_lens,)
        together = module(queries, keys, values, *given)
        results = []
        for b in items(len(queries)):
            item = slice(b, b + 1)
            given = {"item": (valid_lens[item],), "all": (valid_lens,)}.get(lengths, ())
            alone = module(queries[item], keys[item], values[item], *given)
            results.append(bool(agree(alone, together[item])))
        return bool(found(results))

    return test


def _items_reordered(module, queries, keys, values, valid_lens) -> bool:
    given = queries, keys, values, valid_lens
    return same(module(*(x.flip(0) for x in given)), module(*given).flip(0))


EXERCISE = Exercise(
    points=3,
    minutes=6,
    difficulty=1,
    returns=student_tests.ANSWERS,
    probes=_items_probes,
    oracle=asked("items_apart", lambda queries, keys, values, valid_lens: len(queries) == 1),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    confirms=_alone("item"),
    tally=student_tests.of_modules,
    mistakes=(
        mistake("lengths_only_together", _alone(lengths="together")).says(
            "You call the module with one item but no length: even a sound module may give other "
            "outputs.",
            "Which length belongs to item b?",
        ),
        mistake(
            "one_item_only",
            _alone("item", items=lambda count: [0]),
            twins=(_alone("item", items=lambda count: [count - 1]), _alone("item", found=any)),
        ).says(
            "A module with a wrong item can pass: you leave that item out, or one correct item "
            "is enough.",
            "Which items must be right before your test returns True?",
        ),
        mistake("all_lengths", _alone("all")).says(
            "You call the module with a single item and the lengths of all items.",
            "Which length belongs to item b?",
        ),
        mistake("items_reordered", _items_reordered).says(
            "You only change the order of the items. A module that mixes all items alike still "
            "gives the same outputs in the new order.",
            "What should the output of an item be if the other items are not there?",
        ),
        *student_tests.mistakes_of_comparisons(lambda agree: _alone("item", agree=agree)),
    ),
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
)
