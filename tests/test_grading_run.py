"""A class graded end to end: one bad notebook costs no one else, nothing is a silent 0."""

import copy
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from grading_course import (
    CAUSAL,
    LENGTH,
    LESSON,
    QUICK,
    RIGHT,
    UPPER,
    cell_of,
    hand_in,
    honest,
    make_course,
    nbgrader,
    release,
    scores,
    solution_notebook,
)
from live_notebook import plain_text
from nbformat.v4 import new_code_cell
from nbgrader.dbutil import write_alembic_ini

from course_lib.grading import plan, run
from course_lib.grading.course import Course
from course_lib.grading.executors.local import set_aside
from course_lib.grading.judging import cells, runner
from course_lib.grading.report.class_report import write_report
from course_lib.grading.report.class_table import show
from course_lib.grading.run import grade
from course_lib.workspace.errors import GradingError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

THREAD = f"""
import sys, threading, time, warnings
def chatter():
    for _ in range(100):
        time.sleep(0.02)
        print("noise", file=sys.stderr)
threading.Thread(target=chatter, daemon=True).start()
warnings.warn("careful")
{CAUSAL}
"""
NAMES = ("causal_mask", "length_mask")
STUCK = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass"
COLONLESS = CAUSAL.replace("device=None):", "device=None)")
RENAMED = CAUSAL.replace("causal_mask", "lower_triangle")
GOES_ON = """from course_lib import carry_on
causal_mask = carry_on("causal_mask")
causal_mask.__module__"""
LEAVES = (
    "exit()",
    "quit()",
    "import sys\nsys.exit()",
    "raise SystemExit",
    "raise KeyboardInterrupt",
)
LOOPS = (
    "def causal_mask(num_queries, num_keys=None, *, device=None):\n    while True:\n        pass"
)


@pytest.fixture(scope="module")
def graded(tmp_path_factory, warm):
    """A class of all sorts, graded once: (root, summary, lines of progress)."""
    root = make_course(tmp_path_factory.mktemp("course"))
    hand_in(root, "right", honest(root))
    hand_in(root, "solution", (root / "solutions" / LESSON / f"{LESSON}.ipynb").read_bytes())
    hand_in(root, "blank", release(root))
    hand_in(root, "wrong", honest(root, **RIGHT | {"causal_mask": UPPER, "why": "<b>I see"}))
    hand_in(root, "noisy", honest(root, causal_mask=THREAD))
    hand_in(root, "loops", honest(root, causal_mask=LOOPS, length_mask=LENGTH))
    hand_in(root, "stuck", honest(root, causal_mask=STUCK, length_mask=LENGTH))
    hand_in(root, "dead", honest(root, causal_mask="import os\nos._exit(1)", length_mask=LENGTH))
    hand_in(root, "broken", '{"cells": [')
    hand_in(root, "renamed", honest(root), "My Homework (1).ipynb")
    hand_in(root, "colonless", honest(root, causal_mask=COLONLESS, length_mask=LENGTH))
    hand_in(root, "misnamed", honest(root, causal_mask=RENAMED, length_mask=LENGTH))
    hand_in(root, "goes-on", with_own_cell(root, GOES_ON))
    hand_in(root, "ends", with_own_cell(root, "import os\nos._exit(1)"))
    for number, code in enumerate(LEAVES):
        answer = f"{CAUSAL}\n{code}"
        hand_in(root, f"leaves-{number}", honest(root, causal_mask=answer, length_mask=LENGTH))
    hand_in(root, "forger", honest(root, **RIGHT | {"causal_mask": "check = lambda name: 2.0"}))
    (root / "submitted" / "empty" / LESSON).mkdir(parents=True)
    doubled = honest(root)
    doubled.cells.append(cell_of(doubled, "causal_mask"))
    doubled.cells.append(cell_of(doubled, "causal_mask-answer"))
    hand_in(root, "doubled", doubled)
    late = hand_in(root, "o'brien", honest(root)).parent
    (late / "timestamp.txt").write_text("2026-03-04 00:00:00 UTC")
    garbage = hand_in(root, "a[1] b", honest(root)).parent
    (garbage / "timestamp.txt").write_text("yesterday")
    course = Course(root)
    with course.gradebook() as gradebook:
        gradebook.update_or_create_assignment(LESSON, duedate="2026-03-02 23:59:00 UTC")
    lines = []
    return root, grade(root, LESSON, progress=lines.append, settings=QUICK), lines


