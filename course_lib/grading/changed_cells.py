"""A lesson whose release has other graded cells than the gradebook: bring the gradebook along.

nbgrader refuses to change the cells of a notebook that someone has submitted. Here cells are added
to every submission and taken out of it; points and comments of all other cells stay.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Comment, Grade, Gradebook
from nbgrader.utils import is_grade, is_locked, is_solution

from course_lib.grading.adapters.nbgrader import one_transaction
from course_lib.grading.graded_cells import grade_id

HEADER = ("student", "cell", "points", "extra_credit", "comment")


def change_cells(
    gradebook: Gradebook, lesson: str, release: NotebookNode, keep: Callable[[str], None]
) -> None:
    """Give a lesson the graded, answer and locked cells of its release, in one transaction.

    Args:
        gradebook: open; it knows submissions of the lesson.
        lesson: slug, which is also the notebook's name.
        release: the notebook as it is released now.
        keep: gets what a person gave in cells that are gone, CSV with `HEADER`, before they go.
    """
    wanted = {
        (kind, grade_id(cell)): cell
        for cell in release.cells
        for kind, is_kind in (("grade", is_grade), ("solution", is_solution), ("source", _is_kept))
        if is_kind(cell)
    }
    with one_transaction(gradebook):
        notebook: Any = gradebook.find_notebook(lesson, lesson)
        known = {
            (kind, cell.name): cell
            for kind in ("grade", "solution", "source")
            for cell in getattr(notebook, f"{kind}_cells")
        }
        gone = [cell for key, cell in sorted(known.items()) if key not in wanted]
        if lost := [row for cell in gone for row in _by_hand(cell)]:
            text = io.StringIO()
            csv.writer(text).writerows([HEADER, *lost])
            keep(text.getvalue())
        for cell in gone:
            for given in _given(cell):
                gradebook.db.delete(given)
            gradebook.db.delete(cell)
        gradebook.db.flush()
        for (kind, name), cell in wanted.items():
            if (kind, name) not in known:
                _add(gradebook, notebook, kind, name, cell)


def _is_kept(cell: NotebookNode) -> bool:
    """Whether nbgrader's SaveCells keeps the text of a cell."""
    return is_grade(cell) or is_solution(cell) or is_locked(cell)


def _given(cell: Any) -> list[Any]:
    """The grades or the comments of a cell, one of each student."""
    return [*(getattr(cell, "grades", None) or ()), *(getattr(cell, "comments", None) or ())]


def _by_hand(cell: Any) -> Iterator[tuple]:
    """Yield the points and comments that a person gave for a cell that no longer exists."""
    for given in _given(cell):
        columns = ("manual_score", "extra_credit", "manual_comment")
        values = [getattr(given, column, None) for column in columns]
        if values[0] is not None or any(values):
            yield (given.notebook.student.id, cell.name, *values)


def _add(gradebook: Gradebook, notebook: Any, kind: str, name: str, cell: NotebookNode) -> None:
    lesson = notebook.assignment.name
    known: dict[str, Any] = {"cell_type": cell.cell_type}
    if kind == "source":  # its text is brought in line with the release afterwards
        gradebook.add_source_cell(name, lesson, lesson, **known)
        return
    if kind == "grade":
        known["max_score"] = cell.metadata["nbgrader"]["points"]
        made, row = gradebook.add_grade_cell(name, lesson, lesson, **known), Grade
    else:
        made, row = gradebook.add_solution_cell(name, lesson, lesson), Comment
    for submitted in notebook.submissions:
        gradebook.db.add(row(cell_id=made.id, notebook=submitted))
    gradebook.db.flush()
