"""Feedback pages, written once the points are in the gradebook.

A page that cannot be rendered becomes a plain one: points, what the checks say, and a sentence.
"""

from __future__ import annotations

import functools
import pkgutil
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, Template
from nbformat import v4
from nbgrader.utils import is_grade, is_solution

from course_lib.grading.adapters.nbgrader import SubmittedNotebook
from course_lib.grading.graded import GradedExercise, GradedSubmission
from course_lib.grading.publishing.course_figures import CourseFigures
from course_lib.grading.publishing.feedback import FILTERS, TEMPLATES


class Marks(NamedTuple):
    """What the gradebook says of a submission and of its cells, and what its checks say."""

    about: dict[str, Any]
    cells: dict[str, dict[str, Any]]
    exercises: tuple[GradedExercise, ...]


def marks_of(submitted: SubmittedNotebook, lesson: str, grades: GradedSubmission) -> Marks:
    """Return the marks of a submission whose points are in the gradebook."""
    penalty = submitted.late_submission_penalty or 0
    about = {
        "assignment": lesson,
        "notebook": lesson,
        "score": submitted.score - penalty,
        "max_score": submitted.max_score,
        "late_penalty": penalty,
    }
    cells: dict[str, dict[str, Any]] = {c.name: {"comment": c.comment} for c in submitted.comments}
    for grade in submitted.grades:
        waiting = grade.needs_manual_grade and grade.manual_score is None
        known = {"score": grade.score, "points": grade.max_score, "waiting": waiting}
        cells.setdefault(grade.name, {}).update(known)
    return Marks(about, cells, grades.rows)


def feedback_page(notebook: str, marks: Marks, figures: CourseFigures) -> str:
    """Return the page of a graded notebook, given as text, as nbgrader's converter makes it."""
    try:
        graded = v4.reads(notebook)
        for cell in graded.cells:
            if is_grade(cell) or is_solution(cell):
                cell.metadata.nbgrader.update(marks.cells[cell.metadata.nbgrader.grade_id])
        shown, resources = figures.preprocess(graded, {"nbgrader": marks.about})
        return _template("index").render(nb=shown, resources=resources)
    except Exception as error:  # no page holds up the pages of others
        return _template("plain").render(marks._asdict(), why=type(error).__name__)


@functools.cache
def _template(name: str) -> Template:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    environment.filters |= {name: pkgutil.resolve_name(path) for name, path in FILTERS.items()}
    return environment.get_template(f"feedback/{name}.html.j2")
