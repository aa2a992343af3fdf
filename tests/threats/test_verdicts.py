"""S01, S11 to S13, S16: borrowed solutions, and grading without a sandbox."""

import functools
import sys
from pathlib import Path

import nbformat
import pytest
from grading_course import LESSON, cell_of, hand_in, honest, make_course
from nbformat.v4 import new_code_cell

from course_lib.authoring.paste import solution_source
from course_lib.cli import main as cli
from course_lib.exercises import lessons
from course_lib.grading.driver import Settings, grade
from course_lib.grading.jobs import Job
from course_lib.grading.read_checks import read_notebook
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.worker.runner import Runner

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


@pytest.fixture(scope="module")
def points_of():
    """Yield a function that returns the points of an answer below a cell of the student's own."""
    runner = Runner(None, Limits())

    def graded(lesson: str, name: str, answer: str, before: str = "") -> tuple[float, float]:
        text = (ROOT / "notebooks" / lesson / f"{lesson}.ipynb").read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        cell_of(notebook, f"{name}-answer").source = answer
        notebook.cells.insert(2, new_code_cell(before, id="before"))
        job = Job("ada", lesson, "key", nbformat.writes(notebook).encode(), text, "seed")
        rows = {row.exercise: row for row in read_notebook(runner.run(job).notebook).rows}
        return rows[name].points, rows[name].max_points

    yield graded
    runner.close()


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


ALL_AT_ONCE = """def blocked_attention(queries, keys, values, mask=None, block_size=128):
    scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ values, torch.logsumexp(scores, -1)"""
WRAPPED = {  # a cell before the answer, after which nothing seems to be spent
    "observer": """import course_lib.checks.observe.call as call
whole = call.observe
def spends_nothing(*args, **kwargs):
    seen = whole(*args, **kwargs)
    seen.spent = dict.fromkeys(seen.spent, 0)
    return seen
call.observe = spends_nothing""",
    "torch below it": """from torch.multiprocessing.reductions import StorageWeakRef
StorageWeakRef.expired = lambda self: True""",
}


def test_s16_who_wraps_what_measures_an_answer_gains_nothing(points_of):
    measured = functools.partial(points_of, "08_memory_and_speed", "blocked_attention")
    in_blocks = solution_source("blocked_attention")
    honest, right = measured(ALL_AT_ONCE), measured(in_blocks)
    assert 0 < honest[0] < right[0]
    for what, code in WRAPPED.items():
        assert measured(ALL_AT_ONCE, code) <= honest, what
        assert measured(in_blocks, code) < right, what
