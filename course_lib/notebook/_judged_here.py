"""Implement the notebook's functions for students, with the judge in the same process."""

import difflib
import gc
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NamedTuple

import course_lib
from course_lib.checks.judge.html import bar, block, inline, paragraph
from course_lib.checks.judge.points import Points
from course_lib.checks.judge.report import MIMETYPE, Report, hint_html
from course_lib.checks.judge.verdict import judge_answer
from course_lib.checks.observe.cells import (
    current_shell,
    keep_in_view,
    someone_answers,
    watch_cells,
)
from course_lib.checks.observe.observation import answer_in, subject_of
from course_lib.checks.observe.remote import in_place
from course_lib.exercises import find, lessons, names
from course_lib.notebook import own_library
from course_lib.notebook._progress import progress as progress
from course_lib.notebook._progress import record_result
from course_lib.notebook.library_parts import purpose_of
from course_lib.notebook.unwritten import show_sentences

OWN = "your own, which passed its check"


@dataclass
class CheckedAnswers:
    """The student's answers in this kernel, by exercise.

    Attributes:
        last: the answers as last checked, for the check of a lesson as a whole.
        right: the answers that got full marks in their last check.
        from_library: the answers that `carry_on` took from the student's library.
        said: the exercises for which a printed line names whose answer the notebook continues with.
        reports: the report of each exercise's last check.
        unshown: the points of checks whose reports are not displayed yet.
    """

    last: dict[str, object] = field(default_factory=dict)
    right: dict[str, object] = field(default_factory=dict)
    from_library: dict[str, object] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    reports: dict[str, Report] = field(default_factory=dict)
    unshown: list[Points] = field(default_factory=list)


checked = CheckedAnswers()


def check(exercise: str, obj: object = None, *, seed: object = None) -> float:
    """Check an answer, show the report and return the points.

    Args:
        exercise: name of the exercise. A lesson's name, such as "02_masked_softmax", checks
            whether your own answers, correct or not, work together.
        obj: the answer; looked up in the notebook by the exercise's name if not given.
        seed: fixes the random inputs. Without it every check of an exercise uses the same
            inputs; grading uses others.

    Returns:
        The points: 0.0 if there is nothing to grade and, under grading, for an optional
        exercise. A notebook shows the report in place of this float.
    """
    if exercise not in _checkable():
        return _shown(0.0, *_no_such_exercise(exercise))
    wanted, namespace = find(exercise), _namespace()
    if seed is None:
        seed = os.environ.get("COURSE_CHECK_SEED", "public")  # secret under grading
    # Like grading, judge this exercise alone, even if answers of earlier lessons that it uses fail.
    beside = lessons()[wanted.lesson].exercises
    helpers = {
        name: getattr(course_lib, name)
        for name, value in checked.from_library.items()
        if namespace.get(name) is value
        and name not in beside
        and hasattr(course_lib.attention, name)
    }
    with in_place(helpers, namespace):
        if wanted.chain:
            own = {name: checked.last.get(name) for name in wanted.chain}
            with in_place(own, namespace):
                report = judge_answer(wanted, own, seed=seed)
            earlier = [checked.reports[n] for n in wanted.chain if n in checked.reports]
            report = report.without_repeats(earlier)
        else:
            subject = subject_of(obj)
            if obj is None:
                obj, subject = answer_in(namespace, exercise)
            report = judge_answer(wanted, obj, seed=seed, subject=subject)
            if not any(finding.id == "course_version" for finding in report.findings):
                checked.right.pop(exercise, None)
                if report.outcome == "correct":
                    checked.right[exercise] = obj
                if obj is not None:
                    checked.last[exercise] = obj
    record_result(report)
    checked.reports[exercise] = report
    built = []
    if report.outcome == "correct" and not wanted.chain:
        built = _built(exercise, own_library.keep_answer(exercise, obj, namespace))
        if exercise in checked.said and namespace.get(exercise) is obj:
            _say_going_on(exercise, OWN, update=True)
    text = "\n".join([report.text(), *(f"\n{words}" for words, _ in built)])
    page = report.html(wanted.hints, [fragment for _, fragment in built])
    points = report.counted if "NBGRADER_EXECUTION" in os.environ else report.points
    return _shown(points, text, page, {MIMETYPE: report.as_dict()})


