"""A test of a module: items of a batch do not mix."""

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
        ask("one_item", "Here the batch is one item.", ("sound", "avocet"), [2], m=4),
        ask("four_items", "Here the batch is four items.", ("later_items_doubled", "sound"),
            [2, 6, 1, 4], n=2, m=6),
        values_of_another_size(rng, "batch_average", "real_average", valid_lens=[2, 4, 3]),
        student_tests.in_train_mode(rng, "company", **drawn),
        *student_tests.module_edges(rng, "company", "later_items_doubled", [2, 3, 2]),
    ]  # fmt: skip


def _alone(lengths) -> Callable:
    """Return a test item by item; `lengths` gives the lengths for an item that is alone."""

    def test(module, queries, keys, values, valid_lens) -> bool:
        given = () if lengths == "never" else (valid_lens,)
        together = module(queries, keys, values, *given)
        for b in range(len(queries)):
            item = slice(b, b + 1)
            given = (valid_lens[item],) if lengths == "item" else ()
            if not same(module(queries[item], keys[item], values[item], *given), together[item]):
                return False
        return True

    return test


EXERCISE = Exercise(
    points=3,
    minutes=6,
    difficulty=1,
    returns=student_tests.ANSWERS,
    probes=_items_probes,
    oracle=asked("items_apart", lambda queries, keys, values, valid_lens: len(queries) == 1),
    comparisons={"judged": student_tests.judged},
    exact=("judged",),
    tally=student_tests.of_modules,
    mistakes=(
        mistake("without_lengths", _alone(lengths="never")).says(
            "You never pass the lengths, so a module that confuses the lengths of the items "
            "passes.",
            "Which of the module's arguments have a batch axis?",
        ),
        mistake("lengths_only_together", _alone(lengths="together")).says(
            "You call the module with a single item but without its length, so even a sound module "
            "gives another result.",
            "Which length belongs to item b?",
        ),
        mistake("always_true", lambda *args: True).says(
            "Your test says True of every module, even the broken ones.",
            "Which two calls do you compare, and can their results differ?",
        ),
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
