"""Points come from check reports, and each answer affects only its own exercise."""

import sys
from pathlib import Path

import nbformat
import pytest
import torch
from grading_course import QUICK, graded_cell
from live_notebook import plain_text
from nbformat.v4 import new_output

from course_lib.attention import causal_mask
from course_lib.authoring.paste import solution_source
from course_lib.checks import exercises
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.report import Finding, Report
from course_lib.checks.observe import remote
from course_lib.checks.observe.observation import Observation, Raised, Subject, subject_of
from course_lib.checks.observe.remote import Reply, Request, answer
from course_lib.exercises import find, lessons
from course_lib.grading.cell_kinds import is_theirs
from course_lib.grading.jobs import Job
from course_lib.grading.read_checks import REPORT, read_check, read_notebook
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.worker import cells as judged_cells
from course_lib.grading.worker import judge_checks
from course_lib.grading.worker.renewable_guest import CannotJudge, RenewableGuest
from course_lib.grading.worker.runner import Runner

ROOT = Path(__file__).parents[1]


def checked(*outputs, count=1, points=4):
    """Return what is read from the check of `double`, worth 4 points, with these outputs."""
    cell = graded_cell('check("double")', "double")
    cell.metadata.nbgrader.points = points
    return read_check({**cell, "outputs": list(outputs), "execution_count": count})


def report(outcome="correct", points=4.0, exercise="double", **more):
    data = {"exercise": exercise, "outcome": outcome, "points": points, **more}
    return new_output("display_data", {REPORT: data})


def result(text):
    return new_output("execute_result", {"text/plain": text})


def error(name):
    return new_output("error", ename=name, evalue="", traceback=[])


def test_points_mistake_and_messages_are_read_and_stderr_costs_nothing():
    findings = [{"id": "a", "message": "First."}, {"id": "b", "message": "Second."}]
    told = report("incorrect", 1.5, mistake="adds_two", findings=findings)
    verdict = checked(new_output("stream", name="stderr", text="careful"), told, result("1.5"))
    assert (verdict.points, verdict.outcome, verdict.mistake) == (1.5, "incorrect", "adds_two")
    assert (verdict.message, verdict.reason) == ("First.", None)


ODD_POINTS = ("nan", "inf", "-1.0", "4.5", "tensor(0.)", "np.float64(0.0)", "", "None")


def test_what_cannot_be_trusted_is_not_graded_and_says_why():
    for outputs, reason in (
        ([], "left no report"),
        ([result("4.0")], "left no report"),
        ([report(exercise="square"), result("4.0")], "left no report"),
        ([report()], "not a number of points"),
        *(([report(), result(text)], "not a number of points") for text in ODD_POINTS),
        ([report(points=1.0), result("4.0")], "disagree"),
        ([report(), result("4.0"), result("4.0")], "not a number of points"),
        ([report("checker_failed"), result("4.0")], "the check itself failed"),
        ([error("NameError")], "ended with NameError"),
    ):
        verdict = checked(*outputs)
        assert verdict.points is None and reason in verdict.reason
    assert checked(count=None).reason == "the check was not run"


def test_a_time_out_costs_its_exercise():
    late = checked(report(), result("4.0"), error("KeyboardInterrupt"), error("CellTimeoutError"))
    assert (late.points, late.outcome) == (0.0, "timed_out")


def test_a_starred_check_is_0_of_0_points_whatever_became_of_it():
    for name, outcome in (("CellTimeoutError", "timed_out"), ("NameError", "not_graded")):
        starred = checked(error(name), points=0)
        assert (starred.points, starred.max_points, starred.outcome) == (0, 0, outcome)


def lower(num_queries, num_keys=None, *, device=None):
    return torch.ones(num_queries, num_keys or num_queries, dtype=torch.bool, device=device).tril()


def test_a_reply_is_judged_by_what_it_can_have_seen():
    exercise = find("causal_mask")
    probes = [probe for probe, _ in prepare(exercise, "seed")]

    def judged(reply):
        if not judge_checks.is_plausible(reply, probes):
            return "silent"
        return judge_checks.judge_reply(exercise, "seed", reply)

    missing = judged(Reply("1", missing=("length_mask",)))
    assert "needs your own `length_mask`" in missing.findings[0].message
    assert judged(Reply("1", subject_of(lower))) == "silent"  # it has seen nothing
    assert judged(Reply("1", Subject())).outcome != "correct"
    reply = answer(Request("causal_mask", probes), {"causal_mask": lower})
    assert judged(Reply("1", Subject(), seen=reply.seen)) == "silent"  # nothing that can be called
    assert judged(reply).outcome in ("correct", "incorrect")
    reply.seen[probes[-1].name] = Observation(raised=Raised("MemoryError", ""))
    assert judged(reply) == "memory"


