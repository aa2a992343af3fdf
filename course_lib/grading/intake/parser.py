"""Pour submissions into the release, in a disposable child; notebooks of ours come back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import nbformat
from nbformat import NotebookNode

from course_lib.exercises import exercises
from course_lib.grading.disposable import Child, Unfinished
from course_lib.grading.graded_cells import ANSWER, parsed
from course_lib.grading.intake.gate import IntakeError
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.source_checks import missing_files, same_as_course, source_checks
from course_lib.grading.intake.submissions import SubmittedCell, parse, read_bytes

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")


class Poured(NamedTuple):
    """The release with a student's answers, what to note about them, and copies of ours.

    `is_begun` says whether there is an answer at all.
    """

    notebook: NotebookNode
    notices: tuple[str, ...]
    same: tuple[str, ...]
    is_begun: bool


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

    def has_answers(self, path: Path) -> bool:
        """Whether a notebook can be read, is of this lesson, and was worked on."""
        try:
            return self.poured(read_bytes(path), path.name).is_begun
        except IntakeError:
            return False

    def poured(self, data: bytes, name: str, modules: Collection[str] = ()) -> Poured:
        """The release notebook with the answers of a submitted one.

        Args:
            data: the submitted notebook.
            name: of its file, for messages.
            modules: names of Python files that were handed in beside it.

        Raises:
            IntakeError: it cannot be read; the message says why and what to ask for.
        """
        self._get_ready()
        try:
            text = self._child.ask((data, name, set(modules)))
        except Unfinished as error:
            raise IntakeError(
                f"{name} could not be read ({error}): ask for the lesson's notebook with the "
                "answers"
            ) from error
        document = json.loads(text)
        if "problem" in document:
            raise IntakeError(document["problem"])
        notebook = cast(NotebookNode, nbformat.from_dict(document["notebook"]))
        notices, same = tuple(document["notices"]), tuple(document["same"])
        return Poured(notebook, notices, same, document["begun"])

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
            parsed("!ls")  # imports IPython's part of it

    def _pour(self, submitted: tuple[bytes, str, set[str]]) -> str:
        data, name, modules = submitted
        try:
            cells, read = parse(data, name)
            _refuse_another_lesson(self._lesson, cells)
        except IntakeError as error:
            return json.dumps({"problem": str(error)})
        notebook, restored = rebuild(self._release, cells)
        notices = [*read, *restored, *source_checks(notebook), *missing_files(notebook, modules)]
        same = same_as_course(notebook, self._lesson)
        begun = _answers_in(notebook) != _answers_in(self._release)
        return json.dumps({"notebook": notebook, "notices": notices, "same": same, "begun": begun})


def _answers_in(notebook: NotebookNode) -> list[list[str]]:
    """The words of the cells that answers go into."""
    cells = (c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution"))
    return [cell.source.split() for cell in cells]


def _refuse_another_lesson(lesson: str, cells: Sequence[SubmittedCell]) -> None:
    """A notebook of another lesson is no answer of 0 points to this one."""
    known = exercises()
    asked = {name for cell in cells for name in _CHECK.findall(cell.source)}
    asked |= {(cell.grade_id or "").removesuffix(ANSWER) for cell in cells}
    found = Counter(known[name].lesson for name in asked & known.keys())
    if found and lesson not in found:
        other = found.most_common(1)[0][0]
        raise IntakeError(f"this is the notebook of {other}: ask for that of {lesson}")
