"""A wrong answer costs its own exercise: what builds on it is judged with the course's version."""

import sys
from pathlib import Path

import nbformat
import pytest
from grading_course import QUICK
from live_notebook import plain_text
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.authoring.paste import solution_source
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.report import Finding, Report
from course_lib.exercises import find, lessons
from course_lib.grading.graded_cells import is_theirs, read_notebook
from course_lib.grading.jobs import Job
from course_lib.grading.judging import cells as judged_cells
from course_lib.grading.judging.runner import Runner
from course_lib.grading.judging.session import Session

ROOT = Path(__file__).parents[1]
POOLING = "01_kernel_pooling"
NOT_SQUARED = """def squared_distances(queries, keys):
    return (queries[:, None, :] - keys[None, :, :]).abs().sum(dim=-1)"""
LOOPS = "def squared_distances(queries, keys):\n    while True:\n        pass"
STUB = "def squared_distances(queries, keys):\n    raise NotImplementedError()"
DIES = "def squared_distances(queries, keys):\n    __import__('os')._exit(1)"
IN_PLACE = "graded with the course's `squared_distances` in place of yours"

linux = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux")


@pytest.fixture(scope="module")
def runner():
    made = Runner(None, QUICK.limits)
    yield made
    made.close()


def handed_in(lesson, **answers):
    """The released lesson with the course's solutions as answers, but for these."""
    path = ROOT / "notebooks" / lesson / f"{lesson}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-answer")
        if cell.cell_type == "code" and is_theirs(cell):
            cell.source = answers[name] if name in answers else solution_source(name)
    return notebook


def graded(runner, lesson, **answers):
    """What became of each exercise, what its check shows, and how many kernels it took."""
    text = nbformat.writes(handed_in(lesson, **answers))
    result = runner.run(Job("ada", lesson, "key", text.encode(), text, "seed"))
    assert result.fault is None, result.fault
    notebook = result.notebook
    shown = {
        cell.metadata.nbgrader.grade_id: plain_text(cell.outputs[0]["data"])
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code"
    }
    kernels = sum(line.endswith("guest ready") for line in result.log)
    return {row.exercise: row for row in read_notebook(notebook).rows}, shown, kernels


def lost(exercises):
    return {name for name, one in exercises.items() if one.outcome != "correct"}


@linux
@pytest.mark.parametrize("wrong", [NOT_SQUARED, STUB, LOOPS, DIES])
@pytest.mark.slow
def test_a_wrong_answer_costs_its_own_exercise_and_the_integration(runner, wrong):
    exercises, shown, _ = graded(runner, POOLING, squared_distances=wrong)
    assert lost(exercises) == {"squared_distances", POOLING}
    for name in ("kernel_pooling", "leave_one_out", "fit_bandwidth"):
        assert IN_PLACE in shown[name], shown[name]
    assert IN_PLACE not in shown["gaussian_as_dot_product"]


@linux
def test_what_is_wrong_itself_keeps_its_first_report(runner):
    own = "def kernel_pooling(queries, keys, values, bandwidth):\n    return squared_distances"
    exercises, shown, kernels = graded(
        runner, POOLING, squared_distances=NOT_SQUARED, kernel_pooling=own
    )
    assert exercises["kernel_pooling"].points == 0
    assert "in place of yours" not in shown["kernel_pooling"]
    assert IN_PLACE in shown["leave_one_out"] and kernels > 1


@linux
@pytest.mark.slow
@pytest.mark.parametrize("lesson", ["02_masked_softmax", "06_multi_head", "08_memory_and_speed"])
def test_what_is_left_out_costs_itself_and_the_integration_alone(runner, lesson):
    exercises, shown, kernels = graded(runner, lesson)
    assert (lost(exercises), kernels) == (set(), 1), shown
    used = {used for name in lessons()[lesson].exercises for used in find(name).builds_on}
    for name in [name for name in lessons()[lesson].exercises if name in used]:
        exercises, shown, _ = graded(runner, lesson, **{name: "pass"})
        assert lost(exercises) - {lesson} == {name}, shown


@linux
@pytest.mark.slow
def test_a_kernel_without_what_did_damage_has_what_later_exercises_build_on(runner):
    trap = "\ntorch.softmax = lambda *arguments, **more: __import__('os')._exit(1)"
    answers = {"stable_softmax": solution_source("stable_softmax") + trap}
    exercises, shown, kernels = graded(runner, "02_masked_softmax", **answers)
    assert lost(exercises) == set(), shown
    assert kernels > 1


def test_nothing_but_points_is_taken_from_the_second_judgement():
    secret = "differences.square()"
    finding = Finding("x", secret, secret, "values")
    about = {
        "findings": [finding],
        "tally": secret,
        "example": Example(((secret, secret),)),
        "notes": [secret],
    }
    exercise = find("kernel_pooling")
    second = Report.on(exercise, "incorrect", 0.5, parts={"values": (0.5, 1.0)}, **about)
    first = Report.on(exercise, "incorrect", 0.25, [Finding("y", "as it was", "", "values")])
    timed_out = Report.on(exercise, "timed_out", 0.0)
    for before in (first, timed_out, Report.not_attempted(exercise, "stub")):
        taken = judged_cells._with_points_of(second, before, ["squared_distances"])
        assert taken.points == second.points and IN_PLACE in taken.text()
        assert secret not in taken.text() + taken.html() + str(taken.as_dict())
    taken = judged_cells._with_points_of(second, first, ["squared_distances"])
    assert "as it was" in taken.text()


def cells(*sources):
    """Answers `a`, `b`, ... with their checks."""
    made = []
    for letter, source in zip("abcdef", sources, strict=False):
        answer = {"grade_id": f"{letter}-answer", "solution": True}
        check = {"grade_id": letter, "grade": True, "solution": False}
        made.append(new_code_cell(source, metadata={"nbgrader": answer}))
        made.append(new_code_cell(f'check("{letter}")', metadata={"nbgrader": check}))
    return made


def test_what_an_answer_builds_on_is_what_its_source_names():
    own = new_code_cell("shift = lambda: a", metadata={"course": {"own": True}})
    ours = new_code_cell("c = carry_on('c')\nd = b")
    texts = ("def a(): pass", "class b:\n  def f(self): shift()", "def c(b=1): '''a'''", "b(")
    book = new_notebook(cells=[*cells(*texts), own, ours])
    builds_on = Session(book.cells, lambda: None, QUICK.limits).builds_on
    assert builds_on(["b"]) == ["a"]
    assert builds_on(["c"]) == builds_on(["d"]) == []
    assert builds_on(["d"], ["def d(): return c, b"]) == ["a", "b", "c"]
    assert builds_on(["b", "a"]) == []
