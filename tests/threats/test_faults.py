"""F: what happens to the grader itself. A second run finishes; nobody is lost, twice or at 0."""

import functools
import os
import pickle
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import driver
import experiment
import pytest
from canned import Canned, grades, kept_class
from grading_course import LESSON, hand_in
from waiting import PATIENCE

from course_lib.grading import run
from course_lib.grading.course import Course
from course_lib.grading.executors import local
from course_lib.grading.executors.local import Processes, Serial
from course_lib.grading.ledger import Ledger
from course_lib.grading.run import grade
from course_lib.grading.sandbox import confinement
from course_lib.workspace.errors import GradingError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(experiment.obstacle()), reason=experiment.obstacle() or "none"),
]
HERE = Path(__file__).parent
SEED = "fault" * 6


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A class that nothing happened to: (its folder before grading, results by key, grades)."""
    folder = tmp_path_factory.mktemp("faults")
    before, results, expected = kept_class(folder, driver.SETTINGS, SEED)
    (folder / "results").write_bytes(pickle.dumps(results))
    return before, folder / "results", expected


@pytest.fixture
def course(kept, tmp_path, monkeypatch):
    """The same class, ungraded, graded from kept results."""
    shutil.copytree(kept[0], tmp_path / "course")
    monkeypatch.setenv("COURSE_CHECK_SEED", SEED)
    canned = Canned(pickle.loads(kept[1].read_bytes()))
    monkeypatch.setattr(run, "executor", canned)
    return tmp_path / "course", canned


def again(root: Path):
    return grade(root, LESSON, settings=driver.SETTINGS)


def start(root: Path, kept, point: str, **env: str) -> subprocess.CompletedProcess:
    command = [sys.executable, HERE / "driver.py", str(root), str(kept[1]), point]
    return subprocess.run(
        command, capture_output=True, env=os.environ | env, timeout=PATIENCE, text=True
    )


def die(root: Path, kept, point: str) -> int:
    """Grade in a fork of this process, which a new one would take seconds to become.

    Returns the signal that ended it, or that it was interrupted by.
    """
    child = os.fork()
    if not child:
        code = 0
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            driver.main(str(root), str(kept[1]), point)
        except KeyboardInterrupt:
            code = signal.SIGINT
        except BaseException:
            code = 99
        os._exit(code)
    return abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def is_as_undisturbed(root: Path, kept) -> None:
    """A second run finishes the work; its result, on disk and in the gradebook, is whole."""
    assert grades(again(root)) == kept[2]
    names = {p.parent.parent.name for p in (root / "autograded").rglob("*.ipynb")}
    assert names == {"ada", "bob", "cyd", "eve"}
    assert {p.parent.parent.name for p in (root / "feedback").rglob("*.html")} == names
    with Course(root).gradebook() as gradebook:
        ids = [s.student.id for s in gradebook.assignment_submissions(LESSON)]
    assert sorted(ids) == sorted(kept[2])


@pytest.mark.parametrize(
    "point",
    [
        "Ledger.put:before:1:9",
        "Publisher._grade:after:2:9",
        "write_atomically:before:1:9",
        "Publisher._write_page:before:2:9",
        "replace:before:4:9",
        "Publisher.publish:before:2:2",
        "Publisher.publish:after:1:15",
    ],
)
def test_f01_f16_a_driver_that_is_killed_or_interrupted_is_finished_by_the_next(
    course, kept, point
):
    root, _ = course
    assert die(root, kept, point) == int(point.rpartition(":")[2])
    is_as_undisturbed(root, kept)


class Dying:
    """In a worker, in the place of its runner: bob takes the process along."""

    def __init__(self, folder, how, settings, channel):
        self.folder, self.how = folder, how
        self.results = pickle.loads((folder / "results").read_bytes())

    def run(self, job):
        mark = self.folder / "died"
        if job.student == "bob" and (self.how == "always" or not mark.exists()):
            mark.touch()
            if self.how == "in the middle of its answer":
                pipe = sys._getframe(1).f_locals["pipe"]
                os.write(pipe.fileno(), struct.pack("!i", 1 << 20) + b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self.results[job.key], student=job.student)

    def close(self):
        pass


@pytest.fixture
def in_workers(course, kept, monkeypatch):
    """The class, to be graded by two workers that die: call it with how they do."""
    root, _ = course
    shutil.copy(kept[1], root.parent / "results")
    pool = Processes(replace(driver.SETTINGS, workers=2), LESSON)
    monkeypatch.setattr(run, "executor", lambda *a: pool)

    def graded(how):
        monkeypatch.setattr(local, "make_runner", functools.partial(Dying, root.parent, how))
        return grades(again(root))

    return graded


@pytest.mark.parametrize("how", ["once", "in the middle of its answer"])
def test_f02_a_lost_worker_costs_nobody_anything(in_workers, kept, tmp_path, how):
    assert in_workers(how) == kept[2]
    assert (tmp_path / "died").exists()


def test_f03_a_poison_submission_is_set_aside_and_the_rest_graded(in_workers, kept):
    found = in_workers("always")
    problem, rows, _ = found.pop("bob")
    assert "--force" in problem and all(points is None for _, points, _ in rows)
    assert found == {name: known for name, known in kept[2].items() if name != "bob"}


def test_f03_workers_that_do_not_come_up_are_no_fault_of_a_submission(course, kept, monkeypatch):
    root, canned = course
    pool = Processes(replace(driver.SETTINGS, workers=2), LESSON)
    monkeypatch.setattr(run, "executor", lambda *a: pool)
    monkeypatch.setattr(local, "_serve", os._exit)
    with pytest.raises(GradingError, match=r"no worker comes up on this machine \(exit code"):
        again(root)
    monkeypatch.setattr(run, "executor", canned)
    assert grades(again(root)) == kept[2]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_f04_a_host_that_is_killed_or_stopped_is_replaced(kept, course, monkeypatch, number):
    root, _ = course
    killed = []

    class Struck(Serial):
        def run(self, jobs):
            for job in jobs:
                if job.student == "bob" and not killed:
                    process = self.runner.guests._host.process
                    threading.Timer(0.1, os.kill, [process.pid, number]).start()
                    killed.append(process.pid)
                    time.sleep(0.2)
                yield self.runner.run(job)

    monkeypatch.setattr(run, "executor", lambda *a: Struck(driver.SETTINGS))
    first = again(root)
    assert killed and all(points != 0 for _, points, _ in grades(first)["ada"][1])
    is_as_undisturbed(root, kept)


def test_f05_a_full_disk_ends_the_run_with_a_cure_and_loses_nothing(course, kept):
    root, _ = course
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root: run as root")
    disk = root / ".course"
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=True)
    try:
        (disk / "filler").write_bytes(bytes(2 * 2**20 - 2 * 4096))
        with pytest.raises(GradingError, match="make room"):
            again(root)
        assert not list(disk.rglob(".*.json.*"))
        (disk / "filler").unlink()
        is_as_undisturbed(root, kept)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_f06_a_locked_gradebook_waits_and_nothing_is_graded_twice(course, kept):
    root, canned = course
    other = sqlite3.connect(root / "gradebook.db", isolation_level=None)

    def lock(job):
        if job.student == "bob":
            other.execute("BEGIN EXCLUSIVE")

    canned.before = lock
    with pytest.raises(GradingError, match="what is graded is kept"):
        again(root)
    other.close()
    canned.before, canned.asked[:] = (lambda job: None), []
    is_as_undisturbed(root, kept)
    assert "bob" not in canned.asked and "ada" not in canned.asked


def test_f07_two_at_once_are_told_apart(course, kept):
    root, canned = course
    seen = []
    canned.before = lambda job: seen or seen.append(start(root, kept, ""))
    assert grades(again(root)) == kept[2]
    assert seen and all(p.returncode != 0 and "by another process" in p.stderr for p in seen)


@pytest.mark.parametrize("damage", ["overwritten", "truncated", "deleted"])
def test_f10_a_damaged_gradebook_is_named_and_a_new_one_is_filled(course, kept, damage):
    root, _ = course
    again(root)
    path = root / "gradebook.db"
    if damage == "overwritten":
        path.write_bytes(b"x" * 4096 + path.read_bytes()[4096:])
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    if damage != "deleted":
        with pytest.raises(GradingError, match="gradebook"):
            again(root)
    path.unlink()
    is_as_undisturbed(root, kept)


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_f11_a_damaged_ledger_entry_regrades_that_one_only(course, kept, damage):
    root, canned = course
    again(root)
    path = Ledger(Course(root).ledger_path(LESSON))._path("ada")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    canned.asked.clear()
    is_as_undisturbed(root, kept)
    assert canned.asked == ["ada"]


def test_f20_manual_grades_stay_when_all_is_graded_again(course, kept):
    root, canned = course
    again(root)
    with Course(root).gradebook() as gradebook:
        found = gradebook.find_grade("causal_mask", LESSON, LESSON, "bob")
        found.manual_score = 1.5
        gradebook.find_comment("why", LESSON, LESSON, "eve").manual_comment = "good"
        gradebook.db.commit()
    canned.asked.clear()
    summary = grade(root, LESSON, settings=replace(driver.SETTINGS, force=True))
    assert sorted(canned.asked) == ["ada", "bob", "cyd", "dan", "eve"]
    bob = next(s for s in summary.students if s.student == "bob")
    assert (bob.rows[0].points, bob.rows[0].by_hand) == (1.5, True)
    with Course(root).gradebook() as gradebook:
        assert gradebook.find_comment("why", LESSON, LESSON, "eve").comment == "good"


def test_f17_an_odd_environment_is_no_obstacle(course, tmp_path):
    """Language C, no home, and a folder for temporary files too long for the paths of sockets."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    odd = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "HOME": "/none", "TMPDIR": str(folder)}
    code = (
        "from driver import *\nimport sys\n"
        "s = grade(Path(sys.argv[1]), '02_masked_softmax', students=['ada'], settings=SETTINGS)\n"
        "print([r.points for s in s.students for r in s.rows if s.student == 'ada'])"
    )
    command = [sys.executable, "-c", code, course[0]]
    env = os.environ | odd | {"PYTHONPATH": str(HERE)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert "[2.0, 2.0]" in done.stdout, done.stderr[-2000:]


def test_f18_without_bubblewrap_strict_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    confinement.obstacles.cache_clear()
    try:
        with pytest.raises(GradingError, match="apt-get install bubblewrap"):
            Serial(driver.SETTINGS).runner.open(LESSON)
    finally:
        confinement.obstacles.cache_clear()


def test_f22_a_file_that_changes_meanwhile_is_graded_as_read_then_anew(course, kept):
    root, canned = course
    right = (root / "submitted/ada" / LESSON / f"{LESSON}.ipynb").read_bytes()
    path = hand_in(root, "bob", right)
    wrong = (kept[0] / "submitted/bob" / LESSON / f"{LESSON}.ipynb").read_bytes()
    canned.before = lambda job: path.write_bytes(wrong) if job.student == "bob" else None
    assert [p for _, p, _ in grades(again(root))["bob"][1]] == [2, 2]
    canned.before = lambda job: None
    is_as_undisturbed(root, kept)