def test_a_submission_may_use_and_put_out_only_so_much_as_a_whole():
    guest = RenewableGuest([], lambda: None, Limits(total_seconds=5.0, total_output=100), {})
    guest._used, guest._received = 5.0, 100
    guest.check_budget()
    guest._used = 5.1
    with pytest.raises(CannotJudge, match="used up the 5 s of CPU and waiting time"):
        guest.check_budget()
    guest._used, guest._received = 0.0, 101
    with pytest.raises(CannotJudge, match="it put out more than"):
        guest.check_budget()


POOLING = "01_kernel_pooling"
HEAD = "def squared_distances(queries, keys):\n    "
NOT_SQUARED = HEAD + "return (queries[:, None, :] - keys[None, :, :]).abs().sum(dim=-1)"
LOOPS = HEAD + "while True: pass"
STUB = HEAD + "raise NotImplementedError()"
DIES = HEAD + "__import__('os')._exit(1)"
IN_PLACE = "graded with the course's `squared_distances` in place of yours"
linux = pytest.mark.skipif(sys.platform != "linux", reason="guests are forked on Linux")


@pytest.fixture(scope="module")
def runner():
    made = Runner(None, QUICK.limits)
    yield made
    made.close()


def graded(runner, lesson, **answers):
    """Return the result of each exercise, the text of its check, and the number of guests.

    All other answers of the lesson are the course's.
    """
    notebook = nbformat.read(ROOT / "notebooks" / lesson / f"{lesson}.ipynb", as_version=4)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-answer")
        if cell.cell_type == "code" and is_theirs(cell):
            cell.source = answers[name] if name in answers else solution_source(name)
    text = nbformat.writes(notebook)
    result = runner.run(Job("ada", lesson, "key", text.encode(), text, "seed"))
    assert result.fault is None, result.fault
    shown = {
        cell.metadata.nbgrader.grade_id: plain_text(cell.outputs[0]["data"])
        for cell in result.notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code"
    }
    guests = sum(line.endswith("guest ready") for line in result.log)
    return {row.exercise: row for row in read_notebook(result.notebook).rows}, shown, guests


def lost(rows):
    return {name for name, row in rows.items() if row.outcome != "correct"}


@linux
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [NOT_SQUARED, LOOPS, DIES])
def test_a_wrong_answer_costs_its_own_exercise_and_the_integration(runner, wrong):
    rows, shown, _ = graded(runner, POOLING, squared_distances=wrong)
    assert lost(rows) == {"squared_distances", POOLING}
    for name in ("kernel_pooling", "leave_one_out"):
        assert IN_PLACE in shown[name], shown[name]
    assert IN_PLACE not in shown["gaussian_as_dot_product"]


@linux
def test_an_answer_that_is_wrong_itself_keeps_its_first_report(runner):
    own = "def kernel_pooling(queries, keys, values, bandwidth):\n    return squared_distances"
    answers = {"squared_distances": NOT_SQUARED, "kernel_pooling": own}
    rows, shown, guests = graded(runner, POOLING, **answers)
    assert rows["kernel_pooling"].points == 0
    assert "in place of yours" not in shown["kernel_pooling"]
    assert IN_PLACE in shown["leave_one_out"] and guests > 1


@linux
def test_an_answer_that_is_stopped_and_beside_the_courses_version_only_raises_is_graded(runner):
    negative = NOT_SQUARED.replace("return ", "return -1 - ")
    own = "def kernel_pooling(queries, keys, values, bandwidth):\n    "
    own += "while squared_distances(queries, keys).min() < 0: pass\n    raise ValueError()"
    answers = {"squared_distances": negative, "kernel_pooling": own}
    rows, shown, _ = graded(runner, POOLING, **answers)
    # Beside the course's version, the error is right where the statement asks for one.
    assert rows["kernel_pooling"].points == 0.1 and rows["kernel_pooling"].outcome == "raised"
    assert IN_PLACE in shown["kernel_pooling"]


