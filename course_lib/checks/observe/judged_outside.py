"""`check`, `hint` and their like inside a kernel that grades: the judge is another process.

Takes the place of `checks.session` there, so that a notebook's own calls go on and mean nothing.
"""

import sys
import types
from typing import Any


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Says that the verdict falls elsewhere; gives no points."""
    print(f"{exercise}: judged outside this notebook, after this cell")
    return 0.0


def carry_on(exercise: str, *more: str) -> Any:
    """The course's versions, so that no exercise pays for another one; of several a tuple."""
    import course_lib

    if more:
        print(f"Going on with the course's {', '.join((exercise, *more))}")
        return tuple(getattr(course_lib, name) for name in (exercise, *more))
    print(f"{exercise}: going on with the course's version; each exercise is graded by itself")
    return getattr(course_lib, exercise)


def hint(exercise: str, level: int = 1) -> None:
    """Hints are for working, not for grading."""
    print(f"{exercise}: no hints while grading")


def progress() -> None:
    """Progress is the student's own."""
    print("no progress while grading")


def certificate() -> None:
    """What was built is the student's own, too."""
    print("no certificate while grading")


class _CoursesVersions(types.ModuleType):
    """`my_attention`, the student's own library, is not here: it gives the course's versions."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return carry_on(name)


if __name__.endswith(".session"):  # where this takes its place
    sys.modules["my_attention"] = _CoursesVersions("my_attention")
