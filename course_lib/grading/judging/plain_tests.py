"""Ordinary nbgrader tests: cells of asserts that run after the answers, beside `check` or alone.

They run in the guest, beside the student's code, and count as nbgrader counts them. What they hide
from students is in the source version, and comes back before they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode

from course_lib.grading.graded_cells import TIMEOUT, check_cells, grade_id, is_plain_test
from course_lib.grading.sandbox.guests import Ran
from course_lib.grading.sanitize import made_output, sanitize_outputs
from course_lib.workspace.errors import GradingError

if TYPE_CHECKING:
    from course_lib.grading.course import Course


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


def shown_of_test(ran: Ran, stopped: str | None) -> list[NotebookNode]:
    """What a test put out, without tracebacks, which quote hidden tests.

    Args:
        ran: what became of the cell.
        stopped: why the guest ended, if it did; that counts as an error, which scores 0.
    """
    found = sanitize_outputs(ran.outputs)
    errors = [output for output in found if output.output_type == "error"]
    for error in errors:
        error.traceback = []
    if stopped or (ran.state != "ok" and not errors):
        name = TIMEOUT if stopped in ("time", "waiting") else "DeadKernelError"
        said = f"the test was stopped ({stopped or ran.state})"
        found.append(made_output("error", ename=name, evalue=said, traceback=[]))
    return found