@linux
def test_a_finding_of_an_exercise_is_not_repeated_for_the_lesson(runner):
    wrong = "def masked_softmax(scores, valid_lens=None, mask=None):\n    return scores.softmax(-1)"
    _, shown, _ = graded(runner, "02_masked_softmax", masked_softmax=wrong)
    fact = "Your code ignores both the lengths and the mask."
    assert fact in shown["masked_softmax"] and fact not in shown["02_masked_softmax"]
    assert "It fails for the same reason as `masked_softmax`." in shown["02_masked_softmax"]


@linux
@pytest.mark.slow
@pytest.mark.parametrize("lesson", ["02_masked_softmax", "06_multi_head", "08_memory_and_speed"])
def test_wrong_answers_cost_themselves_and_the_integration_alone(runner, lesson):
    rows, shown, guests = graded(runner, lesson)
    assert (lost(rows), guests) == (set(), 1), shown
    names = lessons()[lesson].exercises
    used = {one for one in names for name in names if name != one and one in solution_source(name)}
    tried = {name: f"def {name}(*args, **kwargs):\n    return None" for name in used}
    rows, shown, _ = graded(runner, lesson, **tried)
    assert used and lost(rows) - {lesson} == used, shown


@linux
@pytest.mark.slow
def test_a_guest_without_the_cell_that_did_damage_has_what_later_exercises_build_on(runner):
    trap = "\ntorch.softmax = lambda *arguments, **more: __import__('os')._exit(1)"
    answers = {"stable_softmax": solution_source("stable_softmax") + trap}
    rows, shown, guests = graded(runner, "02_masked_softmax", **answers)
    assert (lost(rows), guests > 1) == (set(), True), shown


def test_only_points_are_taken_from_the_second_judgement():
    secret, exercise = "differences.square()", find("kernel_pooling")
    findings = [Finding("x", secret, secret, "values")]
    about = {"tally": secret, "example": Example(((secret, secret),)), "notes": [secret]}
    parts = {"values": (0.5, 1.0)}
    second = Report.on(exercise, "incorrect", 0.5, findings, parts=parts, **about)
    first = Report.on(exercise, "incorrect", 0.25, [Finding("y", "as it was", "", "values")])
    timed_out = Report.on(exercise, "timed_out", 0.0)
    for before in (first, timed_out, Report.not_attempted(exercise, "stub")):
        taken = judged_cells._with_points_of(second, before, ["squared_distances"])
        assert taken.points == second.points and IN_PLACE in taken.text()
        assert secret not in taken.text() + taken.html() + str(taken.as_dict())
        assert ("as it was" in taken.text()) == (before is first)


def test_every_solution_refuses_while_an_answer_is_observed_and_then_works_again():
    for name in exercises():
        with remote.courses_versions_refuse([name]), pytest.raises(RuntimeError, match="not yours"):
            list(next(iter(remote._courses_functions(name)))())  # generators raise later
        assert remote._courses_functions(name)
    assert torch.equal(causal_mask(1), torch.ones(1, 1, dtype=torch.bool))


@linux
@pytest.mark.parametrize(
    ("earlier", "moved"),
    [
        ("06_multi_head", ("is_permutation_equivariant", "is_causal")),
        ("05_scaled_dot_product", ("jacobian_wrt_query", "attention_backward")),
    ],
)
def test_exercises_that_moved_are_graded_in_earlier_notebooks(runner, earlier, moved):
    notebook = nbformat.read(ROOT / "notebooks" / earlier / f"{earlier}.ipynb", as_version=4)
    answers = {}
    for name in moved:
        now = find(name).lesson
        assert now > earlier and name not in lessons()[earlier].exercises
        lesson = nbformat.read(ROOT / "notebooks" / now / f"{now}.ipynb", as_version=4)
        cells = {c.metadata.get("nbgrader", {}).get("grade_id"): c for c in lesson.cells}
        answers[name] = cells[f"{name}-answer"]
        notebook.cells += [answers[name], cells[name]]
    text = nbformat.writes(notebook)
    answers[moved[0]].source = solution_source(moved[0])
    answers[moved[1]].source = f"{moved[1]} = max"
    job = Job("ada", earlier, "key", nbformat.writes(notebook).encode(), text, "seed")
    result = runner.run(job)
    rows = {row.exercise: row for row in read_notebook(result.notebook).rows}
    assert [rows[name].outcome for name in moved] == ["correct", "raised"]
