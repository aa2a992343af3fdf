"""A tiny course for grading tests: two exercises, a check of ten lines, no torch."""

import copy
import json
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

LESSON = "01_numbers"
CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "tiny"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.py", "*.pyc", "__pycache__"]
c.Execute.timeout = 4
c.Execute.extra_arguments = ["--IPKernelApp.log_level=ERROR"]
c.Execute.skip_cells_with_tag = "demo"
c.Autograde.sanitize_preprocessors = {sanitize}
c.Autograde.autograde_preprocessors = {autograde}
"""
SETUP = '''
from IPython.display import display

def check(name):
    """Display a report and return points, as the course's own check does."""
    wanted = {"double": 6, "square": 9}[name]
    report = {"exercise": name, "max_points": 4.0, "mistake": None, "findings": []}
    try:
        got = globals()[name](3)
    except Exception as error:
        name_of = type(error).__name__
        outcome = "not_attempted" if name_of == "NotImplementedError" else "raised"
    else:
        outcome = "correct" if got == wanted else "incorrect"
        if got == 5:
            report["mistake"] = "adds_two"
            report["findings"] = [{"message": "You <add> two."}]
    report["outcome"] = outcome
    report["points"] = 4.0 if outcome == "correct" else 0.0
    bundle = {"application/vnd.course.report+json": report, "text/plain": outcome}
    display({**bundle, "text/html": "<p>Report: " + outcome + "</p>"}, raw=True)
    return report["points"]
'''


def _nbgrader(grade_id, *, grade=False, solution=False, locked=False, points=None):
    about = {"grade_id": grade_id, "grade": grade, "solution": solution, "locked": locked}
    about |= {"schema_version": 3, "task": False} | ({"points": points} if points else {})
    return {"nbgrader": about}


def _answer(name, body):
    source = f"def {name}(x):\n    ### BEGIN SOLUTION\n    return {body}\n    ### END SOLUTION"
    about = _nbgrader(f"{name}-answer", solution=True)
    return new_code_cell(source, id=f"{name}-answer", metadata=about)


def _check(name):
    about = _nbgrader(name, grade=True, locked=True, points=4)
    return new_code_cell(f'check("{name}")', id=f"{name}-check", metadata=about)


def solution_notebook():
    """The lesson as an instructor's notebook."""
    written = "### BEGIN SOLUTION\nBecause.\n### END SOLUTION"
    about = _nbgrader("why", grade=True, solution=True, points=2)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(
        metadata={"kernelspec": kernel},
        cells=[
            new_markdown_cell("# Numbers", id="numbers-1"),
            new_code_cell(SETUP.strip(), id="setup", metadata=_nbgrader("setup", locked=True)),
            new_markdown_cell("Double a number.", id="double-1"),
            _answer("double", "2 * x"),
            _check("double"),
            new_code_cell("1 / 0", id="show-1", metadata={"tags": ["demo"]}),
            _answer("square", "x * x"),
            _check("square"),
            new_markdown_cell(written, id="why", metadata=about),
        ],
    )


def make_course(root: Path) -> Path:
    """A course folder with the lesson's source notebook and its release."""
    from nbgrader.converters import GenerateAssignment

    from course_lib.grading import preprocessors
    from course_lib.grading.course import Course

    lists = {"sanitize": preprocessors.SANITIZE, "autograde": preprocessors.AUTOGRADE}
    (root / "nbgrader_config.py").write_text(CONFIG.format(**lists), encoding="utf-8")
    source = root / "solutions" / LESSON / f"{LESSON}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(solution_notebook(), source)
    course = Course(root)
    coursedir = course.coursedir(LESSON)
    converter = GenerateAssignment(coursedir=coursedir, config=course.config)
    converter.start()
    (root / "submitted").mkdir()
    return root


def release(root: Path):
    """A fresh copy of the release notebook."""
    return nbformat.read(root / "notebooks" / LESSON / f"{LESSON}.ipynb", as_version=4)


def honest(root: Path, **answers: str):
    """The release with answers poured in by grade_id without its '-answer'; both right if none."""
    notebook = copy.deepcopy(release(root))
    right = {
        "double": "def double(x):\n    return x + x",
        "square": "def square(x):\n    return x**2",
    }
    answers = answers or right
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-answer")
        if name in answers and cell.metadata.nbgrader.solution:
            cell.source = answers[name]
    return notebook


def cell_of(notebook, grade_id: str):
    """The first cell with this grade_id."""
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


def hand_in(root: Path, student: str, notebook, name: str = f"{LESSON}.ipynb") -> Path:
    """Put a notebook (node, bytes or text) into submitted/STUDENT/LESSON."""
    path = root / "submitted" / student / LESSON / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(notebook, bytes):
        path.write_bytes(notebook)
    elif isinstance(notebook, str):
        path.write_text(notebook, encoding="utf-8")
    else:
        path.write_text(json.dumps(notebook), encoding="utf-8")
    return path