def with_own_cell(root, source):
    """Work with a cell of its own after the first check."""
    notebook = honest(root)
    index = notebook.cells.index(cell_of(notebook, "causal_mask"))
    notebook.cells.insert(index + 1, new_code_cell(source))
    return notebook


def record(graded, student):
    return next(s for s in graded[1].students if s.student == student)


@pytest.mark.parametrize(
    "student",
    ["right", "solution", "doubled", "renamed", "o'brien", "a[1] b", "goes-on", "ends"]
    + [f"leaves-{number}" for number in range(len(LEAVES))],
)
def test_honest_work_gets_every_point(graded, student):
    assert record(graded, student).points == 4
    assert record(graded, student).blanks == {}
    assert record(graded, "noisy").rows[0].points == 2, "a warning and a thread cost nothing"


def test_the_release_handed_in_blank_scores_0_and_is_graded(graded):
    blank = record(graded, "blank")
    assert [(r.points, r.outcome) for r in blank.rows] == [(0, "not_attempted")] * 2
    assert blank.written == {"why": "left blank"}
    assert blank.blanks == {}


STOPPED = (
    "SyntaxError: expected ':' "
    "(line 1: `def causal_mask(num_queries, num_keys=None, *, device=None)`)"
)
WANTED = "You have `lower_triangle`; the exercise asks for `causal_mask`."


@pytest.mark.parametrize(
    ("student", "outcome", "words"),
    [
        ("colonless", "raised", STOPPED),
        ("misnamed", "not_attempted", WANTED),
        ("forger", "not_attempted", "causal_mask"),
        ("loops", "timed_out", "did not end within 2 s"),
        ("stuck", "timed_out", "did not end within 2 s"),
        ("dead", "crashed", "it ended its process"),
        ("wrong", "incorrect", "upper triangular"),
    ],
)
def test_what_is_no_right_answer_costs_its_own_exercise_and_says_why(
    graded, student, outcome, words
):
    first, second = record(graded, student).rows
    assert (first.points, first.outcome, second.points) == (0, outcome, 2)
    assert words in first.message


def test_what_follows_an_exercise_goes_on_with_the_students_own(graded):
    path = Course(graded[0]).autograded_notebook("goes-on", LESSON)
    cells = {cell.source: cell for cell in nbformat.read(path, as_version=4).cells}
    said, value = cells[GOES_ON].outputs
    assert "going on with yours; each exercise is graded by itself" in said.text
    assert value.data["text/plain"] == "'__main__'"
    assert cells["1 / 0"].outputs == [], "cells for show are not run"


@pytest.mark.parametrize(
    ("student", "reason"),
    [("broken", "is damaged"), ("empty", "no notebook was submitted")],
)
def test_what_cannot_be_graded_is_blank_with_a_reason(graded, student, reason):
    assert reason in record(graded, student).problem
    with Course(graded[0]).gradebook() as gradebook:
        submission = gradebook.find_submission(LESSON, student)
        scores = [g.auto_score for nb in submission.notebooks for g in nb.grades]
    assert scores == [None, None, None]


@pytest.mark.parametrize(
    ("student", "which", "words"),
    [
        ("leaves-0", 0, "(causal_mask-answer) asked the interpreter to end: later cells ran"),
        ("ends", -1, "cell 6 ended its process (crash): all other cells ran again without it"),
        ("renamed", 0, "should be called"),
        ("doubled", 0, "answer cells"),
    ],
)
def test_notices_say_what_was_mended(graded, student, which, words):
    assert words in record(graded, student).notices[which]


def test_lateness_is_recorded_and_costs_nothing(graded):
    assert record(graded, "o'brien").late_seconds == 24 * 3600 + 60
    assert record(graded, "a[1] b").late_seconds == 0


def test_the_summary_is_json_and_every_student_is_announced(graded):
    again = json.loads(json.dumps(graded[1].as_dict()))
    assert again["exit_code"] == 3
    assert set(again["blanks"]) == {"broken", "empty"}
    assert len(again["rows"]) == 2 * len(graded[1].students)
    assert again["waiting"] == {"solution": ["why"], "wrong": ["why"]}
    total, last = len(graded[1].students), graded[2][-1]
    assert sum(f" of {total} (" in str(step) for step in graded[2]) == total
    assert (last.done, last.total, last.seconds_left) == (total, total, 0.0)
    assert last.counts == {"graded": total - 2, "not gradable": 2}
    assert last.outcomes["correct"] > 10 and last.outcomes["timed_out"] == 2


