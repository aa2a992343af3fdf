"""Kill a real run at a moment, look at what it leaves, finish it, compare with an undisturbed one.

python tests/threats/restart.py [MOMENTS] [STUDENTS]: as many moments drawn at random, for the
driver, a worker and the fork server in turn, over a class of as many; 100 and 30 take half an hour.
"""

import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from grading_course import LESSON, make_class  # noqa: E402
from waiting import PATIENCE  # noqa: E402

from course_lib.grading.driver import Settings, grade  # noqa: E402

VICTIMS = ("driver", "worker", "fork server")
_SERVER = "from multiprocessing.forkserver import main"


@dataclass(frozen=True)
class Struck:
    """Who was killed, None if the run was over, how long others lasted, and those left for good."""

    victim: str | None
    lasted: float
    left: tuple[str, ...] = ()


def finish(root: Path) -> dict:
    """Grade to the end, in this process, which has imported everything; what counts of it.

    That is, by student, points in the gradebook and whether there are the files for them.
    """
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


def strike(root: Path, victim: str, now: Callable[[], bool]) -> Struck:
    """Begin to grade, kill -9 a process of the run when it is time, wait for the others."""
    spool = Path(tempfile.mkdtemp(prefix="st-"))  # known to whatever the run starts
    command = [sys.executable, "-m", "course_lib.cli", "grade", LESSON, "--workers", "2", "--quiet"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, cwd=root, env={**os.environ, "TMPDIR": str(spool)}, **quiet)
    try:
        target: list[int] = []
        while run.poll() is None and not target:
            time.sleep(0.02)
            target = _of(victim, run.pid, spool) if now() else []
        if target:
            os.kill(target[0], signal.SIGKILL)
        else:
            victim = ""
        run.wait(PATIENCE)
        started = time.monotonic()
        while (left := [*processes(spool)]) and time.monotonic() - started < PATIENCE:
            time.sleep(0.05)
        return Struck(victim or None, time.monotonic() - started, tuple(map(str, left)))
    finally:
        run.kill()
        shutil.rmtree(spool, ignore_errors=True)


def processes(spool: Path) -> Iterator[psutil.Process]:
    """Yield all that know this run's folder for temporary files: guests from what is mounted."""
    for process in psutil.process_iter():
        texts = []
        for name in ("environ", "cmdline", "mountinfo"):
            with contextlib.suppress(OSError):
                texts.append(Path(f"/proc/{process.pid}/{name}").read_bytes())
        with contextlib.suppress(psutil.Error):
            known = any(os.fsencode(spool) in text for text in texts)
            if known and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                yield process


def _of(victim: str, driver: int, spool: Path) -> list[int]:
    if victim == "driver":
        return [driver]
    servers = {p.pid: p.ppid() for p in processes(spool) if _SERVER in " ".join(p.cmdline())}
    workers = [pid for pid, parent in servers.items() if parent in servers]
    return workers if victim == "worker" else [pid for pid in servers if pid not in workers]


def main(moments: int = 100, students: int = 30) -> int:
    """Print a line for each kill; 1 if any left a process after 5 s or changed a grade."""
    with tempfile.TemporaryDirectory(prefix="restart-") as name:
        folder = Path(name)
        root = make_class(folder / "course", [f"s{n:02}" for n in range(students)])
        shutil.copytree(root, folder / "undisturbed")
        started = time.monotonic()
        strike(folder / "undisturbed", "driver", lambda: False)
        whole, expected = time.monotonic() - started, finish(folder / "undisturbed")
        seed = secrets.randbits(32)
        print(f"an undisturbed run takes {whole:.1f} s; drawn with {seed}", flush=True)
        draw, failed = random.Random(seed), 0
        for moment in range(moments):
            copy, after = folder / "copy", draw.uniform(0, whole)
            shutil.copytree(root, copy)
            until = time.monotonic() + after
            struck = strike(copy, VICTIMS[moment % 3], lambda: time.monotonic() > until)  # noqa: B023
            same = finish(copy) == expected
            shutil.rmtree(copy)
            told = f"{struck.victim or 'over':12} {after:5.1f} s, gone in {struck.lasted:.1f} s, "
            print(told + ("same" if same else "OTHER GRADES"), *struck.left, flush=True)
            failed += not same or bool(struck.left) or struck.lasted > 5
        print(f"{failed} of {moments} not as expected")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
