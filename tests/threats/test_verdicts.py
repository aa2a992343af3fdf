"""S01, S11 to S13: borrowed solutions, and grading without a sandbox."""

import sys
from pathlib import Path

import nbformat
import pytest
from grading_course import LESSON, hand_in, honest, make_course

from course_lib.authoring.paste import solution_source
from course_lib.cli import main as cli
from course_lib.exercises import lessons
from course_lib.grading.driver import Settings, grade
from course_lib.grading.sandbox.confinement import Limits

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="guests are forked on Linux")


BORROWED = {  # an answer to masked_softmax that runs the course's own code
    "import": "from course_lib.attention import masked_softmax",
    "getsource": "import inspect, course_lib\nexec(inspect.getsource(course_lib.masked_softmax))",
    "marshal": """import course_lib, glob, marshal, os
home = os.path.dirname(course_lib.__file__)
(path,) = glob.glob(home + "/attention/__pycache__/_masked_softmax.*.pyc")
exec(marshal.loads(open(path, "rb").read()[16:]))""",
    "gc": """import gc, types
found = [f for f in gc.get_objects() if isinstance(f, types.FunctionType)
         and f.__code__.co_name == "masked_softmax" and f.__code__.co_argcount == 3]
masked_softmax = [f for f in found if f.__module__ != "__main__"][0]""",
}


def test_s01_an_answer_that_is_the_courses_own_is_worth_nothing(tmp_path):
    # This runs the whole of lesson 02.
    path = ROOT / "solutions" / LESSON / f"{LESSON}.ipynb"
    root = make_course(tmp_path, nbformat.read(path, as_version=4))
    answers = {name: solution_source(name) for name in lessons()[LESSON].exercises}
    hand_in(root, "honest", honest(root, **answers))
    for what, code in BORROWED.items():
        hand_in(root, what, honest(root, **(answers | {"masked_softmax": code})))
    settings = Settings("serial", None, limits=Limits(cell_seconds=10.0))
    students = {s.student: s for s in grade(root, LESSON, settings=settings).students}
    assert all(row.points == row.max_points for row in students["honest"].rows)
    assert not students["honest"].notices
    for what in BORROWED:
        rows = {row.exercise: row for row in students[what].rows}
        assert rows["masked_softmax"].points == 0, what
        assert rows["causal_mask"].points == rows["causal_mask"].max_points, what


def test_s11_s12_s13_no_class_is_graded_below_strict_that_is_not_trusted(
    tmp_path, monkeypatch, capsys
):
    # At "off", files of the grader, its environment and its sockets are within reach.
    root = make_course(tmp_path)
    target = tmp_path / "target"
    target.touch()
    code = f"import os\nos.remove({str(target)!r})"
    hand_in(root, "ada", honest(root, causal_mask=code))
    monkeypatch.chdir(root)
    assert cli.main(["grade", LESSON, "--sandbox", "off"]) == 2
    assert "stops mistakes, not attacks" in capsys.readouterr().err
    assert target.exists()
    assert not (root / "autograded").exists() and not (root / ".course" / "ledger").exists()
