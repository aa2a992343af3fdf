"""F: faults of the grader. A second run finishes, and no student is lost, doubled or scored 0."""

import contextlib
import functools
import itertools
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import experiment
import psutil
import pytest
from canned import grades
from grading_course import CAUSAL, LESSON, QUICK, RIGHT, hand_in, honest, scores
from nbgrader.api import InvalidEntry
from waiting import PATIENCE, wait_until

from course_lib.cli import main as cli
from course_lib.cli.failures import explained
from course_lib.grading import driver, ledger
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.driver import grade
from course_lib.grading.executors import local
from course_lib.grading.executors.local import Processes
from course_lib.grading.exports import ExportRequest, export
from course_lib.grading.jobs import failed
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.publishing import publish
from course_lib.grading.sandbox.hosts import Host
from course_lib.grading.worker.runner import Runner
from course_lib.workspace.errors import GradingError

pytestmark = experiment.needs_strict


@pytest.fixture(scope="module")
def runner():
    """Yield one runner for all tests, which must survive what each does to it."""
    made = Runner("strict", QUICK.limits)
    made.open(LESSON)
    yield made
    made.close()


@pytest.fixture
def real(course, runner):
    driver.executor.one = runner.run
    return course


def again(root: Path):
    return grade(root, LESSON, settings=QUICK)


def is_as_undisturbed(root: Path, kept) -> None:
    """Check that a second run finishes the work, on disk and in the gradebook."""
    assert grades(again(root)) == kept[2]
    names = {p.parent.parent.name for p in (root / "autograded").rglob("*.ipynb")}
    assert names == {"ada", "bob", "cyd", "eve"}
    assert {p.parent.parent.name for p in (root / "feedback").rglob("*.html")} == names
    assert {student for student, _ in scores(root)} == set(kept[2])


def in_a_fork(work) -> int:
    """Do some work in a fork of this process; return the signal that ended it, or its exit code.

    A new process would take seconds to import everything.
    """
    child = os.fork()
    if not child:
        code = 99
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            work()
        except KeyboardInterrupt:
            code = signal.SIGINT
        except GradingError as error:
            code = 3 if "by another process" in str(error) else 99
        finally:
            os._exit(code)
    return abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def struck(function, when: str, number: int, sent: int):
    """Return the function so that its call of this number sends a signal to its process."""
    calls = itertools.count(1)

    def wrapped(*args, **kwargs):
        hit = next(calls) == number
        if hit and when == "before":
            os.kill(os.getpid(), sent)
        result = function(*args, **kwargs)
        if hit and when == "after":
            os.kill(os.getpid(), sent)
        return result

    return wrapped


@pytest.mark.parametrize(
    ("owner", "name", "when", "number", "sent"),
    [
        (ledger.Ledger, "put", "before", 1, signal.SIGKILL),
        (publish.Publisher, "_grade", "after", 2, signal.SIGKILL),
        (publish, "write_atomically", "before", 1, signal.SIGKILL),
        (publish.Publisher, "_write_page", "before", 2, signal.SIGKILL),
        (os, "replace", "before", 4, signal.SIGKILL),
        (publish.Publisher, "publish", "before", 2, signal.SIGINT),
        (publish.Publisher, "publish", "after", 1, signal.SIGTERM),
    ],
)
def test_f01_f16_a_driver_that_is_killed_or_interrupted_is_finished_by_the_next(
    course, kept, owner, name, when, number, sent
):
    def work():
        setattr(owner, name, struck(getattr(owner, name), when, number, sent))
        again(course)

    assert in_a_fork(work) == sent
    is_as_undisturbed(course, kept)


class Dying:
    """In a worker, in the place of its runner: bob takes the process along."""

    def __init__(self, folder, settings, channel):
        self.folder, self.results = folder, pickle.loads((folder / "results").read_bytes())

    def run(self, job):
        if job.student == "bob":
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self.results[job.key], student=job.student)

    def close(self):
        pass


