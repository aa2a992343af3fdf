"""A class graded end to end: a bad notebook affects nobody else, and no fault scores 0."""

import csv
import json
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from grading_course import (
    CAUSAL,
    LENGTH,
    LESSON,
    QUICK,
    RIGHT,
    UPPER,
    cell_of,
    graded_cell,
    hand_in,
    honest,
    make_class,
    make_course,
    nbgrader,
    nbgrader_cell,
    release,
    scores,
    solution_notebook,
)
from live_notebook import plain_text
from nbformat.v4 import new_code_cell
from nbgrader.dbutil import write_alembic_ini
from rich.console import Console

from course_lib.cli import tables
from course_lib.grading import driver, plan
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.class_report import pages
from course_lib.grading.driver import grade
from course_lib.grading.exports import ExportRequest, export
from course_lib.grading.publishing import publish
from course_lib.grading.read_grades import read_lesson
from course_lib.grading.worker import cells, runner

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
GOES_ON = """from course_lib import carry_on
causal_mask = carry_on("causal_mask")
causal_mask.__module__"""


def test_an_exercise_that_was_removed_from_its_lesson_is_still_graded(tmp_path):
    head = "def most_attended(attention_weights):\n    "
    lesson = solution_notebook()
    lesson.cells += [
        nbgrader_cell(
            f"{head}### BEGIN SOLUTION\n    ### END SOLUTION", "most_attended-answer", solution=True
        ),
        graded_cell('check("most_attended")', "most_attended"),
        new_code_cell('from course_lib import carry_on\ncarry_on("most_attended")'),
    ]
    root = make_course(tmp_path, lesson)
    for axis, student in {-1: "right", -2: "wrong"}.items():
        answer = f"{head}return attention_weights.argmax(dim={axis})"
        hand_in(root, student, honest(root, most_attended=answer))
    assert grade(root, LESSON, settings=QUICK).exit_code == 0
    points = scores(root)
    assert points["right", "most_attended"] == 2 > points["wrong", "most_attended"]


@pytest.fixture(scope="module")
def graded(tmp_path_factory, warm):
    """Grade a class of all sorts once and return (root, summary, lines of progress)."""
    root = make_course(tmp_path_factory.mktemp("course"))
    doubled = honest(root)
    doubled.cells += [cell_of(doubled, "causal_mask"), cell_of(doubled, "causal_mask-answer")]
    for student, notebook in {
        "right": honest(root),
        "solution": (root / "solutions" / LESSON / f"{LESSON}.ipynb").read_bytes(),
        "blank": release(root),
        "broken": '{"cells": [',
        "doubled": doubled,
        "goes-on": with_own_cell(root, GOES_ON),
        "ends": with_own_cell(root, "import os\nos._exit(1)"),
        "wrong": honest(root, **RIGHT | {"causal_mask": UPPER, "why": "<b>I see"}),
        "o'brien": honest(root),
    }.items():
        hand_in(root, student, notebook)
    for student, answer in {
        "noisy": THREAD,
        "loops": f"{CAUSAL.splitlines()[0]}\n    while True: pass",
        "dead": "import os\nos._exit(1)",
        "colonless": CAUSAL.replace("device=None):", "device=None)"),
        "misnamed": CAUSAL.replace("causal_mask", "causalMask"),
        "leaves": f"{CAUSAL}\nexit()",
    }.items():
        hand_in(root, student, honest(root, **RIGHT | {"causal_mask": answer}))
    hand_in(root, "renamed", honest(root), "My Homework (1).ipynb")
    (root / "submitted" / "empty" / LESSON).mkdir(parents=True)
    late = root / "submitted" / "o'brien" / LESSON / "timestamp.txt"
    late.write_text("2026-03-04 00:00:00 UTC")
    late.with_name("submission_secret.txt").write_text("as nbgrader's exchange leaves it")
    with ClassFolder(root).gradebook() as gradebook:
        gradebook.update_or_create_assignment(LESSON, duedate="2026-03-02 23:59:00 UTC")
    lines = []
    return root, grade(root, LESSON, progress=lines.append, settings=QUICK), lines


def with_own_cell(root, source):
    """Return work with a cell of its own after the first check."""
    notebook = honest(root)
    index = notebook.cells.index(cell_of(notebook, "causal_mask"))
    notebook.cells.insert(index + 1, new_code_cell(source))
    return notebook


