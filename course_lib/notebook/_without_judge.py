"""`check`, `hint` and the other tools inside a submission that `course grade` runs.

Answers are judged in another process, so these calls succeed and decide nothing.
"""

import importlib
import sys
from typing import Any

import course_lib

_own_library = importlib.import_module("my_attention")  # notebook/stand_in/my_attention.py


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Print that the answer is judged elsewhere, and return 0 points.

    The grader never runs a lesson's own check cells. Only a call in a student's own cell reaches
    this function.
    """
    print(f"{exercise}: judged outside this notebook, after this cell")
    answer = own_version(exercise)
    if answer is not None:
        setattr(_own_library, exercise, answer)
    return 0.0


def carry_on(exercise: str, *more: str) -> Any:
    """Return the course's version if it is from an earlier lesson, else the student's answer.

    Raises:
        ImportError: an exercise has neither.
    """
    found = tuple(_going_on(name) for name in (exercise, *more))
    ours = all(str(getattr(each, "__module__", "")).startswith("course_lib.") for each in found)
    if more:
        names = ", ".join((exercise, *more))
        print(f"Going on with the course's {names}" if ours else f"Going on with {names}")
        return found
    whose = "the course's version" if ours else "yours"
    print(f"{exercise}: going on with {whose}; each exercise is graded by itself")
    return found[0]


def _going_on(name: str) -> object:
    try:
        return getattr(course_lib, name)
    except AttributeError:
        raise ImportError(f"{name}: there is no answer here to go on with") from None


def own_version(name: str) -> object | None:
    """Return the notebook's own answer to an exercise whose solution the sandbox lacks."""
    return vars(sys.modules["__main__"]).get(name)


def hint(exercise: str, level: int = 1) -> None:
    """Print that hints are not available during grading."""
    print(f"{exercise}: no hints while grading")


def progress() -> None:
    """Print that progress is not available during grading."""
    print("no progress while grading")
