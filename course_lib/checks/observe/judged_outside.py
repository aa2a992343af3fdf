"""`check`, `hint` and their like inside a kernel that grades: the judge is another process.

Takes the place of `notebook.session`, of `notebook.hunt` and of `missing_solutions`
there, so that a notebook's own calls go on and mean nothing.
"""

import sys
import types
from typing import Any


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Says that the verdict falls elsewhere; gives no points."""
    print(f"{exercise}: judged outside this notebook, after this cell")
    return 0.0


def carry_on(exercise: str, *more: str) -> Any:
    """The course's versions of earlier lessons, the student's own of this one; of several a tuple.

    Raises:
        ImportError: there is none of an exercise.
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


def own_version(name: str) -> object | None:
    """The student's own answer, where the course's is not here; None if there is none.

    What `course_lib` asks for, in the place of `course_lib.missing_solutions`.
    """
    return vars(sys.modules["__main__"]).get(name)


def _going_on(name: str) -> object:
    import course_lib

    try:
        return getattr(course_lib, name)
    except AttributeError:
        raise ImportError(f"{name}: there is no answer here to go on with") from None


def hint(exercise: str, level: int = 1) -> None:
    """Hints are for working, not for grading."""
    print(f"{exercise}: no hints while grading")


def progress() -> None:
    """Progress is the student's own."""
    print("no progress while grading")


def certificate() -> None:
    """What was built is the student's own, too."""
    print("no certificate while grading")


def diagnose(*arguments: object) -> None:
    """The hunt's boxes are for working, too."""
    print("no diagnoses while grading")


def diagnoses() -> None:
    """What was diagnosed is the student's own."""
    diagnose()


class _InPlaceOfTheLibrary(types.ModuleType):
    """`my_attention`, the student's own library, is not here: it gives what `carry_on` gives."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return carry_on(name)


if __name__.endswith(".session"):  # where this takes its place
    sys.modules["my_attention"] = _InPlaceOfTheLibrary("my_attention")