def record(graded, student):
    return next(s for s in graded[1].students if s.student == student)


HONEST = ["right", "solution", "doubled", "renamed", "o'brien", "noisy", "leaves"]


def test_honest_work_gets_every_point(graded):
    for student in [*HONEST, "goes-on", "ends"]:
        found = record(graded, student)
        assert (found.points, found.blanks) == (4, {}), student


def test_the_release_handed_in_blank_scores_0_and_is_graded(graded):
    blank = record(graded, "blank")
    assert [(r.points, r.outcome) for r in blank.rows] == [(0, "not_attempted")] * 2
    assert blank.written == {"why": "left blank"}
    assert blank.blanks == {}


STOPPED = (
    "SyntaxError: expected ':' "
    "(line 1: `def causal_mask(num_queries, num_keys=None, *, device=None)`)"
)
WANTED = "You have `causalMask`; the exercise asks for `causal_mask`."


def test_a_wrong_answer_costs_its_own_exercise_and_says_why(graded):
    for student, outcome, words in (
        ("colonless", "raised", STOPPED),
        ("misnamed", "not_attempted", WANTED),
        ("loops", "timed_out", "did not end within 2 s"),
        ("dead", "crashed", "it ended its process"),
        ("wrong", "incorrect", "upper triangular"),
    ):
        first, second = record(graded, student).rows
        assert (first.points, first.outcome, second.points) == (0, outcome, 2)
        assert words in first.message


def test_what_follows_an_exercise_goes_on_with_the_students_own(graded):
    text = said(graded[0], "goes-on", GOES_ON)
    assert "going on with yours; each exercise is graded by itself" in text
    assert "'__main__'" in text
    assert said(graded[0], "goes-on", "1 / 0") == "", "cells for show are not run"


def test_a_submission_that_cannot_be_graded_is_blank_with_a_reason(graded):
    reasons = {"broken": "is damaged", "empty": "no notebook was submitted"}
    for student, reason in reasons.items():
        assert reason in record(graded, student).problem
    found = [points for (student, _), points in scores(graded[0]).items() if student in reasons]
    assert found == [None] * 6


def test_notices_say_what_was_mended(graded):
    for student, words in {
        "leaves": "(causal_mask-answer) asked the interpreter to end: later cells ran",
        "ends": "cell 6 ended its process (crash): all other cells ran again without it",
        "renamed": "should be called",
        "doubled": "answer cells",
    }.items():
        assert any(words in notice for notice in record(graded, student).notices), student
    assert record(graded, "o'brien").notices == ()  # about files that nbgrader left there


def test_the_summary_is_json_and_every_student_is_announced(graded):
    _, summary, lines = graded
    again = json.loads(json.dumps(summary.as_dict()))
    assert again["exit_code"] == 3 and set(again["blanks"]) == {"broken", "empty"}
    assert len(again["rows"]) == 2 * len(summary.students)
    assert again["waiting"] == {"solution": ["why"], "wrong": ["why"]}
    assert record(graded, "o'brien").late_seconds == 24 * 3600 + 60
    total, last = len(summary.students), lines[-1]
    assert sum(f" of {total} (" in str(step) for step in lines) == total
    assert (last.done, last.total) == (total, total)
    assert last.counts == {"graded": total - 2, "not gradable": 2}


def test_each_submission_has_a_log_that_says_what_happened(graded):
    course = ClassFolder(graded[0])
    log = course.log_path("wrong", LESSON).read_text()
    for words in (
        "guest ready",
        "check causal_mask: incorrect (upper_triangular), 0 of 2",
        "check length_mask: correct, 2 of 2",
    ):
        assert words in log
    assert course.check_seed() not in log
    assert "crash" in course.log_path("dead", LESSON).read_text()
    assert "is damaged" in course.log_path("broken", LESSON).read_text()


@pytest.fixture
def copy(graded, tmp_path):
    """Return a copy of the graded class that may be changed."""
    return shutil.copytree(graded[0], tmp_path / "course")


def grade_one(root, student="right", **options):
    """Grade one student, and return what became of the work."""
    summary = grade(root, LESSON, students=[student], settings=replace(QUICK, **options))
    return next(s for s in summary.students if s.student == student)


