"""A lesson whose release has other graded cells than the gradebook: bring the gradebook along.

nbgrader refuses to change the cells of a notebook that someone has submitted. Here cells are added
to every submission and taken out of it; points and comments of all other cells stay.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Comment, Grade, Gradebook
from nbgrader.utils import is_grade, is_locked, is_solution

from course_lib.grading.adapters.nbgrader import one_transaction

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
        "grade": {name: cell for name, cell in _named(release) if is_grade(cell)},
        "solution": {name: cell for name, cell in _named(release) if is_solution(cell)},
        "source": dict(_named(release)),
    }
    with one_transaction(gradebook):
        notebook: Any = gradebook.find_notebook(lesson, lesson)
        lost = [row for submitted in notebook.submissions for row in _by_hand(submitted, wanted)]
        if lost:
            keep(_as_table(lost))
        for kind, cells in wanted.items():
            known = {cell.name: cell for cell in getattr(notebook, f"{kind}_cells")}
            for name in known.keys() - cells.keys():
                _remove(gradebook, notebook, known[name])
            for name in cells.keys() - known.keys():
                _add(gradebook, notebook, lesson, kind, cells[name])


def _as_table(rows: list[tuple]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([HEADER, *rows])
    return text.getvalue()


def _named(release: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """The cells that nbgrader keeps, as SaveCells chooses them."""
    for cell in release.cells:
        if is_grade(cell) or is_solution(cell) or is_locked(cell):
            yield cell.metadata["nbgrader"]["grade_id"], cell


def _by_hand(submitted: Any, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple]:
    """What a person gave for cells that are no longer wanted."""
    comments = {comment.name: comment.manual_comment for comment in submitted.comments}
    grades = {grade.name: grade for grade in submitted.grades}
    for name in sorted((grades.keys() - wanted["grade"]) | (comments.keys() - wanted["solution"])):
        grade, comment = grades.get(name), comments.get(name)
        points = (None, None) if grade is None else (grade.manual_score, grade.extra_credit)
        if any((*points, comment)) or points[0] is not None:
            yield (submitted.student.id, name, *points, comment)


def _remove(gradebook: Gradebook, notebook: Any, cell: Any) -> None:
    for submitted in notebook.submissions:
        for given in (*submitted.grades, *submitted.comments):
            if given.cell_id == cell.id:
                gradebook.db.delete(given)
    gradebook.db.delete(cell)
    gradebook.db.flush()


def _add(gradebook: Gradebook, notebook: Any, lesson: str, kind: str, cell: NotebookNode) -> None:
    about = cell.metadata["nbgrader"]
    name = about["grade_id"]
    if kind == "grade":
        known: dict[str, Any] = {"max_score": about["points"], "cell_type": cell.cell_type}
        made: Any = gradebook.add_grade_cell(name, lesson, lesson, **known)
        row: Any = Grade
    elif kind == "solution":
        made, row = gradebook.add_solution_cell(name, lesson, lesson), Comment
    else:  # its text is brought in line with the release afterwards
        gradebook.add_source_cell(name, lesson, lesson, cell_type=cell.cell_type)
        return
    for submitted in notebook.submissions:
        gradebook.db.add(row(cell_id=made.id, notebook=submitted))
    gradebook.db.flush()
