"""Points come from the check's report, and from nothing else in the cell's outputs."""

import pytest

from course_lib.grading.graded_cells import REPORT, read_check


def cell(*outputs, points=4):
    about = {"grade_id": "double", "points": points, "grade": True, "solution": False}
    return {"metadata": {"nbgrader": about}, "outputs": list(outputs), "execution_count": 1}


def report(outcome="correct", points=4.0, exercise="double", **more):
    data = {"exercise": exercise, "outcome": outcome, "points": points, **more}
    return {"output_type": "display_data", "data": {REPORT: data}}


def result(text):
    return {"output_type": "execute_result", "data": {"text/plain": text}}


def stderr(text="careful"):
    return {"output_type": "stream", "name": "stderr", "text": text}


def error(ename):
    return {"output_type": "error", "ename": ename, "evalue": "", "traceback": []}


def test_points_mistake_and_messages_are_read():
    findings = [{"id": "a", "message": "First."}, {"id": "b", "message": "Second."}]
    told = report("incorrect", 1.5, mistake="adds_two", findings=findings)
    verdict = read_check(cell(told, result("1.5")))
    assert (verdict.points, verdict.outcome, verdict.mistake) == (1.5, "incorrect", "adds_two")
    assert verdict.message == "First."
    assert verdict.reason is None


def test_stderr_costs_nothing():
    assert read_check(cell(stderr(), report(), stderr(), result("4.0"))).points == 4.0


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-1.0", "4.5", "tensor(0.)", "np.float64(0.0)", "", "None"]
)
def test_a_value_that_is_no_number_of_points_is_not_graded(text):
    verdict = read_check(cell(report(), result(text)))
    assert verdict.points is None
    assert "not a number of points" in verdict.reason


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ([], "left no report"),
        ([result("4.0")], "left no report"),
        ([report(exercise="square"), result("4.0")], "left no report"),
        ([report()], "not a number of points"),
        ([report(points=1.0), result("4.0")], "disagree"),
        ([report(), result("4.0"), result("4.0")], "not a number of points"),
        ([report("checker_failed"), result("4.0")], "the check itself failed"),
        ([error("NameError")], "ended with NameError"),
    ],
)
def test_what_cannot_be_trusted_is_not_graded_and_says_why(outputs, reason):
    verdict = read_check(cell(*outputs))
    assert verdict.points is None
    assert reason in verdict.reason


def test_a_check_that_was_not_run_is_not_graded():
    assert read_check({**cell(), "execution_count": None}).reason == "the check was not run"


def test_a_time_out_costs_its_exercise():
    verdict = read_check(
        cell(report(), result("4.0"), error("KeyboardInterrupt"), error("CellTimeoutError"))
    )
    assert (verdict.points, verdict.outcome) == (0.0, "timed_out")