def test_f03_a_poison_submission_is_set_aside_until_forced_and_the_rest_graded(
    course, kept, monkeypatch
):
    (course.parent / "results").write_bytes(pickle.dumps(kept[1]))
    canned, pool = driver.executor, Processes(replace(QUICK, workers=2), LESSON)
    monkeypatch.setattr(driver, "executor", lambda *a: pool)
    monkeypatch.setattr(local, "make_runner", functools.partial(Dying, course.parent))
    found = grades(again(course))
    problem, rows, _ = found.pop("bob")
    assert "--force" in problem and all(points is None for _, points, _ in rows)
    assert found == {name: known for name, known in kept[2].items() if name != "bob"}
    monkeypatch.setattr(driver, "executor", canned)  # it could grade the work now
    assert "--force" in grades(again(course))["bob"][0]
    forced = grade(course, LESSON, settings=replace(QUICK, force=True))
    assert grades(forced) == kept[2]


class Felled(Dying):
    """In a worker, in the place of its runner: what it grades is killed from outside for a while.

    The fork server is killed five times under ada, her worker twice, and bob raises an error.
    """

    def run(self, job):
        deaths = self.folder / job.student
        number = len(deaths.read_text()) if deaths.exists() else 0
        if job.student == "ada" and number < 7:
            deaths.write_text("x" * (number + 1))
            parent = psutil.Process().parent()  # another process if the fork server has just ended
            has_server = parent is not None and "forkserver" in " ".join(parent.cmdline())
            os.kill(parent.pid if has_server and number < 5 else os.getpid(), signal.SIGKILL)
            time.sleep(PATIENCE)  # it ends with the fork server
        if job.student == "bob":
            raise OSError(28, "No space left on device")
        return replace(self.results[job.key], student=job.student)


def test_v15_killed_fork_servers_and_workers_set_nobody_aside(course, kept, monkeypatch):
    (course.parent / "results").write_bytes(pickle.dumps(kept[1]))
    canned, pool = driver.executor, Processes(replace(QUICK, workers=2), LESSON)
    monkeypatch.setattr(driver, "executor", lambda *a: pool)
    monkeypatch.setattr(local, "make_runner", functools.partial(Felled, course.parent))
    found = grades(again(course))
    assert (course.parent / "ada").read_text() == "x" * 7
    assert "a disk is full" in found.pop("bob")[0], "one error ends the run for nobody"
    assert found == {name: known for name, known in kept[2].items() if name != "bob"}
    monkeypatch.setattr(driver, "executor", canned)
    assert grades(again(course)) == kept[2]


