"""`check`, `hint` and their like inside a kernel that grades: the judge is another process.

Takes the place of `checks.session` there, so that a notebook's own calls go on and mean nothing.
"""


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Says that the verdict falls elsewhere; gives no points."""
    print(f"{exercise}: judged outside this notebook, after this cell")
    return 0.0


def carry_on(exercise: str) -> object:
    """The course's version, so that no exercise pays for another one."""
    import course_lib

    print(f"{exercise}: going on with the course's version; each exercise is graded by itself")
    return getattr(course_lib, exercise)


def hint(exercise: str, level: int = 1) -> None:
    """Hints are for working, not for grading."""
    print(f"{exercise}: no hints while grading")


def progress() -> None:
    """Progress is the student's own."""
    print("no progress while grading")
