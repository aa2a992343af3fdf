"""Pour submissions into the release, in a disposable child; notebooks of ours come back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, cast

import nbformat
from nbformat import NotebookNode

from course_lib.exercises import exercises
from course_lib.grading.disposable import Child, Unfinished
from course_lib.grading.graded_cells import ANSWER
from course_lib.grading.intake.gate import IntakeError
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.source_checks import same_as_course, source_checks
from course_lib.grading.intake.submissions import SubmittedCell, parse

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")


class Poured(NamedTuple):
    """The release with a student's answers, what to note about them, and copies of ours."""

    notebook: NotebookNode
    notices: tuple[str, ...]
    same: tuple[str, ...]


class Pouring:
    """Pours submissions into one lesson's release, each within limits of its own.

    Args:
        lesson: slug.
        release: parsed; not changed.
    """

    def __init__(self, lesson: str, release: NotebookNode) -> None:
        self._lesson, self._release = lesson, release
        self._child = Child(self._pour)
        self._warm = False

    def poured(self, data: bytes, name: str) -> Poured:
        """The release notebook with the answers of a submitted one.

        Args:
            data: the submitted notebook.
            name: of its file, for messages.

        Raises:
            IntakeError: it cannot be read; the message says why and what to ask for.
        """
        self._get_ready()
        try:
            text = self._child.ask((data, name))
        except Unfinished as error:
            raise IntakeError(
                f"{name} could not be read ({error}): ask for the lesson's notebook with the "
                "answers"
            ) from error
        document = json.loads(text)
        if "problem" in document:
            raise IntakeError(document["problem"])
        notebook = cast(NotebookNode, nbformat.from_dict(document["notebook"]))
        return Poured(notebook, tuple(document["notices"]), tuple(document["same"]))

    def close(self) -> None:
        """No submission follows."""
        self._child.end()

    def _get_ready(self) -> None:
        """What a child would import is imported here, once."""
        if not self._warm:
            self._warm = True
            exercises()
            source_checks(self._release)
            same_as_course(self._release, self._lesson)

    def _pour(self, submitted: tuple[bytes, str]) -> str:
        try:
            cells, read = parse(*submitted)
            _refuse_another_lesson(self._lesson, cells)
        except IntakeError as error:
            return json.dumps({"problem": str(error)})
        notebook, restored = rebuild(self._release, cells)
        notices = [*read, *restored, *source_checks(notebook)]
        same = same_as_course(notebook, self._lesson)
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