def hint(exercise: str, level: int = 1) -> None:
    """Show a hint. Level 1 names the concept, 2 says where to look, and 3 gives a last push."""
    if exercise not in _checkable():
        _show(*_no_such_exercise(exercise))
        return
    hints = find(exercise).hints
    if level not in range(1, len(hints) + 1):
        text = f"Hints have levels 1 to {len(hints)}; got {level}."
        _show(text, paragraph(text))
        return
    title, words = f"Hint {level} of {len(hints)} for {exercise}:", hints[level - 1]
    separator = "\n" if "\n" in words else " "
    _show(f"{title}{separator}{words}", block("hint", [paragraph(title), hint_html(words)]))


def carry_on(exercise: str, *more: str) -> Any:
    """Return the answers that the notebook continues with, and print whose they are.

    Args:
        exercise: name of the exercise.
        more: names of further exercises.

    Returns:
        Your own answer if its last check in this session gave full marks and you have not redefined
        it since; otherwise the answer in your library, `my_attention`; otherwise the course's
        version. Stock `nbgrader autograde` always gets the course's version. A bundle without it
        uses your own answer as it is. Several names give a tuple.

    Raises:
        ValueError: there is no such exercise.
        ImportError: the bundle leaves out the course's version, and you have no answer yet.
    """
    namespace = _namespace()
    for name in (exercise, *more):
        if name not in names(removed=True):
            raise ValueError(_no_such_exercise(name)[0])
    going = {name: _going_on(name, namespace) for name in (exercise, *more)}
    if more:
        groups: dict[str, list[str]] = {}  # the student's by day, then the course's
        for name, one in sorted(going.items(), key=lambda g: g[1].whose.startswith("the course")):
            if one.whose:
                groups.setdefault(one.whose, []).append(name)
        parts = [whose.replace("NAMES", ", ".join(group)) for whose, group in groups.items()]
        if parts:
            print(f"Going on with {'; '.join(parts)}")
    elif going[exercise].said:
        _say_going_on(exercise, going[exercise].said)
    found = tuple(going[name].value for name in (exercise, *more))
    return found if more else found[0]


class _Going(NamedTuple):
    """An answer that the notebook continues with, and the words that say whose it is."""

    value: object
    said: str
    whose: str = ""  # the words in a line about several answers; "" if already printed


def _going_on(exercise: str, namespace: dict) -> _Going:
    own, here = checked.right.get(exercise), namespace.get(exercise)
    if "NBGRADER_EXECUTION" in os.environ:
        why = "each exercise is graded by itself"
    elif own is None:
        why = "yours has not passed its check yet"
    elif here is own or here is None or subject_of(here).home.startswith("course_lib."):
        return _Going(own, OWN, "your own NAMES")
    else:
        why = "yours was redefined after its last check"
    kept = own_library.own(exercise)
    if kept is not None:
        checked.from_library[exercise] = kept
        said = f"your own from my_attention ({own_library.shown_day(own_library.kept()[exercise])})"
        return _Going(kept, said, f"your own NAMES{said.removeprefix('your own')}")
    if not hasattr(course_lib.attention, exercise):
        return _Going(own_version(exercise), "")
    said = f"the course's version; {why}"
    return _Going(getattr(course_lib, exercise), said, "the course's NAMES")


def _say_going_on(exercise: str, whose: str, *, update: bool = False) -> None:
    """Display whose answer the notebook continues with, or update the line displayed earlier."""
    line = f"{exercise}: going on with {whose}"
    if getattr(current_shell(), "kernel", None) is None:
        print(line)
        return
    from IPython.display import display

    checked.said.add(exercise)
    display({"text/plain": line}, raw=True, display_id=f"carry-on-{exercise}", update=update)


