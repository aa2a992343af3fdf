"""F: what the world does to the grader: its clock, its memory, its versions, its disk."""

import csv
import itertools
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import driver
import experiment
import psutil
import pytest
from grading_course import CAUSAL, LESSON, RIGHT, UPPER, hand_in, honest, make_course
from waiting import wait_until

from course_lib.grading import run
from course_lib.grading.exports import ExportRequest, export
from course_lib.grading.judging.runner import Runner
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.run import grade

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(experiment.obstacle()), reason=experiment.obstacle() or "none"),
]


@pytest.fixture(scope="module")
def runner():
    """One for all: what a test does to it, it must survive."""
    made = Runner("strict", driver.SETTINGS.limits)
    made.open(LESSON)
    yield made
    made.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A course that nobody handed anything in to."""
    return make_course(tmp_path_factory.mktemp("world"))


@pytest.fixture
def course(empty, runner, tmp_path, monkeypatch):
    """The same, graded with the one runner; and a function to be called before each job."""
    root = tmp_path / "course"
    shutil.copytree(empty, root)

    class Shared:
        before = staticmethod(lambda job: None)

        def run(self, jobs):
            for job in jobs:
                self.before(job)
                yield runner.run(job)

        def close(self):
            pass

    shared = Shared()
    monkeypatch.setattr(run, "executor", lambda *a, **k: shared)
    return root, shared


def answered(root: Path, student: str, causal_mask: str = CAUSAL) -> None:
    hand_in(root, student, honest(root, **RIGHT | {"causal_mask": causal_mask}))


def graded(root: Path, **settings):
    return grade(root, LESSON, settings=replace(driver.SETTINGS, **settings))


def points(summary) -> dict:
    return {s.student: [row.points for row in s.rows] for s in summary.students}


def test_f09_a_clock_that_jumps_changes_no_grade_and_no_duration(course, monkeypatch):
    root, _ = course
    answered(root, "ada")
    answered(root, "bob", UPPER)
    answered(root, "eve", "while True: pass")
    real, jumps = time.time, itertools.cycle([0, 86400, -86400, 3.2e8, -1e9])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    summary = graded(root)
    monkeypatch.undo()
    assert points(summary) == {"ada": [2, 2], "bob": [0, 2], "eve": [0, 2]}
    assert summary.students[2].rows[0].outcome == "timed_out"
    assert all(0 < s.seconds < 80_000 for s in summary.students)  # less than a jump
    assert 0 < summary.seconds < 80_000


def leaves(pid: int) -> list[psutil.Process]:
    """Return the processes below one that have no children, the oldest first."""
    below = psutil.Process(pid).children(recursive=True)
    return sorted((p for p in below if not p.children()), key=lambda p: p.create_time())


SLOW = f"import time\ntime.sleep(1.5)\n{CAUSAL}"


@pytest.mark.parametrize("struck", [1, None])
def test_f12_guests_that_the_host_kills_for_its_memory_cost_no_points(course, runner, struck):
    """The one at work is replaced, and the one made ahead if that is gone, too."""
    root, shared = course
    for student in ("ada", "bob", "cyd"):
        answered(root, student, SLOW if student == "bob" else CAUSAL)
    killed = []

    def strike():
        host = runner.guests._host.process.pid
        wait_until(lambda: len(leaves(host)) >= 2)
        time.sleep(0.2)  # the cell sleeps longer
        for process in leaves(host)[:struck]:
            process.kill()
            killed.append(process)

    def before(job):
        if job.student == "bob":
            threading.Thread(target=strike, daemon=True).start()

    shared.before = before
    assert points(graded(root)) == {"ada": [2, 2], "bob": [2, 2], "cyd": [2, 2]}
    assert len(killed) == (struck or 2)


def test_f21_what_is_not_graded_is_listed_for_machines_and_empty_in_exports(course):
    root, _ = course
    answered(root, "ada")
    hand_in(root, "dan", '{"cells": [')
    summary = graded(root)
    listed = summary.as_dict()
    assert (summary.exit_code, listed["exit_code"]) == (3, 3)
    assert list(listed["blanks"]) == ["dan"] and "ask for it again" in listed["blanks"]["dan"][""]
    outcome = export(root, ExportRequest("csv", partial=True))
    rows = {row[0]: row for row in csv.reader(outcome.output.read_text("utf-8-sig").splitlines())}
    assert rows["ada"][4:8] == ["2", "2", "0", "4"]
    assert rows["dan"][4:8] == ["", "", "", ""] and "ask for it again" in rows["dan"][-4]


def test_f19_many_submissions_leave_no_descriptor_process_thread_or_folder(course, runner):
    root, shared = course
    for number in range(24):
        answered(root, f"s{number:02}")
    seen = []

    def look(job):
        below = psutil.Process(runner.guests._host.process.pid).children(recursive=True)
        files = sum(process.num_fds() for process in (psutil.Process(), *below))
        folders = len(list(runner.guests._host.folder.rglob("*")))
        seen.append((len(below), folders, threading.active_count(), files))

    shared.before = look
    assert graded(root).exit_code == 0
    for early, late in zip(zip(*seen[:8], strict=True), zip(*seen[-8:], strict=True), strict=True):
        assert min(late) <= max(early)  # one left by each would be sixteen more


def test_f08_an_entry_is_on_disk_before_it_gets_its_name_and_the_name_after(tmp_path, monkeypatch):
    calls = []
    fsync, rename = os.fsync, os.replace

    def synced(descriptor):
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def renamed(old, new):
        calls.append((Path(old), Path(new)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    ledger = Ledger(tmp_path / "ledger")
    ledger.put(Entry("ada", "key"))
    (scratch, name) = calls[1]
    assert calls == [scratch, (scratch, name), ledger.folder]
