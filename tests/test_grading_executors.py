"""Every executor gives the same grades, and a lost worker costs nobody anything."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import psutil  # noqa: F401  (asks once what the platform is, which a test replaces)
import pytest
from grading_course import LENGTH, LESSON, QUICK, hand_in, honest, make_class
from waiting import wait_until

from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.driver import Settings, grade
from course_lib.grading.executors import dask as on_dask
from course_lib.grading.executors import executor, local
from course_lib.grading.ledger import Ledger
from course_lib.grading.sandbox import confinement
from course_lib.workspace.errors import GradingError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

STUDENTS = ["ada", "bob", "eve", "kim", "lea", "max"]


def points(summary) -> dict:
    return {s.student: [row.points for row in s.rows] for s in summary.students if s.rows}


EXPECTED = {s: [0.0, 0.0] if n % 3 == 2 else [2.0, 2.0] for n, s in enumerate(STUDENTS)}


@pytest.fixture(scope="module")
def cluster():
    """Yield a Dask scheduler with two workers, each a process of its own."""
    distributed = pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True
    ) as running:
        yield running


@pytest.mark.parametrize("name", ["serial", "processes", "dask"])
def test_all_give_the_same_grades(name, request, tmp_path):
    root = make_class(tmp_path, STUDENTS)
    if name == "dask":
        name = request.getfixturevalue("cluster").scheduler_address.replace("tcp", "dask")
    summary = grade(root, LESSON, settings=replace(QUICK, executor=name, workers=2))
    assert points(summary) == EXPECTED and summary.exit_code == 0
    states = {e.state for e in Ledger(ClassFolder(root).ledger_path(LESSON)).entries()}
    assert states == {"published"}


def kill_when_one_landed(root: Path, victim, number=signal.SIGKILL) -> threading.Thread:
    """Send a signal to a process as soon as a submission has landed."""

    def wait():
        wait_until(lambda: any(root.glob("autograded/*/*/*.ipynb")))
        os.kill(victim(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_killed_dask_worker_costs_nobody(cluster, tmp_path):
    root = make_class(tmp_path, STUDENTS)
    thread = kill_when_one_landed(
        root, lambda: next(worker.pid for worker in cluster.workers.values())
    )
    name = cluster.scheduler_address.replace("tcp", "dask")
    summary = grade(root, LESSON, settings=replace(QUICK, executor=name))
    thread.join()
    assert points(summary) == EXPECTED and summary.exit_code == 0


@pytest.fixture
def dask(tmp_path):
    """Yield a function that starts Dask and returns its address and processes."""
    pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    started: list[subprocess.Popen] = []

    def start() -> tuple[str, list[subprocess.Popen]]:
        known = tmp_path / "scheduler.json"
        known.unlink(missing_ok=True)
        place = ["--host", "127.0.0.1", "--dashboard-address", ":0", "--scheduler-file", known]
        _dask("scheduler", *place, "--port", 0)
        _dask("worker", "--scheduler-file", known, "--nthreads", 1, "--no-nanny", "--no-dashboard")
        wait_until(lambda: known.is_file() and known.read_text().rstrip().endswith("}"))
        address = json.loads(known.read_text())["address"]
        return address.replace("tcp://", "dask://"), started[-2:]

    def _dask(kind: str, *arguments) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, arguments)]
        with (tmp_path / f"{kind}.log").open("w") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path))

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_scheduler_ends_the_run_with_a_cure_and_the_next_run_finishes(
    dask, tmp_path, monkeypatch, number
):
    monkeypatch.setattr(on_dask, "_ANSWER_SECONDS", 3)
    name, (scheduler, _) = dask()
    root = make_class(tmp_path / "course", STUDENTS)
    thread = kill_when_one_landed(root, lambda: scheduler.pid, number)
    cure = r"was lost \(.*\): start it again, then run the same command again; what is graded is"
    with pytest.raises(GradingError, match=f"^the Dask scheduler at {name[7:]} {cure} kept$"):
        grade(root, LESSON, settings=replace(QUICK, executor=name))
    thread.join()
    kept = {path: path.stat().st_mtime_ns for path in (root / "autograded").glob("*/*/*.ipynb")}
    assert 1 <= len(kept) < len(STUDENTS)
    summary = grade(root, LESSON, settings=QUICK)
    assert points(summary) == EXPECTED and summary.exit_code == 0
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


def test_a_scheduler_without_workers_is_not_waited_for(dask, tmp_path, monkeypatch):
    monkeypatch.setattr(on_dask, "_ALONE_SECONDS", 1)
    monkeypatch.setattr(on_dask, "_LOOK_SECONDS", 0.2)
    name, (_, only_worker) = dask()
    root = make_class(tmp_path / "course", STUDENTS)
    only_worker.kill()
    only_worker.wait()
    with pytest.raises(GradingError, match=r"no worker for 1 s: start some with `dask worker "):
        grade(root, LESSON, settings=replace(QUICK, executor=name))


def test_f14_a_worker_with_other_versions_is_refused_by_name(cluster, tmp_path, monkeypatch):
    root = make_class(tmp_path, STUDENTS)
    wanted = on_dask.versions(LESSON) | {"torch": "9.0"}
    monkeypatch.setattr(on_dask, "versions", lambda lesson: wanted)
    name = cluster.scheduler_address.replace("tcp", "dask")
    words = r"the Dask worker on .* has torch [\d.]+ instead of 9\.0: install there what"
    with pytest.raises(GradingError, match=words):
        grade(root, LESSON, settings=replace(QUICK, executor=name))
    assert not (root / "autograded").exists()


def test_parts_graded_elsewhere_land_without_being_run_again(tmp_path, monkeypatch):
    first, second = (make_class(tmp_path / part, STUDENTS) for part in "12")
    monkeypatch.setenv("COURSE_CHECK_SEED", "shared")
    one = grade(first, LESSON, settings=QUICK, students=STUDENTS[::2])
    two = grade(second, LESSON, settings=QUICK, students=STUDENTS[1::2])
    assert {**points(one), **points(two)} == EXPECTED
    left = {s.student: s.reason for s in one.students if not s.rows}
    assert left.keys() == {*STUDENTS[1::2]}
    assert all("collected, not graded yet" in reason for reason in left.values())
    for part in ("autograded", ".course/ledger"):
        shutil.copytree(second / part, first / part, dirs_exist_ok=True)
    assert points(grade(first, LESSON, settings=replace(QUICK, executor="none"))) == EXPECTED


def test_guests_that_are_not_forked_give_the_same_grades(tmp_path, monkeypatch):
    # This is what runs where the system cannot fork: on macOS and Windows.
    monkeypatch.setattr(sys, "platform", "darwin")
    confinement.obstacles.cache_clear()
    root = make_class(tmp_path, STUDENTS[1:3])
    hand_in(root, "zed", honest(root, causal_mask="import os\nos._exit(1)", length_mask=LENGTH))
    slowly = replace(QUICK, limits=replace(QUICK.limits, cell_seconds=60.0))  # they import torch
    summary = grade(root, LESSON, settings=slowly)
    confinement.obstacles.cache_clear()
    assert [[row.points for row in s.rows] for s in summary.students] == [[2, 2], [2, 2], [0, 2]]
    assert summary.students[2].rows[0].outcome == "crashed"


def test_a_scheduler_or_dask_that_cannot_be_had_is_explained(monkeypatch):
    # test_cli_mistakes.py tests other names of executors.
    pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
    monkeypatch.setattr(on_dask, "_CONNECT_SECONDS", 1)
    with pytest.raises(GradingError, match=r"no Dask scheduler answers at 127\.0\.0\.1:1"):
        executor(Settings("dask://127.0.0.1:1"), LESSON)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(GradingError, match=r'pip install "attention-course\[scale\]"'):
        executor(Settings("dask://127.0.0.1:1"), LESSON)


def test_ctrl_c_is_heard_after_a_worker_has_begun():
    done = []

    def begin():
        with local.defer_sigint():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("begun")

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert done == ["begun"]


def test_a_worker_keeps_no_secret_and_is_deaf_to_ctrl_c():
    code = (
        "import os, signal\n"
        "from course_lib.grading.executors import local\n"
        "local.prepare_worker()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print([name in os.environ for name in ('DATABASE_URL', 'PGPASSWORD', 'HOME')])"
    )
    secrets = {"DATABASE_URL": "postgresql://me:sesame@host/db", "PGPASSWORD": "sesame"}
    environ = {**os.environ, **secrets, "HOME": "/root"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert done.stdout == "[False, False, True]\n", done.stderr
