"""`check`, `hint` and the other tools, as a student calls them in a notebook."""

import contextlib
import difflib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import course_lib
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.grade import grade
from course_lib.checks.judge.html import block, inline, listing, paragraph
from course_lib.checks.judge.report import MIMETYPE, Report
from course_lib.checks.observe.cells import watch_cells
from course_lib.checks.observe.front_end import current_shell
from course_lib.checks.observe.observation import answer_in, subject_of
from course_lib.checks.observe.remote import in_place
from course_lib.exercises import exercises, find, lessons
from course_lib.notebook import library, library_import
from course_lib.notebook.certificate import Certificate, read_certificate
from course_lib.notebook.points import Points
from course_lib.notebook.progress import Progress, keep, read_progress

NAMING_SECONDS = 0.5  # of processor time, in a notebook; grading takes what it takes
_remembered: dict[str, object] = {}  # each student's last own answer, for the integration mark
_right: dict[str, object] = {}  # each exercise's answer whose last check gave every point
_from_library: dict[str, object] = {}  # what `carry_on` took from the student's library

watch_cells(current_shell())
library_import.install()


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Checks an answer, shows the report and returns the points.

    Args:
        exercise: name of the exercise; or a lesson's name, such as "02_masked_softmax", to check
            that your own answers work together, right or wrong.
        obj: the answer; looked up in the notebook by the exercise's name if not given.
        seed: fixes the random inputs. Without it every check of an exercise sees the same
            inputs; grading uses others.

    Returns:
        The points: 0.0 where there is nothing to grade and, under grading, for an optional
        exercise. A float that a notebook shows nothing of, since the report says it.
    """
    if exercise not in _names():
        _show(*_no_such_exercise(exercise))
        return Points(0.0)
    wanted, namespace = find(exercise), _namespace()
    seed = _seed() if seed is None else seed
    with _courses_helpers(wanted, namespace):
        if wanted.chain:
            report = _check_together(wanted, namespace, seed)
        else:
            subject = subject_of(obj)
            if obj is None:
                obj, subject = answer_in(namespace, exercise)
            report = grade(wanted, obj, seed=seed, subject=subject, naming_seconds=NAMING_SECONDS)
            _note(exercise, obj, report)
    keep(report)
    _show(report.text(), report.html(), report)
    if report.outcome == "correct" and not wanted.chain:
        _say(library.keep(exercise, obj, namespace))
    return Points(report.counted if "NBGRADER_EXECUTION" in os.environ else report.points)


def hint(exercise: str, level: int = 1) -> None:
    """Shows a hint: level 1 the concept, 2 where to look, 3 a last push."""
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


def carry_on(exercise: str, *more: str) -> Any:
    """What the rest of a notebook goes on with after exercises; prints whose they are.

    Args:
        exercise: name of the exercise.
        more: names of others.

    Returns:
        For each of them your own answer if its last check in this session gave every point and
        you have not defined it anew since; else the one in your library, `my_attention`; else,
        and always under grading, the course's version. In a bundle that leaves out the course's
        version, your own answer as it is. A tuple if there are several.

    Raises:
        ValueError: there is no such exercise.
        ImportError: the bundle leaves out the course's version, and you have none yet.
    """
    namespace = _namespace()
    for name in (exercise, *more):
        if name not in exercises():
            raise ValueError(_no_such_exercise(name)[0])
    going = {name: _going_on(name, namespace) for name in (exercise, *more)}
    if more:
        _say(_summed_up(going))
    else:
        _say(going[exercise].said and f"{exercise}: going on with {going[exercise].said}")
    found = tuple(going[name].value for name in (exercise, *more))
    return found if more else found[0]


_COURSES = "the course's NAMES"


class _Going(NamedTuple):
    """What an exercise goes on with, whose that is, and how a sentence says it."""

    value: object
    said: str
    whose: str = ""  # how a line of several says it; "" for what is said elsewhere


def _going_on(exercise: str, namespace: dict) -> _Going:
    own, here = _right.get(exercise), namespace.get(exercise)
    if "NBGRADER_EXECUTION" in os.environ:
        why = "each exercise is graded by itself"
    elif own is None:
        why = "yours has not passed its check yet"
    elif here is own or here is None or subject_of(here).home.startswith("course_lib."):
        return _Going(own, "your own, which passed its check", "your own NAMES")
    else:
        why = "yours was redefined after its last check"
    kept = library.own(exercise)
    if kept is not None:
        _from_library[exercise] = kept.value
        said = f"your own from my_attention ({library.shown_day(kept.day)})"
        return _Going(kept.value, said, f"your own NAMES{said.removeprefix('your own')}")
    if exercise not in course_lib.attention.__all__:  # looked up, and said, there
        return _Going(getattr(course_lib, exercise), "")
    return _Going(getattr(course_lib, exercise), f"the course's version; {why}", _COURSES)


def _summed_up(going: dict[str, _Going]) -> str:
    """One line for several: the student's own, by their day, and the course's."""
    groups: dict[str, list[str]] = {}
    for name, one in going.items():
        groups.setdefault(one.whose, []).append(name)
    ordered = sorted(groups.items(), key=lambda group: group[0].startswith("the course"))
    parts = [whose.replace("NAMES", ", ".join(names)) for whose, names in ordered if whose]
    return f"Going on with {'; '.join(parts)}" if parts else ""


@contextlib.contextmanager
def _courses_helpers(wanted: Exercise, namespace: dict) -> Iterator[None]:
    """A check judges one exercise: what `carry_on` took for it from the student's answers to
    earlier lessons is the course's meanwhile, as under grading."""
    taken = [
        name
        for name, value in _from_library.items()
        if namespace.get(name) is value
        and name in course_lib.attention.__all__
        and find(name).lesson != wanted.lesson
    ]
    with in_place({name: getattr(course_lib, name) for name in taken}, namespace):
        yield


def progress() -> Progress:
    """What is done across the lessons: each exercise's best result, its points and when.

    Kept in a file on this machine, where no one else sees it; grading does not read it.
    """
    return read_progress()


def certificate() -> Certificate:
    """What you built, line by line yours or the course's, as a picture to keep.

    Made on this machine from your own library; nothing is sent anywhere.
    """
    return read_certificate()


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


def _say(sentence: str) -> None:
    if sentence:
        print(sentence)


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