def test_each_submission_has_a_log_that_says_what_happened(graded):
    course = Course(graded[0])
    log = course.log_path("wrong", LESSON).read_text()
    assert "guest ready" in log
    assert "check causal_mask: incorrect (upper_triangular), 0 of 2" in log
    assert "check length_mask: correct, 2 of 2" in log
    assert course.check_seed() not in log
    assert "crash" in course.log_path("dead", LESSON).read_text()
    assert "is damaged" in course.log_path("broken", LESSON).read_text()


def test_a_changed_check_grades_again_once(graded, tmp_path, monkeypatch):
    root = tmp_path / "course"
    shutil.copytree(graded[0], root)
    before = {s.student: [(r.points, r.outcome) for r in s.rows] for s in graded[1].students}
    judged, judge = [], cells.judge_twice
    monkeypatch.setattr(plan, "checks_digest", lambda lesson: "another")
    monkeypatch.setattr(cells, "judge_twice", lambda *a, **k: judged.append(a[2]) or judge(*a, **k))
    some = ["right", "wrong", "renamed"]
    summary = grade(root, LESSON, students=some, settings=QUICK)
    assert judged == [*NAMES] * 3
    after = {s.student: [(r.points, r.outcome) for r in s.rows] for s in summary.students}
    assert after == before
    judged.clear()
    grade(root, LESSON, students=some, settings=QUICK)
    assert judged == []


def test_points_do_not_fall_when_a_check_is_mended_until_a_person_agrees(
    graded, tmp_path, monkeypatch
):
    root = tmp_path / "course"
    shutil.copytree(graded[0], root)
    judge = cells.judge_twice

    def fixed(session, job, name, *arguments, **options):
        report = judge(session, job, name, *arguments, **options)
        if name == "length_mask":
            return report
        return replace(report, score=0.5 * report.score, outcome="incorrect", mistake="half")

    monkeypatch.setattr(cells, "judge_twice", fixed)
    monkeypatch.setattr(plan, "checks_digest", lambda lesson: "fixed")

    def again(**options):
        summary = grade(root, LESSON, students=["right"], settings=replace(QUICK, **options))
        return next(s for s in summary.students if s.student == "right")

    right = again()
    assert [(r.points, r.outcome) for r in right.rows] == [(2, "correct"), (2, "correct")]
    (notice,) = right.notices
    assert notice.startswith("causal_mask: graded again, this same work would get 1 instead of 2")
    assert again() == right, "graded once, and the flag stays"
    right = again(force=True)
    assert (right.points, right.notices) == (3, ())


def test_other_work_may_get_fewer_points(tmp_path):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root))
    assert grade(root, LESSON, settings=QUICK).students[0].points == 4
    hand_in(root, "ada", honest(root, causal_mask=UPPER))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "receive", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            grade(root, LESSON, settings=QUICK)
    assert grade(root, LESSON, settings=QUICK).students[0].points < 4


def test_a_damaged_graded_notebook_is_graded_again(graded, tmp_path):
    root = tmp_path / "course"
    shutil.copytree(graded[0], root)
    path = Course(root).autograded_notebook("right", LESSON)
    path.write_text("[]")
    summary = grade(root, LESSON, students=["right"], settings=QUICK)
    (right,) = [s for s in summary.students if s.student == "right"]
    assert (right.points, right.problem) == (4, None)
    assert nbformat.read(path, as_version=4).cells


def test_a_poison_submission_stays_aside_until_forced(tmp_path, monkeypatch):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root))
    monkeypatch.setattr(run, "executor", lambda *a, **k: Poisoned())
    (blank,) = grade(root, LESSON, settings=QUICK).blanks.values()
    assert "--force" in blank[""]
    monkeypatch.undo()  # a runner could grade it now
    assert "--force" in grade(root, LESSON, settings=QUICK).blanks["ada"][""]
    assert grade(root, LESSON, settings=replace(QUICK, force=True)).blanks == {}


def test_an_unreadable_notebook_is_read_again_only_when_it_changes(tmp_path, monkeypatch):
    root = make_course(tmp_path)
    hand_in(root, "ada", '{"cells": [')
    problem = grade(root, LESSON, settings=QUICK).students[0].problem
    monkeypatch.setattr(run, "executor", None)  # it is asked for nothing
    assert grade(root, LESSON, settings=QUICK).students[0].problem == problem
    monkeypatch.undo()
    hand_in(root, "ada", honest(root))
    assert grade(root, LESSON, settings=QUICK).students[0].points == 4