def own_version(name: str) -> object | None:
    """Return the student's own answer if a bundle leaves out the solution, and print a line.

    The answer is the one in the library, else the one in the notebook, right or wrong. It is None
    if there is no such exercise.

    Raises:
        ImportError: the exercise has no answer yet.
    """
    if name not in names(removed=True):
        return None
    kept = own_library.own(name)
    if kept is not None:
        day = own_library.shown_day(own_library.kept()[name])
        print(f"{name}: going on with your own from my_attention ({day})")
        return kept
    answer = vars(sys.modules["__main__"]).get(name)
    if answer is None:
        raise ImportError(
            f"this bundle leaves out the course's {name}, and you have none yet: run the cell in "
            f"lesson {find(name).lesson} where you write it, then this cell again"
        )
    parts = vars(answer).values() if isinstance(answer, type) else [answer]
    functions = [f for f in map(inspect.unwrap, parts) if isinstance(f, FunctionType)]
    if any(f.__code__.co_names[-1:] == ("NotImplementedError",) for f in functions):
        print(
            f"{name}: not written yet, and this bundle leaves out the course's. Cells that need it "
            "stop and name it, and so do those that need what they make; run the others one by "
            "one, or write it and run this cell again"
        )
    else:
        print(f"{name}: going on with your own version; the course's comes with a later lesson")
    return answer


def _checkable() -> list[str]:
    """List every exercise, and every lesson whose answers are checked together."""
    together = [slug for slug, lesson in lessons().items() if lesson.integration]
    return [*names(removed=True), *together]


def _no_such_exercise(name: object) -> tuple[str, str]:
    near = difflib.get_close_matches(str(name), _checkable(), n=1)
    remedy = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(_checkable())}."
    text = f'No exercise is called "{name}"; {remedy}'
    return text, paragraph(inline(text))


def _built(exercise: str, kept: str) -> list[tuple[str, str]]:
    """Return what the student has built so far, as pairs of text and HTML, if a library is kept."""
    if not own_library.in_use():
        return []
    count, total = len(own_library.kept().keys() & set(names())), len(names())
    said = f"`{exercise}` helps to {purpose_of(exercise)}. "
    said += f"You have built {count} of the {total} parts of your Transformer. "
    said += "`course_lib.progress()` shows them."
    lines = [(said, paragraph(inline(said)) + bar(count, total))]
    return [*lines, (kept, paragraph(inline(kept), small=True))] if kept else lines


def _namespace() -> dict:
    """Return the notebook's variables, or those of the module that called `check`."""
    shell = current_shell()
    return shell.user_ns if shell is not None else sys._getframe(2).f_globals


def _shown(points: float, text: str, page: str, report: Mapping[str, object] = {}) -> Points:
    """Return points that the notebook displays as a report if they are the result of the cell.

    If they are not its result, the next check or the end of the cell displays the report. A
    console would show only the number, so the report is displayed at once there.
    """
    _display_unshown()
    data = {"text/plain": text, "text/html": page, **report}
    kernel = getattr(current_shell(), "kernel", None)
    if kernel is None:
        _show(text, page)
        return Points(points)
    if someone_answers(current_shell()):
        if "cellId" not in kernel.get_parent("shell").get("metadata", {}):
            _display(data)
            return Points(points)
        data["text/html"] = page + keep_in_view(current_shell())
    checked.unshown.append(Points.shown_as(data, points))
    return checked.unshown[-1]


def _display_unshown(cell: Any = None) -> None:
    """Display the reports that are not the result of the cell that has just run."""
    for points in checked.unshown:
        if points is not getattr(cell, "result", None):
            _display(points.shown)
    checked.unshown.clear()


def _show(text: str, page: str) -> None:
    """Display plain text and HTML as one output; outside Jupyter, print."""
    if current_shell() is None:
        print(text)
    else:
        _display({"text/plain": text, "text/html": page})


def _display(data: Mapping[str, object]) -> None:
    from IPython.display import display

    display(data, raw=True)


gc.freeze()  # collecting garbage among torch's objects would take longer than a check
if (shell := current_shell()) is not None:
    watch_cells(shell)
    show_sentences(shell)
    shell.events.register("post_run_cell", _display_unshown)
own_library.make_importable()
