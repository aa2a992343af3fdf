"""Feedback pages, written once the points are in the gradebook.

`course grade`, `nbgrader generate_feedback` and formgrader write the same page, in light and dark,
from `templates/feedback`. Formgrader's own pages come from nbgrader as before. A page that cannot
be rendered becomes a plain one: points, what the checks say, and a sentence.
"""

import functools
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, Template
from nbformat import v4
from nbgrader.utils import is_grade, is_solution

from course_lib.grading.adapters.nbgrader import SubmittedNotebook
from course_lib.grading.graded import GradedExercise
from course_lib.grading.publishing.course_figures import CourseFigures

_SPEC = find_spec("nbgrader")
assert _SPEC is not None and _SPEC.origin is not None  # the course requires it
TEMPLATES = [
    str(Path(__file__).with_name("templates")),
    str(Path(_SPEC.origin).parent / "server_extensions" / "formgrader" / "templates"),
]
STEPS = [
    "nbgrader.preprocessors.GetGrades",
    "course_lib.grading.publishing.course_figures.CourseFigures",
]
FILTERS = {
    "as_written": "course_lib.grading.publishing.markup.as_written",
    "highlighted": "course_lib.grading.publishing.markup.highlighted",
    "inline_code": "course_lib.checks.judge.html.inline",
    "lesson_text": "course_lib.grading.publishing.markup.lesson_text",
    "plain_text": "course_lib.grading.sanitize.plain_text",
    "written": "course_lib.grading.publishing.markup.written",
}


class Marks(NamedTuple):
    """A submission's entries in the gradebook, and the results of its checks."""

    about: dict[str, Any]
    cells: dict[str, dict[str, Any]]
    exercises: tuple[GradedExercise, ...]


def marks_of(
    submitted: SubmittedNotebook, lesson: str, exercises: tuple[GradedExercise, ...]
) -> Marks:
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
    return Marks(about, cells, exercises)


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
