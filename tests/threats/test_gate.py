"""S: unexpected names, stamps, seeds and files lose no student and affect nobody else."""

import contextlib
import csv
import io
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from canned import Canned, grades
from grading_course import LESSON, QUICK, hand_in, honest
from rich.console import Console

from course_lib.checks.judge.prepare import prepare
from course_lib.cli.options import progress
from course_lib.cli.tables import summary_table
from course_lib.exercises import find
from course_lib.grading import driver
from course_lib.grading.class_folder import ClassFolder, secret_seed
from course_lib.grading.driver import grade
from course_lib.grading.exports import ExportRequest, export
from course_lib.grading.intake.timestamps import read_stamp
from course_lib.workspace.errors import GradingError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of bytes: run it on Linux")


def graded(root: Path, kept, *others: str) -> dict:
    """Grade, check that the class has its usual records, and return those of the others."""
    found = grades(grade(root, LESSON, settings=QUICK))
    more = {name: found.pop(name) for name in others}
    assert found == kept[2]
    return more


def raw(folder: Path, name: bytes) -> Path:
    return Path(os.fsdecode(os.fsencode(folder) + b"/" + name))


def test_s04_s26_names_of_any_bytes_are_announced_and_the_rest_is_graded(course, kept, capsys):
    submitted, turned = course / "submitted", "bob\u202egpj.exe"
    shutil.copytree(submitted / "ada", raw(submitted, b"J\xf6rg"))
    shutil.copytree(submitted / "bob", submitted / turned)
    raw(submitted / "ada" / LESSON, b"n\xf6tes\n\x1b[31m.txt").touch()
    for _ in range(2):  # the ledger knows the name then
        problem, rows, _ = graded(course, kept, r"J\xf6rg", turned)[r"J\xf6rg"]
        assert "not UTF-8: rename it" in problem
        assert all(points is None for _, points, _ in rows)
    summary = grade(course, LESSON, settings=QUICK, progress=progress(False))
    (notice,) = next(s.notices for s in summary.students if s.student == "ada")
    assert notice == r"other files not looked at: n\xf6tes .txt"
    shown = io.StringIO()
    Console(file=shown, width=200).print(summary_table(summary))
    for text in (capsys.readouterr().err, shown.getvalue()):
        assert r"J\xf6rg" in text and "gpj.exe" in text and "\u202e" not in text
    raw(submitted, b"J\xf6rg").rename(submitted / "Jörg")
    again = graded(course, kept, r"J\xf6rg", "Jörg", turned)
    assert (again["Jörg"][1], again[turned][1]) == (kept[2]["ada"][1], kept[2]["bob"][1])


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", b"9" * 500_000, b"soon", b"\xff"])
def test_s18_a_timestamp_that_is_none_is_on_time_with_a_notice(course, kept, kind):
    stamp = course / "submitted" / "bob" / LESSON / "timestamp.txt"
    if kind == "fifo":
        os.mkfifo(stamp)
    elif kind == "folder":
        stamp.mkdir()
    elif kind == "link":
        stamp.symlink_to("/dev/zero")
    else:
        stamp.write_bytes(kind)
    summary = grade(course, LESSON, settings=QUICK)
    assert grades(summary) == kept[2]
    bob = next(s for s in summary.students if s.student == "bob")
    assert bob.notices == ("timestamp.txt holds no date: taken as handed in on time",)
    assert bob.late_seconds == 0
    assert not (course / "autograded" / "bob" / LESSON / "timestamp.txt").exists()


TIMES = {
    "2026-03-03 08:30:00.5 UTC": "2026-03-03 08:30:00.500000",
    "2026-03-03 08:30 +0900": "2026-03-02 23:30:00",
    "2026-03-03 08:30 UTC+3": "2026-03-03 05:30:00",
    "2026-07-03 08:30 Europe/Berlin": "2026-07-03 06:30:00",
    "2026-03-03 17:30 EST": "2026-03-03 22:30:00",
    "2026-03-03T08:30:00.123456789 Z": "2026-03-03 08:30:00.123456",
    "Tue Mar 03 2026 08:30:00 GMT+0900 (Japan Standard Time)": "holds no date",
    "3 Mar 2026 5:30 pm EST": "holds no date",
    "2026-03-03 08:30:00.0 JST": "the time zone JST",
    "2026-03-03 08:30 JST+9": "the time zone JST",
    "02/03/2026 08:30 UTC": "holds no date",
}


