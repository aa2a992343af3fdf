"""The check engine, in three rooms: observe an answer, judge what was observed, show it.

- `observe` calls an answer as a probe says and records what happened, in a student's process;
- `judge` decides, names the mistake, counts points and writes the report, in a trusted process;
- `notebook` holds `check`, `hint`, `carry_on`, `progress` and `certificate`, for a notebook.

Everything is loaded on first use, so that `course_lib.checks.observe` brings no judge, no oracle
and no exercise into the process of a student's code.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.checks.judge.report import Report

_HOMES = {
    "check": "course_lib.checks.notebook.session",
    "carry_on": "course_lib.checks.notebook.session",
    "certificate": "course_lib.checks.notebook.session",
    "hint": "course_lib.checks.notebook.session",
    "progress": "course_lib.checks.notebook.session",
    "exercises": "course_lib.exercises",
    "lessons": "course_lib.exercises",
    "Report": "course_lib.checks.judge.report",
    "Finding": "course_lib.checks.judge.report",
}
__all__ = sorted([*_HOMES, "grade"])  # pyright: ignore[reportUnsupportedDunderAll] (from the table)


def grade(exercise: str, obj: object, *, seed: object = None) -> Report:
    """Grades any object as an answer to an exercise, without showing anything.

    Args:
        exercise: name of the exercise, a key of `exercises()`, or a lesson's slug for its
            integration.
        obj: the answer: a function, a class, or whatever a student wrote; for an integration a
            dict with an answer for each exercise of its chain.
        seed: any value; the same seed gives the same inputs.

    Returns:
        A `Report`; nothing that the answer does makes this raise.

    Raises:
        KeyError: there is no such exercise.
    """
    from course_lib.checks.judge.grade import grade as grade_exercise
    from course_lib.exercises import find

    return grade_exercise(find(exercise), obj, seed=seed)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
