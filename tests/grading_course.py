"""A tiny course for grading tests: two quick exercises of lesson 02 and a written question."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from waiting import PATIENCE

from course_lib.grading.driver import Settings
from course_lib.grading.sandbox.confinement import Limits

LESSON = "02_masked_softmax"
QUICK = Settings("serial", None, limits=Limits(cell_seconds=2.0))
GUEST_LIMITS = Limits(memory=1_000_000_000, disk=20_000_000, file_size=5_000_000)
CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "tiny"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.py", "*.pyc", "__pycache__"]
c.Execute.timeout = 120
c.Execute.extra_arguments = ["--IPKernelApp.log_level=ERROR"]
c.Execute.skip_cells_with_tag = "demo"
c.Autograde.sanitize_preprocessors = {sanitize}
c.Autograde.autograde_preprocessors = {autograde}
"""
SETUP = "import torch\n\nfrom course_lib import check, hint"
CAUSAL = """def causal_mask(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    rows = torch.arange(num_queries, device=device)[:, None]
    return torch.arange(m, device=device) <= rows + m - num_queries"""
LENGTH = """def length_mask(valid_lens, max_len):
    return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]"""
UPPER = CAUSAL.replace("<=", ">=")
RIGHT = {"causal_mask": CAUSAL, "length_mask": LENGTH}


def nbgrader_cell(source, grade_id, *, grade=False, solution=False, points=None):
    """Return a code cell that nbgrader locks, unless it holds a solution."""
    about = {"grade_id": grade_id, "grade": grade, "solution": solution, "locked": not solution}
    about |= {"schema_version": 3, "task": False} | ({"points": points} if points else {})
    return new_code_cell(source, id=grade_id, metadata={"nbgrader": about})


def graded_cell(source, grade_id, points=2):
    """Return a test cell."""
    cell = nbgrader_cell(source, grade_id, grade=True, points=points)
    cell.id = f"{grade_id}-check"
    return cell


def _answer(name):
    head, body = RIGHT[name].split("\n", 1)
    source = f"{head}\n    ### BEGIN SOLUTION\n{body}\n    ### END SOLUTION"
    return nbgrader_cell(source, f"{name}-answer", solution=True)


def solution_notebook():
    """Return the lesson as an instructor's notebook."""
    why = nbgrader_cell("", "why", grade=True, solution=True, points=2).metadata
    written = "### BEGIN SOLUTION\nBecause.\n### END SOLUTION"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(
        metadata={"kernelspec": kernel},
        cells=[
            new_markdown_cell("# Masks", id="masks-1"),
            nbgrader_cell(SETUP, "setup"),
            new_markdown_cell("Who may see whom.", id="causal-1"),
            _answer("causal_mask"),
            graded_cell('check("causal_mask")', "causal_mask"),
            new_code_cell("1 / 0", id="show-1", metadata={"tags": ["demo"]}),
            _answer("length_mask"),
            graded_cell('check("length_mask")', "length_mask"),
            new_markdown_cell(written, id="why", metadata=why),
        ],
    )


def make_course(root: Path, lesson=None) -> Path:
    """Make a course folder with a source notebook, by default the one above, and its release."""
    from nbgrader.converters import GenerateAssignment

    from course_lib.grading import stock_nbgrader
    from course_lib.grading.class_folder import ClassFolder

    lists = {"sanitize": stock_nbgrader.SANITIZE, "autograde": stock_nbgrader.AUTOGRADE}
    (root / "nbgrader_config.py").write_text(CONFIG.format(**lists), encoding="utf-8")
    source = root / "solutions" / LESSON / f"{LESSON}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(lesson or solution_notebook(), source)
    course = ClassFolder(root)
    coursedir = course.coursedir(LESSON)
    converter = GenerateAssignment(coursedir=coursedir, config=course.config)
    converter.start()
    (root / "submitted").mkdir()
    return root


def make_class(root: Path, students: Sequence[str]) -> Path:
    """Make an ungraded class in which every third student's answers are all wrong or missing."""
    from course_lib.grading.class_folder import ClassFolder

    root.mkdir(parents=True, exist_ok=True)
    ClassFolder(make_course(root)).check_seed()  # the same in all copies of the class
    for number, student in enumerate(students):
        hand_in(root, student, honest(root, **({"causal_mask": UPPER} if number % 3 == 2 else {})))
    return root


def release(root: Path):
    """Return a fresh copy of the release notebook."""
    return nbformat.read(root / "notebooks" / LESSON / f"{LESSON}.ipynb", as_version=4)


def honest(root: Path, **answers: str):
    """Return the release with `answers` by grade_id without '-answer'; the default is correct."""
    notebook = copy.deepcopy(release(root))
    answers = answers or RIGHT
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-answer")
        if name in answers and cell.metadata.nbgrader.solution:
            cell.source = answers[name]
    return notebook


def cell_of(notebook, grade_id: str):
    """Return the first cell with this grade_id."""
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


def hand_in(root: Path, student: str, notebook, name: str = f"{LESSON}.ipynb") -> Path:
    """Put a notebook (node, bytes or text) into submitted/STUDENT/LESSON."""
    path = root / "submitted" / student / LESSON / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = notebook if isinstance(notebook, str | bytes) else json.dumps(notebook)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def scores(root: Path) -> dict:
    """Return the machine's points in the gradebook, by student and cell."""
    from course_lib.grading.class_folder import ClassFolder

    with ClassFolder(root).gradebook() as gradebook:
        return {
            (submission.student.id, g.cell.name): g.auto_score
            for submission in gradebook.assignment_submissions(LESSON)
            for notebook in submission.notebooks
            for g in notebook.grades
        }


def nbgrader(root: Path, *arguments: str, **environ: str) -> str:
    """Run stock nbgrader in a folder, as a person would; return what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=root,
        env={**os.environ, "PATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
