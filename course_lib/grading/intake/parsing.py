"""Parse submissions in another process, which is ended if it exceeds a limit.

`read_submission` returns the notebook to grade, and `OneStudent` the answers in each of a student's
notebooks. `read` does the work in the other process. This process parses only
the replies, so a hostile file costs only its owner.
"""

import contextlib
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.checks.judge.counting import replaceable
from course_lib.exercises import lessons
from course_lib.grading.intake.ordinary_files import IntakeError, read_bytes
from course_lib.grading.jobs import Job
from course_lib.workspace import limited
from course_lib.workspace.text import one_line

SECONDS = 10.0  # of CPU time for all notebooks of one student; an honest one takes 0.1 s
_MODULE = "course_lib.grading.intake.read"
start, stop = functools.partial(limited.start, _MODULE), functools.partial(limited.stop, _MODULE)
Read = tuple[NotebookNode, list[str], dict[int, dict[str, Any]]]


class NotReadError(IntakeError):
    """A submission was not read because of the machine or the course, so it is tried again."""

    is_final = False


def read_submission(job: Job) -> Read:
    """Return the release notebook with a student's answers, notices, and facts about the cells.

    The facts are a dict by the index of the student's cells. "names" holds the names that a cell
    binds, each with the names it depends on. "touches" holds the cell's line that could change a
    count.
    """
    found = OneStudent(job.lesson, job.release, replaceable()).read(job.data, job.name)
    cells = {int(index): looked for index, looked in found["cells"].items()}
    notebook = nbformat.from_dict(found["notebook"])
    assert isinstance(notebook, NotebookNode)
    return notebook, found["notices"], cells


class OneStudent:
    """Read one student's notebooks of a lesson, which share a limit on CPU time.

    Args:
        lesson: the lesson's name.
        release: the text of its release notebook.
        replaceable: the names for `counting.touches`, which only `read_submission` needs.
    """

    def __init__(self, lesson: str, release: str, replaceable: Collection[str] = ()) -> None:
        lesson_of = {
            name: slug for slug, one in lessons().items() for name in one.exercises + one.removed
        }
        self._about = {"lesson": lesson, "release": release, "lesson_of": lesson_of}
        self._about["replaceable"] = sorted(replaceable)
        self._left = SECONDS

    def answers(self, path: Path) -> dict[str, str]:
        """Return the answers that differ from the release, by grade_id.

        Raises:
            IntakeError: the notebook cannot be read, belongs to another lesson, or takes too long.
        """
        return self.read(read_bytes(path), one_line(path.name))["answers"]

    def has_answers(self, path: Path) -> bool:
        """Return whether a notebook is readable, belongs to this lesson, and was worked on."""
        with contextlib.suppress(IntakeError):
            return bool(self.answers(path))
        return False

    def read(self, data: bytes, name: str) -> dict[str, Any]:
        """Return what `read.answer` finds in a notebook, or raise IntakeError."""
        left, self._left = self._left, 0.0  # for the next one, unless this one is read in time
        remedy = "ask for the lesson's notebook with the answers"
        if left <= 0:
            raise IntakeError(f"{name} was not read, since another one took too long: {remedy}")
        try:
            found = limited.ask(_MODULE, {**self._about, "name": name}, data, left)
        except limited.LimitError as error:
            raise IntakeError(f"{name} takes {error} to read: {remedy}") from None
        except limited.LostError as error:
            raise NotReadError(f"{name} could not be read ({error})") from None
        self._left = left - found["seconds"]
        if "refused" in found:
            raise IntakeError(found["refused"])
        return found
