"""`course rerun`: a notebook as the grader runs it, shown cell by cell."""

import re

import pytest
from grading_course import LESSON, UPPER, cell_of, hand_in, honest
from nbformat.v4 import new_code_cell
from test_collect import course, everything, made

from course_lib.cli.main import main

__all__ = ["course", "made"]  # fixtures
pytestmark = pytest.mark.usefixtures("warm")
RERUN = ["rerun", "02", "--sandbox", "off", "--trusted"]


def test_every_cell_is_shown_and_nothing_is_stored(course, capsys):
    notebook = honest(course, causal_mask=f"print('\x1b[31mred')\n{UPPER}", length_mask="1 / 0")
    notebook.cells.insert(2, new_code_cell("import google.colab\nprint('no')"))
    cell_of(notebook, "causal_mask").source = "print('correct')"
    hand_in(course, "ada", notebook)
    main([*RERUN, "ada"])  # makes the secret seed
    capsys.readouterr()
    before = everything(course)
    assert main([*RERUN, "ada"]) == 0
    said = capsys.readouterr().out
    assert "ModuleNotFoundError: No module named 'google'" in said and "      red\n" in said
    assert "causal_mask: incorrect, 0" in said and "upper_triangular: Your mask is upper" in said
    assert "ZeroDivisionError" in said and "1 / 0: not run" in said  # the demo cell
    assert "causal_mask: deleted check" not in said and "note: " in said
    numbers = [int(number) for number in re.findall(r"^\[(\d+)\] ", said, re.MULTILINE)]
    assert numbers == [*range(1, len(numbers) + 1)]  # of the code cells, as they are shown
    assert "torch" in said and "A cell has 30 s" in said and "\x1b" not in said
    assert everything(course) == before and not (course / "autograded").exists()


def test_work_that_cannot_be_read_says_why(course, capsys):
    hand_in(course, "eve", b"", name="answers.pdf")
    hand_in(course, "joe", b"{")
    assert main([*RERUN, "joe"]) == 3
    assert "not graded: " in capsys.readouterr().out
    assert main([*RERUN, "nobody"]) == 1
    assert f"nothing from nobody for {LESSON}" in capsys.readouterr().err
    assert main(["rerun", "02", "eve", "--sandbox", "off"]) == 2
