"""Single steps of grading on what hardly any submission holds, without a kernel."""

import nbformat
import pytest
import torch
from exports_course import LESSON, copy_course, make_template
from grading_course import CAUSAL, release
from grading_course import make_course as make_lesson
from jupyter_client import session
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbgrader.converters.base import NbGraderException

from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.report import Report
from course_lib.checks.observe.observation import Observation, Raised, Subject, subject_of
from course_lib.checks.observe.remote import Reply, Request, answer
from course_lib.exercises import find
from course_lib.grading import demo_course, plan, preprocessors
from course_lib.grading.adapters.nbgrader import LatePenalties
from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.gradebook import opened
from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.intake import gate
from course_lib.grading.intake import submissions as intake
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.source_checks import same_as_course, source_checks
from course_lib.grading.intake.submissions import IntakeError, SubmittedCell
from course_lib.grading.judging import exercise as judging
from course_lib.grading.judging import runner
from course_lib.grading.judging.reply import plausible
from course_lib.grading.judging.session import CannotJudge, Journal, Session
from course_lib.grading.kernels.client import Client, Ran
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault
from course_lib.grading.kernels.sandbox import Limits, Reached
from course_lib.grading.ledger import Entry
from course_lib.grading.regrade import keep_points
from course_lib.grading.report.class_table import summary_table
from course_lib.grading.report.read_grades import read_lesson
from course_lib.grading.sanitize import sanitize_outputs
from course_lib.workspace.errors import GradingError


def lower(num_queries, num_keys=None, *, device=None):
    return torch.ones(num_queries, num_keys or num_queries, dtype=torch.bool, device=device).tril()


# --- replies ------------------------------------------------------------------------------


@pytest.fixture
def probes():
    return [probe for probe, _ in prepare(find("causal_mask"), "seed")]


def test_a_reply_about_what_cannot_be_called_has_seen_nothing(probes):
    nothing = Reply("1", Subject())
    assert plausible(nothing, probes)
    nothing.seen = answer(Request("causal_mask", probes), {"causal_mask": lower}).seen
    assert nothing.seen and not plausible(nothing, probes)


def judged(reply, probes):
    return judging._judge(find("causal_mask"), "seed", probes, reply, name_mistakes=True)


def test_a_reply_is_judged_by_what_it_says(probes):
    assert isinstance(report := judged(Reply("1", missing=("length_mask",)), probes), Report)
    assert "needs your own `length_mask`" in report.findings[0].message
    assert judged(Reply("1", subject_of(lower)), probes) == "silent"
    reply = answer(Request("causal_mask", probes), {"causal_mask": lower})
    assert judged(reply, probes).outcome in ("correct", "incorrect")
    reply.seen[probes[-1].name] = Observation(raised=Raised("MemoryError", ""))
    assert judged(reply, probes) == "memory"


# --- sources and cells --------------------------------------------------------------------


def answered(source, name="causal_mask"):
    about = {"nbgrader": {"grade_id": f"{name}-answer", "solution": True}}
    return new_notebook(cells=[new_code_cell(source, metadata=about)])


def test_an_answer_to_no_exercise_of_ours_has_nothing_forbidden():
    assert source_checks(answered("import torch\ntorch.softmax", "no_exercise")) == []


def test_an_answer_too_deep_to_be_compared_is_not_the_courses():
    deep = CAUSAL + "\n    return " + "+".join(["1"] * 700)
    assert same_as_course(answered(deep), "02_masked_softmax") == []


def test_a_deleted_answer_is_looked_for_in_cells_that_can_be_read():
    lesson = answered("def causal_mask(n):\n    raise NotImplementedError")
    lesson.cells.append(new_code_cell("1", id="next"))
    own = [
        SubmittedCell("code", source, None, None, ())
        for source in ("def causal_mask(n) pass", CAUSAL, "x = 1")
    ]
    found, notices = rebuild(lesson, own)
    assert CAUSAL in [cell.source for cell in found.cells]
    assert "causal_mask-answer: answer found in a cell of the student's own" in notices


def test_points_are_compared_only_where_both_times_gave_some():
    def cell(shown):
        about = {"nbgrader": {"grade_id": "x", "grade": True, "solution": False, "points": 2}}
        data = {"application/vnd.course.report+json": {"exercise": "x", "points": shown}}
        outputs = [new_output("display_data", data)] + [
            new_output("execute_result", {"text/plain": str(shown)}, execution_count=1)
        ] * (shown is not None)
        return new_code_cell('check("x")', metadata=about, outputs=outputs, execution_count=1)

    def kept(before, now):
        return keep_points([cell(before)], new_notebook(cells=[cell(now)]))

    assert "would get 1 instead of 2 points" in kept(2, 1)["x"]
    assert kept(1, 2) == kept(2, None) == kept(None, 1) == {}