def test_f03_workers_that_do_not_come_up_are_no_fault_of_a_submission(course, kept, monkeypatch):
    canned = driver.executor
    pool = Processes(replace(QUICK, workers=2), LESSON)
    monkeypatch.setattr(driver, "executor", lambda *a: pool)
    monkeypatch.setattr(local, "_serve", os._exit)
    with pytest.raises(GradingError, match=r"no worker comes up on this machine \(exit code"):
        again(course)
    monkeypatch.setattr(driver, "executor", canned)
    assert grades(again(course)) == kept[2]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_f04_a_host_that_is_killed_or_stopped_is_replaced(real, kept, runner, number):
    killed = []

    def before(job):
        if job.student == "bob":
            killed.append(runner.guests._host.process.pid)
            threading.Timer(0.1, os.kill, [killed[0], number]).start()
            time.sleep(0.2)

    driver.executor.before = before
    is_as_undisturbed(real, kept)
    assert killed


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int, room: int):
    """Mount a disk on a folder and fill it up to `room` bytes; yield a function that frees it."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root: run as root")
    there = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder]
    subprocess.run(["mount", *options], check=True)
    try:
        for name, data in there.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        filler = folder / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(folder).free - room))
        yield filler.unlink
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_f05_a_full_disk_ends_the_run_with_a_cure_and_loses_nothing(course, kept):
    disk = course / ".course"
    disk.mkdir(exist_ok=True)
    with small_disk(disk, 2, room=8192) as make_room:
        with pytest.raises(GradingError, match="make room"):
            again(course)
        assert not list(disk.rglob(".*.json.*"))
        make_room()
        is_as_undisturbed(course, kept)


@pytest.mark.parametrize("room", [0, 60_000])
def test_v13_a_class_on_a_full_disk_is_told_so(course, kept, room, monkeypatch, capsys):
    with small_disk(course, 8, room) as make_room:
        with monkeypatch.context() as patch:
            patch.chdir(course)
            assert cli.main(["grade", LESSON]) == 1
        said = capsys.readouterr().err
        assert "make room" in said and str(course) in said and "Traceback" not in said
        assert "error in the course itself" not in said
        make_room()
        is_as_undisturbed(course, kept)


def test_v13_an_error_that_nbgrader_raises_is_not_printed_by_its_log(course, caplog):
    with quiet_nbgrader(), ClassFolder(course).gradebook() as gradebook:
        gradebook.add_student("zoe")
        with pytest.raises(InvalidEntry):
            gradebook.add_student("zoe")
    assert not caplog.records


def test_v13_a_full_folder_for_temporary_files_is_named_and_nothing_is_left_in_it(
    tmp_path, monkeypatch
):
    with small_disk(tmp_path, 1, room=100_000):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(OSError, match="No space left") as full:
            Host("strict", QUICK.limits, LESSON)
        assert [path.name for path in tmp_path.iterdir()] == ["filler"]
        assert str(tmp_path) in (said := explained(full.value)) and "make room" in said
        filler = (tmp_path / "filler").open("ab")
        with filler, contextlib.suppress(OSError):
            filler.write(bytes(200_000))
        assert failed(full.value).endswith("make room; the next run tries again")
        assert "No log could be written" in explained(RuntimeError("a bug"))


def test_f06_a_locked_gradebook_waits_and_nothing_is_graded_twice(course, kept):
    canned = driver.executor
    other = sqlite3.connect(course / "gradebook.db", isolation_level=None)

    def lock(job):
        if job.student == "bob":
            other.execute("BEGIN EXCLUSIVE")

    canned.before = lock
    with pytest.raises(GradingError, match="what is graded is kept"):
        again(course)
    other.close()
    canned.before, canned.asked[:] = (lambda job: None), []
    is_as_undisturbed(course, kept)
    assert "bob" not in canned.asked and "ada" not in canned.asked


def test_f07_two_at_once_are_told_apart(course, kept):
    canned = driver.executor
    seen = []
    canned.before = lambda job: seen.append(in_a_fork(lambda: again(course)))
    assert grades(again(course)) == kept[2]
    assert set(seen) == {3}


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
    folder = tmp_path / "ledger"
    Ledger(folder).put(Entry("ada", "key"))
    (scratch, name) = calls[1]
    assert calls == [scratch, (scratch, name), folder]


def test_f09_a_clock_that_jumps_changes_no_grade_and_no_duration(real, kept, monkeypatch):
    now, jumps = time.time, itertools.cycle([0, 86400, -86400, 3.2e8, -1e9])
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    summary = again(real)
    monkeypatch.undo()
    assert grades(summary) == kept[2]
    assert all(s.problem or 0 < s.seconds < 80_000 for s in summary.students)  # less than a jump
    assert 0 < summary.seconds < 80_000


@pytest.mark.parametrize("damage", ["overwritten", "truncated", "deleted"])
def test_f10_a_damaged_gradebook_is_named_and_a_new_one_is_filled(course, kept, damage):
    again(course)
    path = course / "gradebook.db"
    whole = path.read_bytes()
    path.unlink()
    if damage != "deleted":
        path.write_bytes(whole[:5000] if damage == "truncated" else b"x" * 4096 + whole[4096:])
        with pytest.raises(GradingError, match="gradebook"):
            again(course)
        path.unlink()
    is_as_undisturbed(course, kept)


def test_f11_a_damaged_ledger_entry_or_graded_notebook_regrades_that_one_only(course, kept):
    again(course)
    entry = Ledger(ClassFolder(course).ledger_path(LESSON))._path("ada")
    for path in (entry, ClassFolder(course).autograded_notebook("ada", LESSON)):
        path.write_bytes(path.read_bytes()[:-100])
        driver.executor.asked.clear()
        is_as_undisturbed(course, kept)
        assert driver.executor.asked == ["ada"]


def below(runner) -> list[psutil.Process]:
    """Return the processes below the runner's host, the oldest first."""
    host = psutil.Process(runner.guests._host.process.pid)
    return sorted(host.children(recursive=True), key=lambda process: process.create_time())


