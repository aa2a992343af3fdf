"""Where nbgrader finds the template of feedback pages, its steps and filters.

`course grade`, `nbgrader generate_feedback` and formgrader then write the same page, in light and
dark, from `templates/feedback`; formgrader's own pages come from nbgrader as before.
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
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
FILTERS = {
    "clean_prose": "course_lib.grading.sanitize.clean_prose",
    "inline_code": "course_lib.checks.judge.html.inline",
    "with_formulas": "course_lib.grading.publishing.formulas.with_formulas",
}
