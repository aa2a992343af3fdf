"""Pour a submission into the release, in a disposable child; a notebook of ours comes back."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, cast

import nbformat
from nbformat import NotebookNode

from course_lib.exercises import exercises
from course_lib.grading.disposable import Unfinished, text_from
from course_lib.grading.gate import IntakeError
from course_lib.grading.graded_cells import ANSWER
from course_lib.grading.intake import SubmittedCell, parse
from course_lib.grading.rebuild import rebuild
from course_lib.grading.source_checks import same_as_course, source_checks

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")
_warm: set[str] = set()


class Poured(NamedTuple):
    """The release with a student's answers, what to note about them, and copies of ours."""

    notebook: NotebookNode
    notices: tuple[str, ...]
    same: tuple[str, ...]


def poured(data: bytes, name: str, lesson: str, release: NotebookNode) -> Poured:
    """The release notebook with the answers of a submitted one.

    Args:
        data: the submitted notebook.
        name: of its file, for messages.
        lesson: slug.
        release: parsed; not changed.

    Raises:
        IntakeError: it cannot be read; the message says why and what to ask for.
    """
    if lesson not in _warm:  # what a child would import is imported here, once
        _warm.add(lesson)
        exercises()
        source_checks(release)
        same_as_course(release, lesson)
    try:
        text = text_from(functools.partial(_pour, data, name, lesson, release))
    except Unfinished as error:
        raise IntakeError(
            f"{name} could not be read ({error}): ask for the lesson's notebook with the answers"
        ) from error
    document = json.loads(text)
    if "problem" in document:
        raise IntakeError(document["problem"])
    notebook = cast(NotebookNode, nbformat.from_dict(document["notebook"]))
    return Poured(notebook, tuple(document["notices"]), tuple(document["same"]))


def _pour(data: bytes, name: str, lesson: str, release: NotebookNode) -> str:
    try:
        cells, read = parse(data, name)
        _refuse_another_lesson(lesson, cells)
    except IntakeError as error:
        return json.dumps({"problem": str(error)})
    notebook, restored = rebuild(release, cells)
    notices = [*read, *restored, *source_checks(notebook)]
    same = same_as_course(notebook, lesson)
    return json.dumps({"notebook": notebook, "notices": notices, "same": same})


def _refuse_another_lesson(lesson: str, cells: Sequence[SubmittedCell]) -> None:
    """A notebook of another lesson is no answer of 0 points to this one."""
    known = exercises()
    asked = {name for cell in cells for name in _CHECK.findall(cell.source)}
    asked |= {(cell.grade_id or "").removesuffix(ANSWER) for cell in cells}
    found = Counter(known[name].lesson for name in asked & known.keys())
    if found and lesson not in found:
        other = found.most_common(1)[0][0]
        raise IntakeError(f"this is the notebook of {other}: ask for that of {lesson}")
