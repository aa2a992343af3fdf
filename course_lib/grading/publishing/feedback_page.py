"""Render feedback pages after the points are in the gradebook.

`course grade`, `nbgrader generate_feedback` and formgrader write the same page, in light and dark,
from `templates/feedback`. Formgrader's other pages are nbgrader's. A page that cannot be rendered
is replaced by a plain one with points, comments and a notice.
"""

import functools
import pkgutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import nbgrader
from jinja2 import Environment, FileSystemLoader, Template
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution, is_task

from course_lib.grading.adapters.nbgrader import SubmittedNotebook, coursedir_of, final_score
from course_lib.grading.cell_kinds import is_check
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.clean_outputs import made_output
from course_lib.grading.gradebook import opened
from course_lib.grading.publishing.course_figures import figures_of
from course_lib.grading.read_checks import earlier_versions, read_check

TEMPLATES = [
    str(Path(__file__).with_name("templates")),
    str(Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates"),
]
STEPS = ["course_lib.grading.publishing.feedback_page.MarkCells"]
FILTERS = {
    "as_written": "course_lib.grading.publishing.markup.as_written",
    "highlighted": "course_lib.grading.publishing.markup.highlighted",
    "inline_code": "course_lib.checks.judge.html.inline",
    "lesson_text": "course_lib.grading.publishing.markup.lesson_text",
    "plain_text": "course_lib.grading.clean_outputs.plain_text",
    "written": "course_lib.grading.publishing.markup.written",
}


class Marks(NamedTuple):
    """A submission's entries in the gradebook, for the whole and for each cell."""

    about: dict[str, Any]
    cells: dict[str, dict[str, Any]]


def marks_of(submitted: SubmittedNotebook, lesson: str) -> Marks:
    """Return the marks of a submission whose points are in the gradebook."""
    penalty, whole = submitted.late_submission_penalty or 0, submitted.assignment
    names = filter(None, [whole.student.first_name, whole.student.last_name])
    about = {
        "assignment": lesson,
        "notebook": submitted.name,
        "name": " ".join(names) or whole.student.id,
        "submitted": whole.timestamp,
        "late": whole.total_seconds_late > 0,
        "score": max(0.0, final_score(submitted) - penalty),
        "max_score": submitted.max_score,
        "late_penalty": penalty,
    }
    cells: dict[str, dict[str, Any]] = {c.name: {"comment": c.comment} for c in submitted.comments}
    for grade in submitted.grades:
        waiting, given = grade.needs_manual_grade, grade.manual_score is not None
        known = {
            "score": grade.score,
            "points": grade.max_score,
            "waiting": waiting,
            "given": given,
        }
        cells.setdefault(grade.name, {}).update(known)
    return Marks(about, cells)


class MarkCells(NbGraderPreprocessor):
    """The preprocessor that runs before the template when nbgrader writes a page."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Add points and comments from the gradebook, and the course's figures, to a notebook."""
        about, coursedir = resources["nbgrader"], coursedir_of(self)
        name, lesson = about["notebook"], about["assignment"]
        with opened(coursedir) as gradebook:
            submitted = gradebook.find_submission_notebook(name, lesson, about["student"])
            marks = marks_of(submitted, lesson)
        source = Path(coursedir.root) / coursedir.source_directory / lesson / f"{name}.ipynb"
        _mark(nb, marks, figures_of(source))
        collected = ClassFolder(Path(coursedir.root)).collected(lesson).get(about["student"], {})
        about.update(marks.about, written=date.today(), group=collected.get("group"))
        return nb, resources


def _mark(notebook: NotebookNode, marks: Marks, figures: Mapping[str, str]) -> None:
    """Add marks to the cells of a graded notebook, and the course's figures to demo cells."""
    earlier = earlier_versions(notebook)
    for cell in notebook.cells:
        if is_task(cell):  # nbgrader's kind of question about several cells
            cell.metadata.nbgrader.update(grade=True, solution=True)  # shown as a written answer
        if is_grade(cell) or is_solution(cell):
            mark, name = cell.metadata.nbgrader, cell.metadata.nbgrader.grade_id
            mark.update(marks.cells[name])
            mark.version, comment = earlier.get(name, [None, None])
            mark.is_old = (
                mark.version and comment == mark.get("comment") and mark.get("waiting", True)
            )
        if is_grade(cell):
            cell.metadata.nbgrader.state = _state(cell)
        shown = figures.get(cell.get("id", ""))
        if shown and cell.cell_type == "code" and "demo" in cell.metadata.get("tags", []):
            printed = [output for output in cell.outputs if output.output_type == "stream"]
            ours = made_output("display_data", data={"text/html": shown}, metadata={})
            cell.outputs = [*printed, ours]


def _state(cell: NotebookNode) -> str:
    """Return "right", "pending", "blank" (as it was released) or "wrong"."""
    mark = cell.metadata.nbgrader
    if mark.waiting:
        return "pending"
    outcome = read_check(cell).outcome if is_check(cell) else mark.get("comment")
    if mark.score >= mark.points and (mark.points or outcome == "correct"):
        return "right"
    is_blank = outcome in ("not_attempted", "No response.") and not mark.score
    return "blank" if is_blank else "wrong"


def feedback_page(graded: NotebookNode, marks: Marks, figures: Mapping[str, str]) -> str:
    """Mark a graded notebook in place, and return the page that nbgrader's converter makes."""
    try:
        _mark(graded, marks, figures)
        about = marks.about | {"written": date.today()}
        return _template("index").render(nb=graded, resources={"nbgrader": about})
    except Exception as error:  # other pages are still made
        return _template("plain").render(marks._asdict(), why=type(error).__name__)


@functools.cache
def _template(name: str) -> Template:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    environment.filters |= {name: pkgutil.resolve_name(path) for name, path in FILTERS.items()}
    return environment.get_template(f"feedback/{name}.html.j2")
