"""`check`, `hint`, `carry_on` and `progress`, as a student calls them in a notebook."""

import difflib
import os
import sys
from typing import Any

import course_lib
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.grade import grade
from course_lib.checks.judge.html import block, inline, listing, paragraph
from course_lib.checks.judge.report import MIMETYPE, Report
from course_lib.checks.notebook.points import Points
from course_lib.checks.notebook.progress import Progress, keep, read_progress
from course_lib.checks.observe.cells import watch_cells
from course_lib.checks.observe.front_end import current_shell
from course_lib.checks.observe.observation import answer_in, subject_of
from course_lib.checks.observe.remote import in_place
from course_lib.exercises import exercises, find, lessons

NAMING_SECONDS = 0.5  # of processor time, in a notebook; grading takes what it takes
_remembered: dict[str, object] = {}  # each student's last own answer, for the integration mark
_right: dict[str, object] = {}  # each exercise's answer whose last check gave every point

watch_cells(current_shell())


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Checks an answer, shows the report and returns the points.

    Args:
        exercise: name of the exercise; or a lesson's name, such as "02_masked_softmax", to check
            that your own answers work together, right or wrong.
        obj: the answer; looked up in the notebook by the exercise's name if not given.
        seed: fixes the random inputs. Without it every check of an exercise sees the same
            inputs; grading uses others.

    Returns:
        The points, 0.0 where there is nothing to grade: a float that a notebook shows nothing of,
        since the report says them.
    """
    if exercise not in _names():
        _show(*_no_such_exercise(exercise))
        return Points(0.0)
    wanted = find(exercise)
    seed = _seed() if seed is None else seed
    if not wanted.chain:
        subject = subject_of(obj)
        if obj is None:
            obj, subject = answer_in(_namespace(), exercise)
        report = grade(wanted, obj, seed=seed, subject=subject, naming_seconds=NAMING_SECONDS)
        _note(exercise, obj, report)
    else:
        report = _check_together(wanted, _namespace(), seed)
    keep(report)
    _show(report.text(), report.html(), report)
    return Points(report.points)


def hint(exercise: str, level: int = 1) -> None:
    """Shows a hint: level 1 the concept, 2 the recipe, 3 almost the code."""
    if exercise not in _names():
        _show(*_no_such_exercise(exercise))
        return
    hints = find(exercise).hints
    if level not in range(1, len(hints) + 1):
        text = f"Hints have levels 1 to {len(hints)}; got {level}."
        _show(text, paragraph(text))
        return
    title, words = f"Hint {level} of {len(hints)} for {exercise}:", hints[level - 1]
    if "\n" in words:
        parts = [paragraph(inline(title)), listing(words, title)]
        _show(f"{title}\n{words}", block("hint", parts))
    else:
        _show(f"{title} {words}", block("hint", [paragraph(inline(f"{title} {words}"))]))


def carry_on(exercise: str) -> object:
    """What the rest of a notebook goes on with after an exercise; prints which of the two it is.

    Args:
        exercise: name of the exercise.

    Returns:
        Your own answer if its last check in this session gave every point and you have not
        defined it anew since; otherwise, and always under grading, the course's version. In a
        bundle that leaves out the course's version, your own answer as it is.

    Raises:
        ValueError: there is no such exercise.
        ImportError: the bundle leaves out the course's version, and you have none yet.
    """
    if exercise not in exercises():
        raise ValueError(_no_such_exercise(exercise)[0])
    own, here = _right.get(exercise), _namespace().get(exercise)
    if "NBGRADER_EXECUTION" in os.environ:
        why = "each exercise is graded by itself"
    elif own is None:
        why = "yours has not passed its check yet"
    elif here is own or here is None or subject_of(here).home.startswith("course_lib."):
        print(f"{exercise}: going on with your own, which passed its check")
        return own
    else:
        why = "yours was defined anew after its last check"
    if exercise in vars(course_lib)["_exercise_modules"]():  # else it is looked up, and said, there
        print(f"{exercise}: going on with the course's version; {why}")
    return getattr(course_lib, exercise)


def progress() -> Progress:
    """What is done across the lessons: each exercise's best result, its points and when.

    Kept in a file on this machine, where no one else sees it; grading does not read it.
    """
    return read_progress()


def _note(exercise: str, obj: object, report: Report) -> None:
    """What later cells go on with; a check of the course's own version changes nothing."""
    if _is_own_version(report):
        return
    _right.pop(exercise, None)
    if report.outcome == "correct":
        _right[exercise] = obj
    if obj is not None:
        _remembered[exercise] = obj


def _check_together(lesson: Exercise, namespace: dict, seed: object) -> Report:
    """Grades a lesson's chain with the student's own answers in the notebook's variables."""
    own = {name: _remembered.get(name) for name in lesson.chain}
    with in_place(own, namespace):
        return grade(lesson, own, seed=seed)


def _names() -> list[str]:
    """What can be checked: every exercise, and every lesson that has an integration."""
    return [*exercises(), *(slug for slug, lesson in lessons().items() if lesson.integration)]


def _seed() -> str:
    """The public seed, or under grading the secret one from the environment."""
    return os.environ.get("COURSE_CHECK_SEED", "public")


def _is_own_version(report: Report) -> bool:
    return any(finding.id == "course_version" for finding in report.findings)


def _no_such_exercise(name: object) -> tuple[str, str]:
    near = difflib.get_close_matches(str(name), _names(), n=1)
    remedy = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(_names())}."
    text = f'No exercise is called "{name}"; {remedy}'
    return text, paragraph(inline(text))


def _namespace() -> dict:
    """The notebook's variables, or those of the module that called `check`."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.user_ns if shell is not None else sys._getframe(2).f_globals


def _show(text: str, fragment: str, report: Report | None = None) -> None:
    """One display output with plain text, HTML and the report's data; print outside Jupyter."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(text)
        return
    from IPython.display import display

    bundle: dict[str, Any] = {"text/plain": text, "text/html": fragment}
    if report is not None:
        bundle[MIMETYPE] = report.as_dict()
    display(bundle, raw=True)
