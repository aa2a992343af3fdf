"""Lesson 07: what a broken module breaks, tests that notice it, and modules to mend."""

from course_lib.checks.catalogue._bug_hunt_causal import CAUSAL_SELF_ATTENTION
from course_lib.checks.catalogue._bug_hunt_lookup import LOOKUP, lookup_problem
from course_lib.checks.catalogue._bug_hunt_naming import BROKEN_INVARIANTS
from course_lib.checks.catalogue._bug_hunt_tests import (
    BATCH_ITEMS_INDEPENDENT,
    KEYS_PERMUTATION_INVARIANT,
    MASKING_EQUALS_DELETING,
)
from course_lib.checks.exercise import Exercise, Integration, Lesson, Returned, Written
from course_lib.checks.probe import Probe, tensor


def _together_probes(rng):
    def probe(name, b, n, m, valid_lens):
        problem = lookup_problem(rng, b, n, m, (6, 6, 7), 6, valid_lens)
        state = {f"weight_{i}": tensor(w) for i, w in enumerate(problem["state"].values())}
        return Probe(
            name,
            "Your three tests say True of your own `Lookup`, and False of `curlew`, `jacana` and "
            "`fulmar`, one each.",
            args={**state, **problem["args"]},
            scenario="own_tests_on_own_module",
        )

    return [probe("three_items", 3, 4, 5, [4, 1, 3]), probe("two_items", 2, 3, 6, [2, 5])]


LESSON = Lesson(
    7,
    "Bug hunt: does it learn, and would you notice?",
    Written("loss_proves_nothing", 3, 12),
    Integration(
        (
            "masking_equals_deleting",
            "keys_permutation_invariant",
            "batch_items_independent",
            "Lookup",
        ),
        judged_as=Exercise(
            name="together",
            points=1,
            minutes=2,
            difficulty=1,
            returns=tuple(
                Returned(name, "bool")
                for name in ("masking", "permutation", "items", "each test catches its bird")
            ),
            probes=_together_probes,
            oracle=lambda *args: (True, True, True, True),
            mistakes=(),
            hints=("", "", ""),
        ),
    ),
)

EXERCISES = (
    MASKING_EQUALS_DELETING,
    KEYS_PERMUTATION_INVARIANT,
    BATCH_ITEMS_INDEPENDENT,
    BROKEN_INVARIANTS,
    LOOKUP,
    CAUSAL_SELF_ATTENTION,
)
