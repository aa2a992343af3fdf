"""Ordinary nbgrader tests: cells of asserts that run after the answers, beside `check` or alone.

They run in the guest, beside the student's code, and count as nbgrader
counts them. What they hide from students is in the source version, and comes back before they run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode

from course_lib.grading.graded_cells import TIMEOUT, check_cells, grade_id, is_plain_test
from course_lib.grading.sandbox.guests import Ran
from course_lib.grading.sanitize import made_output, plain_text
from course_lib.workspace.errors import GradingError

if TYPE_CHECKING:
    from course_lib.grading.course import Course

MOST = 2000  # characters of a text that are kept


def tests_of(course: Course, lesson: str, release: NotebookNode) -> dict[str, str]:
    """The plain tests of a lesson by their grade_id, with what the release hides.

    Raises:
        GradingError: the source version cannot be read.
    """
    wanted = {grade_id(cell) for cell in check_cells(release) if is_plain_test(cell)}
    if not wanted:
        return {}
    path = course.step("source") / lesson / f"{lesson}.ipynb"
    try:
        source = nbformat.read(path, as_version=4)
    except (OSError, ValueError, AttributeError, nbformat.ValidationError) as error:
        raise GradingError(
            f"{path} cannot be read, and it holds the hidden tests: put it back"
        ) from error
    return {grade_id(c): c.source for c in check_cells(source) if grade_id(c) in wanted}


def digests_of(tests: Mapping[str, str]) -> dict[str, str]:
    """A digest of each test: a changed one is run again."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in tests.items()}


def restore(notebook: NotebookNode, tests: Mapping[str, str]) -> None:
    """Put whole tests into a rebuilt notebook, in place."""
    for cell in check_cells(notebook):
        cell.source = tests.get(grade_id(cell), cell.source)


def shown_of_test(ran: Ran, stopped: str | None) -> list[NotebookNode]:
    """What a test put out, as far as it counts: errors, streams and the value of its last line.

    Args:
        ran: what became of the cell.
        stopped: why the guest ended, if it did; that counts as an error, which scores 0.
    """
    found = [_short(output) for output in ran.outputs]
    if stopped or (ran.state != "ok" and not any(o.output_type == "error" for o in found)):
        name = TIMEOUT if stopped in ("time", "waiting") else "DeadKernelError"
        said = f"the test was stopped ({stopped or ran.state})"
        found.append(made_output("error", ename=name, evalue=said, traceback=[]))
    return found


def _short(output: Mapping) -> NotebookNode:
    kind = output.get("output_type")
    if kind == "error":
        name, value = (plain_text(str(output.get(key))[:MOST]) for key in ("ename", "evalue"))
        return made_output("error", ename=name, evalue=value, traceback=[])
    if kind == "execute_result":
        data = {"text/plain": plain_text(str(output["data"].get("text/plain", ""))[:MOST])}
        return made_output(kind, data=data, metadata={}, execution_count=None)
    name = "stderr" if output.get("name") == "stderr" else "stdout"
    text = plain_text(str(output.get("text", "[a picture]"))[:MOST])
    return made_output("stream", name=name, text=text)
