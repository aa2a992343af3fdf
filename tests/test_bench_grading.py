"""The benchmark of grading: what it counts as the floor, and the ratio that it prints."""

import pytest
from grading_course import LESSON, graded_cell
from nbformat.v4 import new_code_cell, new_notebook, writes

from course_lib.benchmarks.floor import floor
from course_lib.benchmarks.grading import run_floor
from course_lib.workspace.errors import GradingError


def test_the_floor_runs_answers_and_neither_checks_nor_demos(tmp_path):
    ran = tmp_path / "ran"
    note = f"with open({str(ran)!r}, 'a') as file: file.write({{!r}})"
    cells = [new_code_cell(note.format("answer")), new_code_cell("1 / 0")]
    cells.append(graded_cell(note.format("check"), "x"))
    cells.append(new_code_cell(note.format("demo"), metadata={"tags": ["demo"]}))
    cells.append(new_code_cell("import time; time.sleep(0.05)"))
    path = tmp_path / "autograded" / "ada" / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(writes(new_notebook(cells=cells)))
    assert floor(tmp_path, LESSON) > 0.05
    assert ran.read_text() == "answer" * 2  # the first notebook is run once more, to import
    assert run_floor(tmp_path, LESSON, 1).each > 0.05
    path.write_text("{")
    with pytest.raises(GradingError, match="do not run"):
        run_floor(tmp_path, LESSON, 1)