class Poisoned:
    """An executor whose workers all die."""

    def run(self, jobs):
        return map(set_aside, jobs)

    def close(self):
        pass


def test_tables_and_the_class_report_name_everyone_and_are_escaped(graded, capsys):
    show(graded[1])
    printed = capsys.readouterr().out
    assert "o'brien" in printed and "no notebook was submitted" in printed
    page = write_report(graded[0]).read_text()
    assert "Your mask is upper triangular" in page
    assert "a[1] b" in page
    assert "<script" not in page
    assert "http" not in re.sub(r' xmlns(:xlink)?="[^"]*"', "", page)
    assert "by 1 day" in page
    assert 'href="feedback/a%5B1%5D%20b/' in page


def test_an_unchanged_submission_is_not_graded_twice(graded):
    root = graded[0]
    log = root / ".course" / "logs" / LESSON / "right.log"
    before = log.stat().st_mtime_ns
    grade(root, LESSON, students=["right"], settings=QUICK)
    assert log.stat().st_mtime_ns == before
    grade(root, LESSON, students=["right"], settings=replace(QUICK, force=True))
    assert log.stat().st_mtime_ns > before


def test_a_resubmission_is_graded_and_a_manual_grade_survives(tmp_path):
    root = make_course(tmp_path)
    hand_in(root, "ada", honest(root, causal_mask=CAUSAL))
    assert grade(root, LESSON, settings=QUICK).students[0].points == 2
    with Course(root).gradebook() as gradebook:
        gradebook.find_grade("length_mask", LESSON, LESSON, "ada").manual_score = 1.5
        gradebook.db.commit()
    hand_in(root, "ada", honest(root))
    causal, length = grade(root, LESSON, settings=QUICK).students[0].rows
    assert (causal.points, length.points, length.by_hand) == (2, 1.5, True)
    hand_in(root, "ada", "not a notebook any more")
    assert "damaged" in grade(root, LESSON, settings=QUICK).students[0].problem


def test_errors_before_grading_name_file_and_cure(tmp_path):
    with pytest.raises(GradingError, match=r"holds no nbgrader_config.py: run this in"):
        grade(tmp_path, LESSON)
    root = make_course(tmp_path)
    with pytest.raises(
        GradingError, match=r"run `course build 09_none` \(lessons .*02_masked_softmax"
    ):
        grade(root, "09_none")
    with pytest.raises(GradingError, match="run `course grade"):
        write_report(root)


def release_anew(root: Path, place: Path, lesson) -> None:
    """As `course build` does: the lesson's source and release, and no word to the gradebook."""
    place.mkdir()
    make_course(place, lesson)
    for part in ("solutions", "notebooks"):
        shutil.copytree(place / part, root / part, dirs_exist_ok=True)


def test_exercises_come_and_go_and_what_people_gave_stays(tmp_path):
    (root := tmp_path / "course").mkdir()
    make_course(root)
    hand_in(root, "ada", honest(root, **RIGHT, why="Because."))
    hand_in(root, "bob", honest(root))
    grade(root, LESSON, settings=QUICK)
    with Course(root).gradebook() as book:
        for name, points in (("why", 1.5), ("length_mask", 0.5)):
            given = book.find_grade(name, LESSON, LESSON, "ada")
            given.manual_score, given.needs_manual_grade = points, False
        book.find_comment("why", LESSON, LESSON, "ada").manual_comment = "Nearly."
        book.find_comment("length_mask-answer", LESSON, LESSON, "ada").manual_comment = "Slow."
        book.db.commit()

    changed = solution_notebook()
    changed.cells = [c for c in changed.cells if not c.id.startswith("length_mask")]
    cube = copy.deepcopy(cell_of(changed, "causal_mask")), copy.deepcopy(changed.cells[3])
    for cell, name in zip(cube, ("combine_masks", "combine_masks-answer"), strict=True):
        cell.metadata.nbgrader.grade_id = cell.id = name
        cell.source = cell.source.replace("causal_mask", "combine_masks")
    changed.cells += reversed(cube)
    release_anew(root, tmp_path / "second", changed)
    ada = grade(root, LESSON, settings=QUICK).students[0]
    assert [row.exercise for row in ada.rows] == ["causal_mask", "combine_masks"]
    with Course(root).gradebook() as book:
        totals = {s.student.id: s.score for s in book.assignment_submissions(LESSON)}
        assert totals == {"ada": 2 + 1.5, "bob": 2}
        assert book.find_comment("why", LESSON, LESSON, "ada").comment == "Nearly."
    (kept,) = (root / ".course" / "removed").glob(f"{LESSON}_*.csv")
    assert kept.read_text(encoding="utf-8").splitlines()[1:] == [
        "ada,length_mask,0.5,,",
        "ada,length_mask-answer,,,Slow.",
    ]

    release_anew(root, tmp_path / "third", None)
    grade(root, LESSON, settings=QUICK)
    with Course(root).gradebook() as book:
        totals = {s.student.id: s.score for s in book.assignment_submissions(LESSON)}
    assert totals == {"ada": 2 + 2 + 1.5, "bob": 4}