def test_lines_of_text_are_joined_and_anything_else_is_no_text():
    first, second = sanitize_outputs(
        [
            {"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]},
            {"output_type": "stream", "name": "stdout", "text": ["a", 3]},
        ]
    )
    assert (first.text, second.text) == ("a\nb", "")


def test_a_file_that_may_not_be_read_is_refused_with_the_reason(tmp_path, monkeypatch):
    path = tmp_path / "lesson.ipynb"
    path.write_text("{}")

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gate.os, "open", refuse)
    with pytest.raises(IntakeError, match=r"lesson\.ipynb cannot be read: Permission denied"):
        intake.read_bytes(path)


# --- kernels and sessions -----------------------------------------------------------------


class Provider:
    reached = Reached("strict")

    def used(self, kernel):
        return None

    def kill(self, kernel):
        kernel.over.set()


@pytest.fixture
def client(tmp_path):
    """A client of a kernel that is not there."""
    ports = {f"{name}_port": n for n, name in enumerate(("shell", "iopub", "stdin", "control"), 1)}
    about = {"transport": "ipc", "ip": str(tmp_path / "k"), "key": "secret", "hb_port": 5}
    about |= ports | {"signature_scheme": "hmac-sha256"}
    made = Client(Kernel("gone", about, Provider()))
    yield made
    made.close()


def test_an_interrupt_to_a_kernel_that_has_ended_is_not_waited_for(client):
    client.kernel.over.set()
    client._absorb_interrupt()


def test_a_message_that_cannot_be_read_is_none(client, monkeypatch):
    frames = session.Session(key=b"another").serialize(client._session.msg("status"))
    monkeypatch.setattr(client._channels["iopub"], "receive", lambda seconds: frames)
    assert client._next("iopub", 0.01) is None


def session_of(**limits):
    return Session([], lambda: None, Limits(**limits), Journal())


@pytest.fixture
def lost(client):
    """A session whose kernel, at "strict", is gone."""
    made = session_of()
    made._client = client
    return made


def test_a_kernel_that_was_killed_from_outside_is_the_machines_fault(lost):
    ending = lost._client.kernel.ending
    ending["reason"] = "killed"
    with pytest.raises(KernelFault, match="the system killed its kernel"):
        lost.ending_of(Ran("died"))
    ending.update(reason="signal", code=9, cpu=1.0)
    with pytest.raises(KernelFault, match="the system killed its kernel"):
        lost.ending_of(Ran("died"))
    ending["cpu"] = float(Limits().cpu_seconds)  # its processor time was up
    assert lost.ending_of(Ran("died")) == "crash"


def test_a_submission_may_use_only_so_much_as_a_whole():
    used = session_of(total_seconds=5.0)
    used._used = 5.0
    used.check_budget()
    used._used = 5.1
    with pytest.raises(CannotJudge, match="used up the 5 s of processor time and waiting for"):
        used.check_budget()


def test_a_submission_may_put_out_only_so_much_as_a_whole(lost, monkeypatch):
    lost._received = lost.limits.total_output - lost._client.received
    lost.check_budget()
    lost._client._channels["iopub"].received += 1
    with pytest.raises(CannotJudge, match="it put out more than 500 MB in all"):
        lost.check_budget()


def test_a_kernel_that_does_not_answer_is_ended(monkeypatch):
    class Silent(Client):
        def __init__(self, kernel, most_output):
            pass

        def wait_ready(self, seconds):
            raise KernelFault("a kernel did not start")

    kernel = Kernel("gone", {}, Provider())
    monkeypatch.setattr("course_lib.grading.judging.session.Client", Silent)
    with pytest.raises(KernelFault, match="a kernel did not start"):
        Session([], lambda: kernel, Limits(), Journal()).run("1", 0)
    assert kernel.over.is_set()


def test_a_cell_that_is_harmful_only_in_the_new_kernel_is_left_out_there(monkeypatch):
    ran = []

    class Kernels(Session):
        def _connect(self):
            ran.append("kernel")

        def _run(self, code, step="cells", silent=False):
            ran.append(code)
            return Ran("died" if code == "fatal()" else "ok")

        def ending_of(self, ran):
            return "crash"

    cells = [new_code_cell(source) for source in ("a = 1", "fatal()", "b = 2")]
    renewed = Kernels(cells, lambda: None, Limits(), Journal())
    renewed.renew(3)
    assert ran == ["kernel", "a = 1", "fatal()", "kernel", "b = 2"]
    assert renewed.harmful == {1: "crash"}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("ok", "was lost 3 times, and one without it was not: why"),
        ("timeout", "no kernel now: why"),
    ],
)
def test_who_lost_the_kernels_is_found_by_running_a_cell_of_ours(monkeypatch, state, words):
    class Ours:
        def __init__(self, kernel):
            pass

        def wait_ready(self, seconds):
            return self

        def run(self, code, seconds):
            return Ran(state)

        def close(self):
            pass

    class Waiting:
        def kill(self):
            pass

    monkeypatch.setattr(runner, "Client", Ours)
    made = object.__new__(runner.Runner)
    made.kernel, made.limits = Waiting, Limits()
    assert words in made._blame("why")


