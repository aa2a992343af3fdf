"""Single steps of grading on what hardly any submission holds, without a guest."""

import pytest
import torch
from exports_course import LESSON, copy_course, make_template
from grading_course import make_course as make_lesson
from nbformat.v4 import new_code_cell
from nbgrader.converters.base import NbGraderException

from course_lib.checks.judge.prepare import prepare
from course_lib.checks.observe.observation import Observation, Raised, Subject, subject_of
from course_lib.checks.observe.remote import Reply, Request, answer
from course_lib.exercises import find
from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.judging import exercise as judging
from course_lib.grading.judging.session import CannotJudge, Session
from course_lib.grading.report.read_grades import read_lesson
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.sandbox.guests import Ran
from course_lib.workspace.errors import GradingError

# --- replies and sessions -----------------------------------------------------------------


def lower(num_queries, num_keys=None, *, device=None):
    return torch.ones(num_queries, num_keys or num_queries, dtype=torch.bool, device=device).tril()


def test_a_reply_is_judged_by_what_it_can_have_seen():
    exercise = find("causal_mask")
    probes = [probe for probe, _ in prepare(exercise, "seed")]

    def judged(reply):
        if not judging.is_plausible(reply, probes):
            return "silent"
        return judging.judge_reply(exercise, "seed", reply)

    missing = judged(Reply("1", missing=("length_mask",)))
    assert "needs your own `length_mask`" in missing.findings[0].message
    assert judged(Reply("1", subject_of(lower))) == "silent"  # it has seen nothing
    assert judged(Reply("1", Subject())).outcome != "correct"
    reply = answer(Request("causal_mask", probes), {"causal_mask": lower})
    assert judged(Reply("1", Subject(), seen=reply.seen)) == "silent"  # nothing that can be called
    assert judged(reply).outcome in ("correct", "incorrect")
    reply.seen[probes[-1].name] = Observation(raised=Raised("MemoryError", ""))
    assert judged(reply) == "memory"


@pytest.mark.parametrize(
    ("used", "received", "why"),
    [
        (5.0, 100, None),
        (5.1, 0, "used up the 5 s of processor time and waiting for"),
        (0.0, 101, "it put out more than"),
    ],
)
def test_a_submission_may_use_and_put_out_only_so_much_as_a_whole(used, received, why):
    session = Session([], lambda: None, Limits(total_seconds=5.0, total_output=100))
    session._used, session._received = used, received
    if why is None:
        session.check_budget()
        return
    with pytest.raises(CannotJudge, match=why):
        session.check_budget()


def test_a_cell_that_is_harmful_only_in_the_new_guest_is_left_out_there():
    ran = []

    class Guests(Session):
        def _connect(self):
            ran.append("guest")

        def _run(self, guest, code, index, *, history=True):
            ran.append(code)
            return Ran("died" if code == "fatal()" else "ok")

        def ending_of(self, ran):
            return "crash"

    cells = [new_code_cell(source) for source in ("a = 1", "fatal()", "b = 2")]
    renewed = Guests(cells, lambda: None, Limits())
    renewed.renew(3)
    assert ran == ["guest", "a = 1", "fatal()", "guest", "b = 2"]
    assert renewed.harmful == {1: "crash"}


# --- grades -------------------------------------------------------------------------------


def test_a_submission_without_a_grade_of_a_cell_is_not_graded(tmp_path):
    (tmp_path / "template").mkdir()
    course = Course(copy_course(make_template(tmp_path / "template"), tmp_path / "course"))
    with quiet_nbgrader(), course.gradebook() as book:
        for name in ("causal_mask", "why"):
            book.db.delete(book.find_grade(name, LESSON, LESSON, "ada"))
        book.db.commit()
    with quiet_nbgrader():
        (ada,) = [s for s in read_lesson(course, LESSON).students if s.student == "ada"]
    assert [(row.points, row.outcome) for row in ada.rows] == [
        (None, "not_graded"),
        (4.0, "not_graded"),
    ]
    assert [(one.points, one.outcome) for one in ada.answers] == [(None, "waiting")]


# --- releases -----------------------------------------------------------------------------


def test_a_source_that_is_missing_or_refused_is_named_with_the_command(tmp_path, monkeypatch):
    class Refusing:
        def __init__(self, **options):
            pass

        def start(self):
            raise NbGraderException("no such cell")

    lesson = Course(make_lesson(tmp_path))
    monkeypatch.setattr("course_lib.grading.course.GenerateAssignment", Refusing)
    with pytest.raises(GradingError, match=r"nbgrader refuses .* \(no such cell\)\. Run `course"):
        lesson.generate("02_masked_softmax", "notebooks")
    with pytest.raises(GradingError, match="does not exist: run `course build 09_none`"):
        lesson.generate("09_none", "notebooks")
