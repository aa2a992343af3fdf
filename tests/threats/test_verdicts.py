"""S11 to S13, S17, S22: who may be graded without walls; what an answer in odd form is worth."""

import functools
import os
import sys
from pathlib import Path

import pytest
import torch
from grading_course import CAUSAL, LENGTH, LESSON, QUICK, cell_of, hand_in, make_course, release
from nbformat.v4 import new_code_cell

from course_lib.checks import grade as judged
from course_lib.cli import main as cli
from course_lib.errors import GradingError
from course_lib.exercises.variants import variants
from course_lib.grading import Settings, grade

ROOT = Path(__file__).parents[2]


# Files of the grader (S11), its environment (S12) and other kernels' sockets (S13) are within reach
# of what means harm below "strict": no such class is graded there unless its grader says so.
@pytest.mark.parametrize("row", ["s11", "s12", "s13"])
@pytest.mark.parametrize("level", ["basic", "off"])
def test_s11_s12_s13_no_class_is_graded_below_strict_that_is_not_trusted(
    tmp_path, monkeypatch, capsys, row, level
):
    root = make_course(tmp_path)
    looks = {
        "s11": "import os\nos.truncate('@', 0)",
        "s12": "print(open(f'/proc/{__import__(\"os\").getppid()}/environ').read())",
        "s13": "__import__('socket').socket(1, 1).connect('@')",
    }
    target = tmp_path / "target"
    target.write_text("the grader's own")
    notebook = release(root)
    notebook.cells.insert(2, new_code_cell(looks[row].replace("@", str(target)), id="look"))
    hand_in(root, "ada", notebook)
    monkeypatch.chdir(root)
    assert cli.main(["grade", LESSON, "--sandbox", level]) == 2
    assert "holds mistakes, not attacks" in capsys.readouterr().err
    assert target.read_text() == "the grader's own"
    assert not (root / "autograded").exists() and not (root / ".course" / "ledger").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="basic is Linux's")
def test_s12_root_never_grades_at_basic_not_even_a_trusted_class(tmp_path, monkeypatch):
    hand_in(make_course(tmp_path), "ada", release(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with pytest.raises(GradingError, match="basic holds nothing that runs as root"):
        grade(tmp_path, LESSON, settings=Settings(sandbox="basic"))


def rounded(answer, dtype, back=False):
    """An answer whose result comes in another dtype, or was rounded to it and is float32 again."""

    @functools.wraps(answer)
    def called(*args, **kwargs):
        given = answer(*args, **kwargs)
        if not isinstance(given, torch.Tensor):
            return given
        return given.to(dtype).to(given.dtype) if back else given.to(dtype)

    return called


WRONG = [
    variant
    for name in ("gaussian_as_dot_product", "kernel_pooling", "masked_softmax", "causal_mask")
    for variant in variants(ROOT, name)
    if not variant.is_right and callable(variant.answer) and not isinstance(variant.answer, type)
]


@pytest.mark.parametrize(
    ("dtype", "most"),
    [(torch.bfloat16, 1e-9), (torch.float64, 1e-9), (torch.float16, 0.2)],  # an epsilon is lost
    ids=["bfloat16", "float64", "float16"],
)
def test_s17_a_wrong_answer_gains_nothing_by_its_dtype(dtype, most):
    gained = {}
    for variant in WRONG:
        again = rounded(variant.answer, dtype, back=True)
        in_float32 = [
            judged(variant.exercise, a, seed="s17").score for a in (variant.answer, again)
        ]
        as_it_is = max(in_float32)  # rounding itself may mend a number
        score = judged(variant.exercise, rounded(variant.answer, dtype), seed="s17").score
        if score > as_it_is + most:
            gained[variant.exercise, variant.name] = (as_it_is, score)
    assert len(WRONG) > 20
    assert gained == {}


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux")
@pytest.mark.parametrize("place", ["first", "last", "two cells"])
def test_s22_all_answers_in_one_cell_count_as_in_their_own(tmp_path, place):
    root = make_course(tmp_path)
    notebook = release(root)
    source = f"import torch\n\n\n{CAUSAL}\n\n\n{LENGTH}"
    cells = [new_code_cell(source, id="mine")]
    if place == "two cells":  # the last definition counts
        cells.insert(0, new_code_cell(source.replace("<", ">"), id="tried"))
    at = 1 if place == "first" else notebook.cells.index(cell_of(notebook, "why"))
    notebook.cells[at:at] = cells
    hand_in(root, "ada", notebook)
    (ada,) = grade(root, LESSON, settings=QUICK).students
    assert [row.points for row in ada.rows] == [2.0, 2.0]
    assert any("answer found in a cell of the student's own" in notice for notice in ada.notices)