def test_work_that_was_graded_and_not_published_is_known_by_the_ledgers_notebook():
    about = {"nbgrader": {"grade_id": "x", "grade": True, "solution": False, "points": 2}}
    notebook = new_notebook(cells=[new_code_cell("1"), new_code_cell("check()", metadata=about)])
    entry = Entry("ada", notebook=nbformat.writes(notebook))
    assert [cell.source for cell in plan._earlier_checks(None, entry)] == ["check()"]
    assert plan._earlier_checks(None, Entry("ada", notebook="damaged")) == ()


# --- the gradebook, and what is read back -------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def course(template, tmp_path):
    return Course(copy_course(template, tmp_path / "course"))


def test_a_submission_without_a_grade_of_a_cell_is_not_graded(course):
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


def test_a_lesson_without_graded_cells_has_no_students(course):
    with quiet_nbgrader(), course.gradebook() as book:
        book.add_assignment("09_nothing")
        book.add_notebook("09_nothing", "09_nothing")
        book.add_submission("09_nothing", "ada")
    with quiet_nbgrader():
        assert read_lesson(course, "09_nothing") == GradedLesson("09_nothing")


def test_another_missing_module_is_not_taken_for_a_driver(course):
    with pytest.raises(ModuleNotFoundError), opened(course.coursedir("")):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")


def test_a_late_penalty_is_what_the_plugin_says_within_the_score(course, monkeypatch):
    with quiet_nbgrader(), course.gradebook() as book:
        late = book.find_submission_notebook(LESSON, LESSON, "o'brien")
        penalties = LatePenalties(course.config)
        plugin = penalties._step.plugin_inst
        for asked, given in ((None, None), (1.5, 1.5), (99.0, late.score)):
            monkeypatch.setattr(plugin, "late_submission_penalty", lambda *a, asked=asked: asked)
            assert penalties.penalty(late) == given


def test_a_score_given_by_hand_is_marked_in_the_table():
    row = GradedExercise("x", 2.0, 2.0, "not_graded", by_hand=True)
    lesson = GradedLesson("01_x", (GradedSubmission("ada", (row,)),), {"x": 2.0})
    from rich.console import Console

    console = Console(width=60)
    with console.capture() as shown:
        console.print(summary_table(lesson))
    assert "✎ 2" in shown.get()


# --- releases -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    return Course(make_lesson(tmp_path_factory.mktemp("lesson")))


def test_a_source_that_is_missing_or_refused_is_named_with_the_command(lesson, monkeypatch):
    class Refusing:
        def __init__(self, **options):
            pass

        def start(self):
            raise NbGraderException("no such cell")

    monkeypatch.setattr("course_lib.grading.course.GenerateAssignment", Refusing)
    with pytest.raises(GradingError, match=r"nbgrader refuses .* \(no such cell\)\. Run `course"):
        lesson.generate("02_masked_softmax", "notebooks")
    with pytest.raises(GradingError, match="does not exist: run `course build 09_none`"):
        lesson.generate("09_none", "notebooks")


class Step:
    """What a preprocessor asks of its exporter and its converter."""

    def __init__(self, coursedir):
        self.parent, self.coursedir = self, coursedir


def test_stock_grading_without_a_release_takes_the_submission_as_it_is(lesson, monkeypatch, caplog):
    step = preprocessors.RebuildSubmission()
    monkeypatch.setattr(preprocessors, "coursedir_of", lambda step: lesson.coursedir("x"))
    nb = release(lesson.root)
    about = {"nbgrader": {"assignment": "09_none", "notebook": "09_none", "student": "ada"}}
    assert step.preprocess(nb, about) == (nb, about)
    about["nbgrader"] |= {"assignment": "02_masked_softmax", "notebook": "02_masked_softmax"}
    rebuilt, _ = step.preprocess(nb, about)
    assert rebuilt is not nb and rebuilt.metadata["course"]["notices"] == []


def test_stock_grading_logs_why_a_check_has_no_points(monkeypatch):
    step, logged = preprocessors.SaveCheckedGrades(), []
    monkeypatch.setattr(step.log, "warning", lambda *words: logged.append(words[-1]))
    step.student_id = "ada"
    about = {"nbgrader": {"grade_id": "x", "grade": True, "solution": False, "points": 2}}
    assert step.score_of(new_code_cell("check()", metadata=about)) is None
    assert logged == ["the check was not run"]


def test_a_demonstration_needs_lessons_with_a_sample_class(tmp_path):
    with pytest.raises(GradingError, match="has no lesson with a sample class"):
        demo_course.demo(tmp_path)
    refusal = "03_batch_matmul has no sample class; these lessons have one: 02_masked_softmax, 06_"
    with pytest.raises(GradingError, match=refusal):
        demo_course.demo(tmp_path, ["03_batch_matmul"])
    with pytest.raises(GradingError, match="does not exist: run `course build 02_masked_softmax`"):
        demo_course.demo(tmp_path, ["02_masked_softmax"])