def test_a_new_gradebook_has_the_newest_schema(tmp_path):
    write_alembic_ini(tmp_path / "alembic.ini", f"sqlite:///{make_course(tmp_path)}/gradebook.db")
    command = [sys.executable, "-m", "alembic", "-c", tmp_path / "alembic.ini", "current"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith(" (head)\n"), done.stdout + done.stderr


def test_stock_nbgrader_gives_the_same_grades(tmp_path):
    """Its feedback and its export: test_demo.py."""
    root = make_course(tmp_path)
    doubled, shuffled = honest(root), honest(root)
    doubled.cells.append(cell_of(doubled, "causal_mask"))
    shuffled.cells.reverse()
    work = {"blank": release(root), "wrong": honest(root, causal_mask=UPPER)}
    work |= {
        "colonless": honest(root, causal_mask=COLONLESS),
        "goes-on": with_own_cell(root, GOES_ON),
    }
    work |= {"misnamed": honest(root, causal_mask=RENAMED)}
    work["noisy"] = honest(root, causal_mask=THREAD)
    work["nosy"] = honest(root)
    work["nosy"].cells.append(new_code_cell(NOSY, id="nosy"))
    for student, notebook in {**work, "doubled": doubled, "shuffled": shuffled}.items():
        hand_in(root, student, notebook)
    nbgrader(root, "autograde", LESSON)
    stock = scores(root)
    assert STOPPED in said(root, "colonless") and WANTED in said(root, "misnamed")
    assert stock["goes-on", "causal_mask"] == stock["goes-on", "length_mask"] == 2
    assert "course_lib.attention" in said(root, "goes-on", GOES_ON)
    drawn_from, secret = printed(root, "nosy", NOSY), Course(root).check_seed()
    assert len(drawn_from) == 64 and secret not in drawn_from
    grade(root, LESSON, settings=replace(QUICK, force=True))
    assert scores(root) == stock
    assert stock["shuffled", "causal_mask"] == stock["doubled", "causal_mask"] == 2


NOSY = "import os\nprint(os.environ['COURSE_CHECK_SEED'])"


def printed(root: Path, student: str, source: str) -> str:
    """What a cell of a graded notebook printed."""
    notebook = nbformat.read(Course(root).autograded_notebook(student, LESSON), as_version=4)
    (output,) = next(cell for cell in notebook.cells if cell.source == source).outputs
    return output.text.strip()


def said(root: Path, student: str, source: str = 'check("causal_mask")') -> str:
    """The plain text that a cell of a graded notebook shows."""
    notebook = nbformat.read(Course(root).autograded_notebook(student, LESSON), as_version=4)
    cell = next(cell for cell in notebook.cells if cell.source == source)
    return "\n".join(plain_text(output.get("data", {})) for output in cell.outputs)


def test_a_fault_of_the_grader_leaves_one_submission_blank_and_grades_the_rest(
    tmp_path, monkeypatch
):
    """A gradebook without the lesson is filled from its source beforehand."""
    root = make_course(tmp_path)
    (root / "gradebook.db").unlink()
    for student in ("ada", "eve", "max"):
        hand_in(root, student, honest(root))
    graded = runner.grade_cells

    def broken(session, job, *more):
        if job.student == "eve":
            raise ZeroDivisionError("no such luck")
        return graded(session, job, *more)

    monkeypatch.setattr(runner, "grade_cells", broken)
    summary = grade(root, LESSON, settings=QUICK)
    assert {s.student: s.points for s in summary.students} == {"ada": 4, "eve": None, "max": 4}
    assert "the grader itself failed (ZeroDivisionError" in summary.students[1].problem
    assert summary.exit_code == 3
    monkeypatch.undo()
    assert grade(root, LESSON, settings=QUICK).students[1].points == 4
