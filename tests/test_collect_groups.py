"""One hand-in of a group counts for all of its members."""

import json
import zipfile

import pytest
from grading_course import LESSON, QUICK, honest, release
from test_collect import collect, collected, course, lines, made, notebook, stored, work

from course_lib.cli.main import main
from course_lib.grading import driver

__all__ = ["course", "made", "work"]  # fixtures
pytestmark = pytest.mark.usefixtures("warm")
CANVAS = """Student,ID,SIS Login ID,Section
"Doe, Ada",1001,ada,A
"Roe, Bob",1002,bob,A
"Upper, Eve",1003,eve,A
"Low, Joe",1004,joe,A
"""
GROUPS = """name,canvas_user_id,user_id,login_id,sections,group_name,canvas_group_id,group_id
Ada Doe,1001,,ada,A,Blue,7,
Bob Roe,1002,,bob,A,Blue,7,
Eve Upper,1003,,eve,A,<b>Red</b>,8,
Joe Low,1004,,joe,A,,,
"""


@pytest.fixture
def grouped(course):
    (course / "canvas.csv").write_text(CANVAS)
    (course / "groups.csv").write_text(GROUPS)
    return course


def test_each_member_gets_the_grade_the_page_and_a_line_about_it(grouped, work, capsys):
    files = {f"doeada_1001_11_{LESSON}.ipynb": work, f"uppereve_1003_12_{LESSON}.ipynb": work}
    options = ["--roster", "canvas.csv", "--groups", "groups.csv"]
    assert collect(grouped, files, *options) == 3
    assert collected(grouped) == {"1001", "1002", "1003"}
    said = lines(capsys)
    assert "handed in by 1001 for the group Blue" in said["1002"] and "MISSING" in said["1004"]
    assert "for the group Blue" in said["1001"] and "handed in by" not in said["1001"]
    summary = driver.grade(grouped, LESSON, settings=QUICK)
    assert summary.of("1001").points == summary.of("1002").points == summary.max_points
    pages = [
        (grouped / "feedback" / one / LESSON / f"{LESSON}.html").read_text()
        for one in ("1001", "1002", "1003")
    ]
    assert all("1001 handed this in for the group Blue. It counts for" in one for one in pages[:2])
    assert "&lt;b&gt;Red&lt;/b&gt;" in pages[2]
    capsys.readouterr()
    assert main(["feedback", "02", "--to", "canvas"]) == 3
    assert "1001 gets the page of the group Blue" in lines(capsys)["1002"]
    archive = grouped / "exports" / f"{LESSON}_feedback_canvas.zip"
    assert len(zipfile.ZipFile(archive).namelist()) == 2
    collect(grouped, files, *options)
    assert "unchanged" in lines(capsys)["1002"]


def test_the_newest_hand_in_of_a_group_counts(grouped, made, work, capsys):
    newer = json.dumps(honest(made, length_mask="x = 1")).encode()
    files = {f"doeada_1001_11_{LESSON}.ipynb": work, f"roebob_LATE_1002_12_{LESSON}.ipynb": newer}
    assert collect(grouped, files, "--groups", "groups.csv") == 3
    assert collected(grouped) == {"1001", "1002"}  # eve is MISSING
    assert notebook(grouped, "1001").read_bytes() == newer
    assert stored(grouped)["students"]["1001"]["late"]
    assert "handed in by 1002" in lines(capsys)["1001"]


def test_an_untouched_notebook_of_a_member_does_not_replace_the_groups_answers(
    grouped, made, work, capsys
):
    untouched = json.dumps(release(made)).encode()
    files = {f"doeada_1001_11_{LESSON}.ipynb": work, f"roebob_1002_12_{LESSON}.ipynb": untouched}
    options = ["--roster", "canvas.csv", "--groups", "groups.csv"]
    assert collect(grouped, files, *options) == 3
    assert notebook(grouped, "1002").read_bytes() == work
    assert "handed in by 1001 for the group Blue" in lines(capsys)["1002"]


def test_a_member_whom_nobody_knows_is_asked_about(grouped, work, capsys):
    (grouped / "own.csv").write_text("student,group\n1001,1\nbbo,1\njeo,2\n")
    options = ["--roster", "canvas.csv", "--groups", "own.csv"]
    assert collect(grouped, {f"doeada_1001_11_{LESSON}.ipynb": work}, *options) == 3
    said = lines(capsys)
    assert "in neither the roster nor the download: is the id correct?" in said["bbo"]
    assert "MISSING" in said["jeo"] and "is the id correct?" in said["jeo"]
    assert "is the id correct" not in said["1001"]


def test_groups_may_be_a_table_of_ones_own_for_folders(grouped, work, capsys):
    (grouped / "own.csv").write_text("student,group\nada,1\nBOB,1\njoe,2\n")
    files = {f"{one}/{LESSON}.ipynb": work for one in ("bob", "zoe")}
    assert collect(grouped, files, "--roster", "canvas.csv", "--groups", "own.csv") == 3
    assert collected(grouped) == {"ada", "bob", "zoe"}
    (grouped / "own.csv").write_text("student,team\nada,1\n")
    assert collect(grouped, files, "--groups", "own.csv") == 2
    assert "needs a column group or group_name" in capsys.readouterr().err
    (grouped / "own.csv").write_text("student,group\nada,1\nada,2\n")
    assert collect(grouped, files, "--groups", "own.csv") == 2
    assert "has two groups for 'ada'" in capsys.readouterr().err
