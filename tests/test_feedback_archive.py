"""`course feedback`: archives of collected work that Canvas and Moodle can import."""

import zipfile

import pytest
from grading_course import LESSON, QUICK, RIGHT, hand_in, honest
from test_collect import WORKSHEET, collect, course, enroll, lines, made, packed, work

from course_lib.cli.main import main
from course_lib.grading import driver
from course_lib.grading.class_folder import ClassFolder

__all__ = ["course", "made", "work"]  # fixtures
pytestmark = pytest.mark.usefixtures("warm")


def archived(course, to):
    """Return the pages in an archive, by name."""
    with zipfile.ZipFile(course / "exports" / f"{LESSON}_feedback_{to}.zip") as archive:
        assert len(set(archive.namelist())) == len(archive.namelist())
        return {name: archive.read(name) for name in archive.namelist()}


def page(course, student):
    return (course / "feedback" / student / LESSON / f"{LESSON}.html").read_bytes()


def test_canvas_finds_every_collected_student_by_the_names(course, work, capsys):
    files = {
        f"adalove_4711_90210_{LESSON}.ipynb": work,
        f"knuthdon_LATE_4714_90213_Copy of {LESSON}-1.ipynb": work,
        "kim_107_907_my_7_work.zip": packed({f"x/{LESSON}.ipynb": work}),
        f"bad_108_908_{LESSON}.ipynb": b"{",
    }
    collect(course, files)
    enroll(course, "absent")
    hand_in(course, "by-hand", work)
    driver.grade(course, LESSON, settings=QUICK)
    capsys.readouterr()
    assert main(["feedback", "02", "--to", "canvas"]) == 3
    # From the parts of a name that are numbers, Canvas reads the ids of user and attachment.
    found = archived(course, "canvas")
    pages = {tuple(filter(str.isdigit, name.split("_")))[:2]: found[name] for name in found}
    assert pages == {
        ("4711", "90210"): page(course, "4711"),
        ("4714", "90213"): page(course, "4714"),
        ("107", "907"): page(course, "107"),
    }
    told = lines(capsys)
    assert f"adalove_4711_90210_{LESSON}.html" in told["4711"]
    assert "NO PAGE: not collected from canvas" in told["by-hand"]
    assert "NO PAGE" in told["108"] and "not graded:" not in told["108"]
    assert "nothing submitted" in told["absent"]


@pytest.mark.parametrize("folder", ["file", "file_"])
def test_moodle_finds_every_collected_student_by_the_names(course, work, folder):
    (course / "worksheet.csv").write_text(WORKSHEET)
    files = {
        f"Ada Lovelace_815_assignsubmission_{folder}/homework/{LESSON}.ipynb": work,
        f"Group A-Alan Turing_816_assignsubmission_file_Copy of {LESSON}.ipynb": work,
    }
    collect(course, files, "--roster", "worksheet.csv")
    enroll(course, "absent")
    driver.grade(course, LESSON, settings=QUICK)
    assert main(["feedback", "02", "--to", "moodle"]) == 0
    # Moodle reads the number of the participant, the plugin and the file.
    found = archived(course, "moodle")
    assert {name.partition("_")[2]: found[name] for name in found} == {
        f"815_assignsubmission_file_{LESSON}.html": page(course, "ada@x.org"),
        f"816_assignsubmission_file_{LESSON}.html": page(course, "alan"),
    }


def test_without_an_lms_each_student_has_a_folder(course, work):
    assert main(["feedback", "02"]) == 2
    for student in ("ada", "eve"):
        hand_in(course, student, work)
    driver.grade(course, LESSON, settings=QUICK)
    assert main(["feedback", "02"]) == 0
    with zipfile.ZipFile(course / "exports" / f"{LESSON}_feedback.zip") as archive:
        assert set(archive.namelist()) == {f"{one}/{LESSON}.html" for one in ("ada", "eve")}
        assert archive.read(f"ada/{LESSON}.html") == page(course, "ada")


def test_pages_with_ungraded_answers_are_counted_and_left_out_unless_asked(course, made, capsys):
    hand_in(course, "ada", honest(made, **RIGHT))
    hand_in(course, "eve", honest(made, **RIGHT, why="Because."))
    driver.grade(course, LESSON, settings=QUICK)
    assert main(["feedback", "02"]) == 3
    said = capsys.readouterr().out
    assert "NO PAGE: pending: why" in said and "a person has yet to grade an answer: 1" in said
    archive = course / "exports" / f"{LESSON}_feedback.zip"
    assert zipfile.ZipFile(archive).namelist() == [f"ada/{LESSON}.html"]
    assert main(["feedback", "02", "--pending"]) == 0
    assert len(zipfile.ZipFile(archive).namelist()) == 2


def test_only_pages_with_new_points_are_written_again(course, made, capsys):
    with (course / "nbgrader_config.py").open("a") as config:
        config.write("\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    for student in ("ada", "eve"):
        hand_in(course, student, honest(made, **RIGHT, why="Because."))
    (course / f"submitted/ada/{LESSON}/timestamp.txt").write_text("2026-03-03 12:00:00 UTC")
    with ClassFolder(course).gradebook() as gradebook:
        gradebook.update_or_create_assignment(LESSON, duedate="2026-03-02 12:00:00")
    driver.grade(course, LESSON, settings=QUICK)
    with ClassFolder(course).gradebook() as gradebook:
        grade = gradebook.find_grade("why", LESSON, LESSON, "ada")
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.db.commit()
        before = grade.notebook.late_submission_penalty
    others = course / f"feedback/eve/{LESSON}/{LESSON}.html"
    written = others.stat().st_mtime_ns
    capsys.readouterr()
    assert main(["feedback", "02"]) == 3  # eve's answer waits
    said = capsys.readouterr().out
    assert "written again, since a person gave points or comments: 1" in said
    assert b"1.5 of 2" in page(course, "ada") and others.stat().st_mtime_ns == written
    archive = course / "exports" / f"{LESSON}_feedback.zip"
    assert zipfile.ZipFile(archive).read(f"ada/{LESSON}.html") == page(course, "ada")
    with ClassFolder(course).gradebook() as gradebook:
        (notebook,) = gradebook.find_submission(LESSON, "ada").notebooks
        assert notebook.late_submission_penalty == before + 1.5  # all of the points
    main(["feedback", "02"])
    assert "written again" not in capsys.readouterr().out


def test_what_cannot_be_given_back_is_refused_in_one_sentence(course, work, capsys):
    assert main(["feedback", "02", "--to", "canvas"]) == 2
    assert f"no feedback pages yet: course grade {LESSON}" in capsys.readouterr().err
    collect(course, {f"adalove_4711_90210_{LESSON}.ipynb": work})
    driver.grade(course, LESSON, settings=QUICK)
    capsys.readouterr()
    assert main(["feedback", "02", "--to", "moodle"]) == 2
    error = capsys.readouterr().err
    assert "nothing of" in error and "collected from moodle" in error and error.count("\n") == 1
    assert not (course / "exports").exists()
