"""The template of feedback pages, its steps and its filters, by name.

`course grade`, `nbgrader generate_feedback` and formgrader write the same page, in light and dark,
from `templates/feedback`. Formgrader's own pages come from nbgrader as before.
"""

from importlib.util import find_spec
from pathlib import Path

_SPEC = find_spec("nbgrader")
assert _SPEC is not None and _SPEC.origin is not None  # the course requires it
_NBGRADER = Path(_SPEC.origin).parent
TEMPLATES = [
    str(Path(__file__).with_name("templates")),
    str(_NBGRADER / "server_extensions" / "formgrader" / "templates"),
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
