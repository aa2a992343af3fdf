"""The student's three tests, run on the student's own module and on broken ones."""

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._student_tests import inputs_of
from course_lib.exercises.bug_hunt.CausalSelfAttention import drawn
from course_lib.reference import Expected


def _together_probes(rng) -> list[Probe]:
    def probe(name, b, n, m, valid_lens) -> Probe:
        _, state = drawn(rng, b, n, 6)
        weights = {f"weight_{i}": tensor(weight) for i, weight in enumerate(state.values())}
        return Probe(
            name,
            "Your three tests must return True for your own `CausalSelfAttention`, and each must "
            "return False for a broken module.",
            args={**weights, **inputs_of(rng, b, n, m), "valid_lens": tensor(valid_lens)},
            scenario="own_tests_on_own_module",
        )

    return [probe("three_items", 3, 4, 5, [4, 1, 3]), probe("two_items", 2, 3, 6, [2, 5])]


EXERCISE = Exercise(
    points=1,
    minutes=2,
    difficulty=1,
    returns=tuple(
        Returned(name, "bool")
        for name in ("masking", "permutation", "items", "each test reveals a broken module")
    ),
    probes=_together_probes,
    oracle=lambda *args: Expected((True, True, True, True)),
    hints=("", "", ""),
)