@pytest.mark.parametrize("text", TIMES)
def test_u07_a_time_is_read_for_certain_or_refused_with_a_notice(tmp_path, text):
    (tmp_path / "timestamp.txt").write_text(text)
    stamp = read_stamp(tmp_path)
    if stamp.time is None:
        assert TIMES[text] in stamp.problem and "taken as handed in on time" in stamp.problem
    else:
        assert str(stamp.time) == TIMES[text]


def test_u06_lateness_is_current_after_every_run_without_grading_again(course):
    stamp = course / "submitted" / "ada" / LESSON / "timestamp.txt"
    stamp.write_text("2026-03-02 UTC")
    page = course / "feedback" / "ada" / LESSON / f"{LESSON}.html"
    others = course / "feedback" / "bob" / LESSON / f"{LESSON}.html"
    config = course / "nbgrader_config.py"

    def ada(days: float, penalty: float, students=None) -> None:
        summary = grade(course, LESSON, settings=QUICK, students=students)
        record = next(one for one in summary.students if one.student == "ada")
        assert (record.late_seconds / 86_400, record.late_penalty) == (days, penalty)
        assert f"<strong>{record.points - penalty:g} of 6 points</strong>" in page.read_text()
        whole = export(course, ExportRequest(lessons=[LESSON], partial=True, force=True))
        rows = csv.DictReader(whole.output.read_text("utf-8").splitlines())
        row = next(row for row in rows if row["student"] == "ada")
        assert float(row[f"{LESSON}/late_seconds"]) == days * 86_400
        assert float(row[f"{LESSON}/total"]) == record.points - penalty

    ada(0, 0)
    asked, shown = list(driver.executor.asked), others.stat()
    with ClassFolder(course).gradebook() as gradebook:
        gradebook.update_or_create_assignment(LESSON, duedate="2026-03-01")
    ada(1, 0)
    config.write_text(f"{config.read_text()}\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    ada(1, 4, students=["bob"])
    with ClassFolder(course).gradebook() as gradebook:
        gradebook.grant_extension(LESSON, "ada", days=1)
    ada(0, 0)
    stamp.write_text("2026-03-04 UTC")
    ada(2, 4)
    copied = course / "autograded/ada" / LESSON / "timestamp.txt"
    assert copied.read_text() == "2026-03-04 UTC\n"
    stamp.unlink()
    ada(0, 0)
    assert (driver.executor.asked, others.stat()) == (asked, shown)


def test_s19_a_seed_that_is_empty_or_damaged_is_refused(course, monkeypatch):
    monkeypatch.delenv("COURSE_CHECK_SEED")
    path = course / ".course" / "check_seed"
    path.parent.mkdir(exist_ok=True)
    for data in (b"", b"\n", b"\xff\xfe\x00", b"a\x00b", b"x" * 5_000):
        path.write_bytes(data)
        with pytest.raises(GradingError, match=r"check_seed.*; put the copy of it back"):
            grade(course, LESSON, settings=QUICK)
        assert path.read_bytes() == data
    assert not (course / "autograded").exists()


def test_s19_a_seed_is_made_once_and_whole(tmp_path, monkeypatch):
    path = tmp_path / "check_seed"

    def stopped(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stopped)
        with pytest.raises(KeyboardInterrupt):
            secret_seed(path)
    assert not path.exists()
    seed = secret_seed(path)
    assert len(seed) == 32 and path.stat().st_mode & 0o777 == 0o600
    assert secret_seed(path) == seed
    assert {p.name for p in tmp_path.iterdir()} == {"check_seed"}


def test_s20_the_inputs_of_a_submission_are_its_own_and_stay(course, kept, monkeypatch):
    # A printed table of inputs and results is of no use to another student or tomorrow.
    jobs = []
    monkeypatch.setattr(driver, "executor", Canned(kept[1], before=jobs.append))
    shutil.copytree(course / "submitted" / "ada", course / "submitted" / "twin")
    for _ in range(2):
        grade(course, LESSON, settings=replace(QUICK, force=True))
    hand_in(course, "ada", honest(course, why="Another word."))
    with contextlib.suppress(KeyError):  # this work was never graded, so no result is kept
        grade(course, LESSON, settings=QUICK)
    of = {name: [job.seed for job in jobs if job.student == name] for name in ("ada", "twin")}
    first, again, changed = of["ada"]
    assert first == again != changed
    assert of["twin"][0] == of["twin"][1] not in (first, changed)
    drawn = [prepare(find("masked_softmax"), seed) for seed in (first, changed)]
    one, other = (repr([probe.args for probe, _ in probes]) for probes in drawn)
    assert one != other
