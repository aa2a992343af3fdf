"""Check an answer and report its points and the mistake that it makes.

- `observe` calls an answer as the probes say and records the results, in a student's process;
- `judge` decides the points, names the mistake and writes the report, in a trusted process.

The functions below import their modules when they are called, for two reasons. They look up
exercises in `course_lib.exercises`, which is a layer above this package, and
`course_lib.checks.observe` must be importable in a student's process, which has no judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.checks.judge.definitions import Exercise
    from course_lib.checks.judge.report import Report

__all__ = ["exercises", "grade"]


def grade(exercise: str, obj: object, *, seed: object = None) -> Report:
    """Judge any object as an answer to an exercise, without showing anything.

    Args:
        exercise: a key of `exercises()`, or a lesson's slug for its integration.
        obj: the answer; for an integration a dict with an answer for each exercise of its chain.
        seed: any value; the same seed gives the same inputs.

    Raises:
        KeyError: there is no such exercise.
    """
    from course_lib.checks.judge.verdict import judge_answer
    from course_lib.exercises import find

    return judge_answer(find(exercise), obj, seed=seed)


def exercises() -> dict[str, Exercise]:
    """Return all exercises by name, in course order."""
    from course_lib.exercises import exercises as all_exercises

    return all_exercises()
