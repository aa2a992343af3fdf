"""S09, S10: a real run with workers, one process of which is killed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import experiment
import pytest
from experiment import processes
from grading_course import LESSON, make_class
from waiting import PATIENCE, wait_until

from course_lib.grading.driver import Settings, grade

pytestmark = experiment.needs_strict
_SERVER = "from multiprocessing.forkserver import main"


def finish(root):
    """Grade to the end, and return what counts: points by student, and whether there are files."""
    graded = grade(root, LESSON, settings=Settings(workers=2))
    return {
        s.student: (
            s.problem,
            tuple((row.exercise, row.points, row.outcome) for row in s.rows),
            (root / "autograded" / s.student / LESSON / f"{LESSON}.ipynb").is_file(),
            (root / "feedback" / s.student / LESSON / f"{LESSON}.html").is_file(),
        )
        for s in graded.students
    }


def strike(root, victim, number):
    """Grade, kill a process once there are so many results, and wait for the others."""
    spool = Path(tempfile.mkdtemp(prefix="st-"))  # known to whatever the run starts
    ledger = root / ".course" / "ledger" / LESSON
    command = [sys.executable, "-m", "course_lib.cli", "grade", LESSON, "--workers", "2", "--quiet"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, cwd=root, env={**os.environ, "TMPDIR": str(spool)}, **quiet)
    try:
        while len(list(ledger.glob("*.json"))) < number or not (found := _of(victim, run, spool)):
            assert run.poll() is None, "it is over"
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)
        run.wait(PATIENCE)
        wait_until(lambda: not [*processes(spool)])
    finally:
        run.kill()
        shutil.rmtree(spool, ignore_errors=True)


def _of(victim, run, spool):
    if victim == "driver":
        return [run.pid]
    servers = {p.pid: p.ppid() for p in processes(spool) if _SERVER in " ".join(p.cmdline())}
    workers = [pid for pid, parent in servers.items() if parent in servers]
    return workers if victim == "worker" else [pid for pid in servers if pid not in workers]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return (an ungraded class, what counts once it is graded)."""
    folder = tmp_path_factory.mktemp("restart")
    root = make_class(folder / "course", ["ada", "bob", "cyd", "eve", "fay"])
    shutil.copytree(root, folder / "graded")
    return root, finish(folder / "graded")


# Four deaths of the driver count against nobody.
@pytest.mark.parametrize("victims", [["worker"], ["fork server"], ["driver"] * 4])
def test_s09_s10_a_run_that_is_killed_leaves_no_process_and_is_finished_by_the_next(
    undisturbed, tmp_path, victims
):
    root = shutil.copytree(undisturbed[0], tmp_path / "course")
    for victim in victims:
        strike(root, victim, 1 if victim == "driver" else 2)
    assert finish(root) == undisturbed[1]
