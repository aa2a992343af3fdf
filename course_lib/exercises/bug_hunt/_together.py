"""The student's three tests, asked about the student's own module and about broken ones."""

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises.bug_hunt.Lookup import lookup_problem
from course_lib.reference import Expected


def _together_probes(rng) -> list[Probe]:
    def probe(name, b, n, m, valid_lens) -> Probe:
        problem = lookup_problem(rng, b, n, m, (6, 6, 7), 6, valid_lens)
        state = {f"weight_{i}": tensor(w) for i, w in enumerate(problem["state"].values())}
        return Probe(
            name,
            "Your three tests must say True of your own `Lookup`, and each must say False of a "
            "broken one.",
            args={**state, **problem["args"]},
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
    mistakes=(),
    hints=("", "", ""),
)