def test_a_changed_check_grades_again_once_and_points_fall_only_if_a_person_agrees(
    graded, copy, monkeypatch
):
    judged, judge = [], cells.judge_with_retries

    def fixed(guest, job, name, *arguments, **options):
        judged.append(name)
        report = judge(guest, job, name, *arguments, **options)
        if name == "length_mask":
            return report
        return replace(report, score=0.5 * report.score, outcome="incorrect", mistake="half")

    monkeypatch.setattr(cells, "judge_with_retries", fixed)
    monkeypatch.setattr(plan, "checks_digest", lambda lesson: "fixed")
    assert grade_one(copy, "wrong").points == record(graded, "wrong").points
    right = grade_one(copy)
    assert [(r.points, r.outcome) for r in right.rows] == [(2, "correct"), (2, "correct")]
    (notice,) = right.notices
    assert notice.startswith("causal_mask: graded again, this same work would get 1 instead of 2")
    assert grade_one(copy) == right, "graded once, and the flag stays"
    assert judged == ["causal_mask", "length_mask"] * 2
    right = grade_one(copy, force=True)
    assert (right.points, right.notices) == (3, ())


def test_what_a_person_gave_belongs_to_the_version_it_was_given_for(copy, monkeypatch):
    def by_hand():
        with ClassFolder(copy).gradebook() as gradebook:
            for name in ("length_mask", "why"):
                yield gradebook.find_grade(name, LESSON, LESSON, "right")
            gradebook.db.commit()

    def waiting():
        return [given.needs_manual_grade for given in by_hand()]

    def resubmit(day, **answers):
        path = hand_in(copy, "right", honest(copy, **answers))
        path.with_name("timestamp.txt").write_text(f"2026-02-{day:02} 10:00 UTC")
        page = copy / "feedback" / "right" / LESSON / f"{LESSON}.html"
        return grade_one(copy), " ".join(page.read_text(encoding="utf-8").split())

    def exported():
        export(copy, ExportRequest(lessons=[LESSON], force=True))
        rows = csv.DictReader((copy / "grades.csv").read_text(encoding="utf-8").splitlines())
        row = next(row for row in rows if row["student"] == "right")
        return [row[f"{LESSON}/{name}"] for name in ("length_mask", "written", "total", "reason")]

    resubmit(1, **RIGHT, why="Because.")
    for given in by_hand():
        given.manual_score, given.needs_manual_grade = 0.5, False
    with ClassFolder(copy).gradebook() as gradebook:
        gradebook.find_comment("why", LESSON, LESSON, "right").manual_comment = "Too short."
        gradebook.db.commit()
    with monkeypatch.context() as patch:
        patch.setattr(plan, "checks_digest", lambda lesson: "fixed")
        grade_one(copy)
    assert waiting() == [False, False]
    right, page = resubmit(2, **RIGHT | {"causal_mask": UPPER, "why": "Because."})
    assert waiting() == [False, False] and not right.notices
    assert [row.points for row in right.rows] == [0, 0.5] and right.state == "graded"
    assert "written about" not in page and exported() == ["0.5", "0.5", "1", ""]

    with monkeypatch.context() as patch:
        patch.setattr(driver, "_record_result", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            resubmit(3, **RIGHT, why="It cannot see the future.")
    right, page = resubmit(4, **RIGHT, why="It cannot see the future.")
    assert waiting() == [False, True] and right.waiting == ["why"]
    version = "the version of 2 February 2026, 10:00 UTC"
    told = f"why: a person gave 0.5 points to {version}: grade the new one in formgrader"
    assert right.notices == (told,)
    for shown in (
        f"The 0.5 of 2 points are for {version} and do not count now.",
        f"The comment below was written about {version}.",
        "<strong>2.5 of 6 points</strong> so far",
    ):
        assert shown in page
    why = "why: a person gave 0.5 points to an earlier version; an answer waits for a person: "
    assert exported()[:3] == ["0.5", "", ""] and exported()[3].startswith(why)

    changed = {
        "length_mask": f"# {LENGTH}\n{LENGTH}".replace("\n", "\n# ", 1),
        "causal_mask": CAUSAL,
    }
    right, page = resubmit(5, **changed, why="It cannot see the future.")
    assert waiting() == [True, True] and right.waiting == ["length_mask", "why"]
    assert (right.rows[1].points, right.blanks, right.state) == (None, {}, "waiting")
    assert version in page and "the version of 4 February 2026" in page
    assert exported()[:3] == ["", "", ""]
    summary = read_lesson(ClassFolder(copy), LESSON)
    shown = pages.lesson_page(summary.only(["right"]), {})
    assert pages.facts(summary.only(["right"]), ())["waiting"] == 2 and version in shown
    assert pages.share(right, summary) is None
    console = Console(width=200)
    with console.capture() as printed:
        console.print(tables.summary_table(summary.only(["right"])))
    assert "✎ ?" in printed.get() and "2 answers to grade" in printed.get()

    for given in by_hand():  # a person grades the new version
        given.manual_score, given.needs_manual_grade = 2, False
    right, page = resubmit(6, **changed, why="It cannot see the future.")
    assert waiting() == [False, False] and right.notices == ()
    assert "written about" not in page and exported() == ["2", "2", "6", ""]


def test_a_page_shows_what_a_person_gave_after_it_was_written(copy, monkeypatch):
    def page(student):
        return copy / "feedback" / student / LESSON / f"{LESSON}.html"

    before = {student: page(student).read_bytes() for student in ("right", "blank", "wrong")}
    shutil.rmtree(copy / "submitted" / "wrong")  # the page of work that is no longer there, too
    with ClassFolder(copy).gradebook() as gradebook:
        gradebook.find_grade("why", LESSON, LESSON, "right").manual_score = 1.25
        for student in ("right", "wrong"):
            comment = gradebook.find_comment("length_mask-answer", LESSON, LESSON, student)
            comment.manual_comment = "Elegant."
        gradebook.find_grade("why", LESSON, LESSON, "right").needs_manual_grade = False
        gradebook.update_or_create_student("right", first_name="Ada", last_name="Lovelace")
        gradebook.db.commit()
    with monkeypatch.context() as patch:
        patch.setattr(driver, "executor", None)  # nothing is graded again
        grade(copy, LESSON, settings=QUICK)
        for shown in ("5.25 of 6 points", "Feedback for <strong>Ada Lovelace</strong>"):
            assert shown in page("right").read_text(encoding="utf-8")
        for student in ("right", "wrong"):
            assert "Elegant." in page(student).read_text(encoding="utf-8")
        assert page("blank").read_bytes() == before["blank"]
        with ClassFolder(copy).gradebook() as gradebook:
            given = gradebook.find_grade("why", LESSON, LESSON, "right")
            assert (given.manual_score, given.needs_manual_grade) == (1.25, False)
        patch.setattr(publish, "feedback_page", None)  # no page is made again
        grade(copy, LESSON, settings=QUICK)


def test_an_unreadable_notebook_is_read_again_only_when_it_changes(graded, copy, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(driver, "executor", None)  # it is asked for nothing
        assert grade_one(copy, "broken").problem == record(graded, "broken").problem
    hand_in(copy, "broken", honest(copy))
    assert grade_one(copy, "broken").points == 4


def test_a_new_gradebook_has_the_newest_schema(copy):
    write_alembic_ini(copy / "alembic.ini", f"sqlite:///{copy}/gradebook.db")
    command = [sys.executable, "-m", "alembic", "-c", copy / "alembic.ini", "current"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith(" (head)\n"), done.stdout + done.stderr


def test_exercises_come_and_go_and_what_people_gave_stays(tmp_path):
    (root := tmp_path / "course").mkdir()
    make_course(root)
    hand_in(root, "ada", honest(root, **RIGHT, why="Because."))
    hand_in(root, "bob", honest(root))
    grade(root, LESSON, settings=QUICK)
    with ClassFolder(root).gradebook() as book:
        for name, points in (("why", 1.5), ("length_mask", 0.5)):
            given = book.find_grade(name, LESSON, LESSON, "ada")
            given.manual_score, given.needs_manual_grade = points, False
        book.find_comment("why", LESSON, LESSON, "ada").manual_comment = "Nearly."
        book.find_comment("length_mask-answer", LESSON, LESSON, "ada").manual_comment = "Slow."
        book.db.commit()

    changed = solution_notebook()
    changed.cells = [c for c in changed.cells if not c.id.startswith("length_mask")]
    cube = deepcopy(cell_of(changed, "causal_mask")), deepcopy(changed.cells[3])
    for cell, name in zip(cube, ("combine_masks", "combine_masks-answer"), strict=True):
        cell.metadata.nbgrader.grade_id = cell.id = name
        cell.source = cell.source.replace("causal_mask", "combine_masks")
    changed.cells += reversed(cube)
    (again := tmp_path / "again").mkdir()
    make_course(again, changed)
    for part in ("solutions", "notebooks"):  # as `course build` does, with no word to the gradebook
        shutil.copytree(again / part, root / part, dirs_exist_ok=True)
    ada = grade(root, LESSON, settings=QUICK).students[0]
    assert [row.exercise for row in ada.rows] == ["causal_mask", "combine_masks"]
    assert ada.notices == ()
    with ClassFolder(root).gradebook() as book:
        assert not book.find_grade("why", LESSON, LESSON, "ada").needs_manual_grade
        totals = {s.student.id: s.score for s in book.assignment_submissions(LESSON)}
        assert totals == {"ada": 2 + 1.5, "bob": 2}
        assert book.find_comment("why", LESSON, LESSON, "ada").comment == "Nearly."
    (kept,) = (root / ".course" / "removed").glob(f"{LESSON}_*.csv")
    assert kept.read_text(encoding="utf-8").splitlines()[1:] == [
        "ada,length_mask,0.5,,",
        "ada,length_mask-answer,,,Slow.",
    ]


def test_stock_nbgrader_gives_the_same_grades(tmp_path):
    # test_demo.py tests nbgrader's feedback and its export.
    root = make_course(tmp_path)
    shuffled, goes_on = honest(root), with_own_cell(root, GOES_ON)
    shuffled.cells.append(cell_of(shuffled, "causal_mask"))
    shuffled.cells.reverse()
    goes_on.cells.append(new_code_cell(NOSY, id="nosy"))
    cell_of(goes_on, "why").source = "Because."
    for student, notebook in {
        "blank": release(root),
        "wrong": honest(root, causal_mask=UPPER),
        "shuffled": shuffled,
        "goes-on": goes_on,
    }.items():
        path = hand_in(root, student, notebook)
    assert "Success" in nbgrader(root, "validate", str(path))
    nbgrader(root, "autograde", LESSON)
    stock = scores(root)
    assert stock["goes-on", "causal_mask"] == stock["goes-on", "length_mask"] == 2
    assert stock["shuffled", "causal_mask"] == 2
    assert "course_lib.attention" in said(root, "goes-on", GOES_ON)
    drawn_from = said(root, "goes-on", NOSY)
    assert len(drawn_from) == 66 and ClassFolder(root).check_seed() not in drawn_from
    grade(root, LESSON, settings=replace(QUICK, force=True))
    assert scores(root) == stock


NOSY = "import os\nos.environ.get('COURSE_CHECK_SEED')"


def said(root: Path, student: str, source: str = 'check("causal_mask")') -> str:
    """Return the text that a cell of a graded notebook shows."""
    cells = ClassFolder(root).read_graded(student, LESSON).cells
    outputs = next(cell for cell in cells if cell.source == source).outputs
    return "\n".join(plain_text(o.get("data", {})) or o.get("text", "") for o in outputs)


def test_a_fault_of_the_grader_leaves_one_submission_blank_and_grades_the_rest(
    tmp_path, monkeypatch
):
    root = make_class(tmp_path, ["ada", "eve"])
    (root / "gradebook.db").unlink()  # it is filled from the lesson's source beforehand
    grade_cells = runner.grade_cells

    def broken(guest, job, *more):
        if job.student == "eve":
            raise ZeroDivisionError("no such luck")
        return grade_cells(guest, job, *more)

    monkeypatch.setattr(runner, "grade_cells", broken)
    summary = grade(root, LESSON, settings=QUICK)
    assert [s.points for s in summary.students] == [4, None] and summary.exit_code == 3
    assert "the grader itself failed (ZeroDivisionError" in summary.students[1].problem
    monkeypatch.undo()
    assert grade(root, LESSON, settings=QUICK).students[1].points == 4