def test_f12_guests_that_the_host_kills_for_its_memory_cost_no_points(real, runner):
    # The guest at work is replaced, and so is the one that was made ahead.
    slow = f"import time\ntime.sleep(1.5)\n{CAUSAL}"
    hand_in(real, "bob", honest(real, **RIGHT | {"causal_mask": slow}))
    killed = []

    def strike():
        wait_until(lambda: len([p for p in below(runner) if not p.children()]) >= 2)
        time.sleep(0.2)  # the cell sleeps longer
        for process in below(runner):
            if not process.children():
                process.kill()
                killed.append(process)

    def before(job):
        if job.student == "bob":
            threading.Thread(target=strike, daemon=True).start()

    driver.executor.before = before
    bob = next(s for s in again(real).students if s.student == "bob")
    assert [row.points for row in bob.rows] == [2, 2] and len(killed) == 2


def test_f17_an_odd_environment_is_no_obstacle(course, tmp_path):
    # The language is C, there is no home, and the temporary folder is too long for socket paths.
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    odd = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "HOME": "/none", "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "course_lib.cli", "grade", LESSON, "--student", "ada"]
    command += ["--executor", "serial", "--quiet"]
    quiet = {"capture_output": True, "text": True, "timeout": PATIENCE}
    done = subprocess.run(command, cwd=course, env=os.environ | odd, **quiet)
    assert scores(course)["ada", "causal_mask"] == 2, done.stderr[-2000:]


def test_f19_many_submissions_leave_no_descriptor_process_thread_or_folder(real, runner):
    canned = driver.executor
    for number in range(24):
        hand_in(real, f"s{number:02}", honest(real))
    seen = []

    def look(job):
        files = sum(process.num_fds() for process in (psutil.Process(), *below(runner)))
        folders = len(list(runner.guests._host.folder.rglob("*")))
        seen.append((len(below(runner)), folders, threading.active_count(), files))

    canned.before = look
    again(real)
    assert len(seen) == 29
    for early, late in zip(zip(*seen[:8], strict=True), zip(*seen[-8:], strict=True), strict=True):
        assert min(late) <= max(early)  # one left by each would be sixteen more


def test_f22_a_file_that_changes_meanwhile_is_graded_as_read_then_anew(course, kept):
    canned = driver.executor
    right = (course / "submitted/ada" / LESSON / f"{LESSON}.ipynb").read_bytes()
    path = hand_in(course, "bob", right)
    wrong = (kept[0] / "submitted/bob" / LESSON / f"{LESSON}.ipynb").read_bytes()
    canned.before = lambda job: path.write_bytes(wrong) if job.student == "bob" else None
    assert [p for _, p, _ in grades(again(course))["bob"][1]] == [2, 2]
    canned.before = lambda job: None
    is_as_undisturbed(course, kept)


def kept_files(root: Path) -> dict:
    """Return the graded notebooks, the points in the gradebook, and the names of the pages."""
    found = {path: path.read_bytes() for path in root.glob("autograded/*/*/*.ipynb")}
    return found | scores(root) | dict.fromkeys(root.glob("feedback/*/*/*.html"))


