"""Unusual but correct submissions get the same points in a kernel, from nbgrader and from us."""

import sys

import pytest
from grading_course import CAUSAL, LENGTH, LESSON, QUICK, hand_in, honest, make_course
from nbformat.v4 import new_code_cell
from unusual import (
    UNUSUAL,
    in_a_kernel,
    is_full,
    with_course_grade,
    with_stock_nbgrader,
    write_class,
)

from course_lib.grading.run import Settings, grade

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="some of the notebooks fork or call bash"),
]
BEST = Settings(sandbox=None, workers=2)
SAMPLE = ("import_from_a_written_file", "shell", "await", "displays", "processes", "jit")


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The verdicts of `course grade` on all of them."""
    folder = tmp_path_factory.mktemp("unusual") / "class"
    write_class(folder)
    return with_course_grade(folder, UNUSUAL, BEST)


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_notebook_gets_full_points(graded, name):
    assert is_full(graded[name]), graded[name]


def test_a_kernel_nbgrader_and_course_grade_agree(graded, tmp_path):
    write_class(tmp_path / "class", SAMPLE)
    expected = {name: graded[name] for name in SAMPLE}
    assert in_a_kernel(tmp_path / "class", SAMPLE) == expected
    assert with_stock_nbgrader(tmp_path / "class", SAMPLE) == expected


@pytest.mark.parametrize(
    ("own", "answer", "file"),
    [
        (None, "from helper import causal_mask", "helper.py"),
        (None, "%run helper.py", "helper.py"),
        ("import helper", "causal_mask = helper.causal_mask", "helper.py"),
        (None, f"offset = torch.load('offset.pt')\n{CAUSAL}", "offset.pt"),
    ],
)
@pytest.mark.usefixtures("warm")
def test_a_file_beside_the_notebook_is_named_where_an_answer_needs_it(tmp_path, own, answer, file):
    root = make_course(tmp_path)
    notebook = honest(root, causal_mask=answer, length_mask=LENGTH)
    if own:
        notebook.cells.insert(2, new_code_cell(own))
    path = hand_in(root, "ada", notebook)
    path.with_name(file).write_text(f"import torch\n{CAUSAL}")
    path.with_name("other.py").touch()
    [student] = grade(root, LESSON, settings=QUICK).students
    causal_mask, length_mask = student.rows
    assert (causal_mask.points, length_mask.points) == (0, 2)
    assert f"`{file}` was handed in, but is not used." in causal_mask.message


@pytest.mark.parametrize(
    "own",
    [
        "import os\n\nos.fork();",  # the child leaves its cell, too, and must not take the next one
        "display({'image/x': {'a': 1}}, raw=True)",  # nbformat allows nothing but text there
    ],
)
@pytest.mark.usefixtures("warm")
def test_a_cell_that_no_kernel_bears_costs_nothing(tmp_path, own):
    root = make_course(tmp_path)
    notebook = honest(root)
    notebook.cells[2:2] = [new_code_cell(own) for _ in range(3)]
    hand_in(root, "ada", notebook)
    [student] = grade(root, LESSON, settings=QUICK).students
    assert student.points == 4