@pytest.mark.parametrize("is_final", [False, True])
def test_f23_an_earlier_result_of_the_same_work_stays_if_it_cannot_be_graded_again(
    course, kept, monkeypatch, is_final
):
    assert grades(again(course)) == kept[2]
    files, canned = kept_files(course), driver.executor
    monkeypatch.setattr(canned, "one", lambda job: job.result(fault="too busy", is_final=is_final))
    for _ in range(2):  # the second run finds what the first one has kept
        summary = grade(course, LESSON, settings=replace(QUICK, force=True))
        assert grades(summary) == kept[2] | {"dan": grades(summary)["dan"]}, "he had no result"
        assert kept_files(course) == files
        told = "too busy; this is the earlier result, and the next run tries again"
        assert summary.students[0].notices == (told,)
    assert "kept: too busy" in ClassFolder(course).log_path("ada", LESSON).read_text()
    (course / "gradebook.db").unlink()
    assert grades(again(course))["bob"] == kept[2]["bob"], "published anew"
    monkeypatch.undo()
    monkeypatch.setenv("COURSE_CHECK_SEED", "threat" * 6)
    monkeypatch.setattr(driver, "executor", canned)
    canned.asked.clear()
    assert not any(s.notices for s in again(course).students if not s.problem)
    assert set(canned.asked) >= {"ada", "bob", "cyd", "eve"}


def test_f24_points_of_an_earlier_version_stay_but_never_count_for_a_newer_one(
    course, kept, monkeypatch
):
    again(course)
    files, canned = kept_files(course), driver.executor
    first = (course / "submitted/ada" / LESSON / f"{LESSON}.ipynb").read_bytes()
    for student, work in {"ada": honest(course, why="New."), "bob": "{", "eve": None}.items():
        path = hand_in(course, student, work or "")
        if work is None:
            path.unlink()
    broken = {"bob": "bob is damaged"}

    def one(job):
        fault = broken.get(job.student)
        return job.result(fault=fault or "too busy", is_final=bool(fault))

    monkeypatch.setattr(canned, "one", one)
    for _ in range(2):
        canned.asked.clear()
        summary = again(course)
        assert kept_files(course) == files and summary.exit_code == 3
        found = {s.student: s for s in summary.students}
        for student, points, reason in (
            ("ada", 4, "too busy"),
            ("bob", 0, "bob is damaged"),
            ("eve", 0, "no notebook was submitted"),
        ):
            one = found[student]
            stays = f"the gradebook and the page keep the {points} points of an earlier version"
            assert one.problem.startswith(reason) and stays in one.problem
            assert (one.points, one.state, one.score(partial=True)) == (None, "not graded", None)
            page = course / "feedback" / student / LESSON / f"{LESSON}.html"
            assert "Your newest version is not graded" in page.read_text(encoding="utf-8")
        export(course, ExportRequest(force=True))
        (row,) = (r for r in (course / "grades.csv").read_text().splitlines() if "ada" in r)
        assert row.startswith("ada,,,,,,,,") and "too busy (the gradebook and" in row
    assert canned.asked == ["ada"], "what is unreadable is tried again only after it has changed"
    hand_in(course, "ada", first)  # the graded version once more
    hand_in(course, "eve", (kept[0] / "submitted/eve" / LESSON / f"{LESSON}.ipynb").read_bytes())
    hand_in(course, "bob", (kept[0] / "submitted/bob" / LESSON / f"{LESSON}.ipynb").read_bytes())
    monkeypatch.setattr(canned, "one", functools.partial(type(canned).one, canned))
    is_as_undisturbed(course, kept)
    page = course / "feedback" / "ada" / LESSON / f"{LESSON}.html"
    assert "newest version" not in page.read_text(encoding="utf-8")
