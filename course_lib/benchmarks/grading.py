"""`course bench grading`: compare stock `nbgrader autograde` with `course grade`.

Both grade copies of a lesson's sample class, in turn on the same machine, so that their ratio
depends little on the machine. Stock nbgrader grades one submission after the other, and writes no
feedback. `course grade` also writes feedback.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from course_lib.benchmarks import machine, peak_memory
from course_lib.demo.demo_course import make_folder, sample_class, submit
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.driver import Settings, grade
from course_lib.grading.executors import started_ahead
from course_lib.grading.ledger import Ledger
from course_lib.workspace.errors import GradingError


def compare(
    root: Path,
    lessons: list[str],
    *,
    submissions: int = 24,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Grade the same class with both graders, in turn.

    Return the wall seconds of each run, and for each lesson the ratio of our throughput to that of
    stock nbgrader.

    Args:
        root: the course.
        lessons: the lessons whose sample classes are graded.
        submissions: number of submissions, which are copies of the sample class.
        tell: called with a line at each step.

    Raises:
        GradingError: a lesson has no sample class, or a grader does not finish.
    """
    runs, ratio, settings = [], {}, Settings(workers=2)  # nbgrader has one process
    for lesson in lessons:
        with tempfile.TemporaryDirectory(prefix="course-bench-") as scratch:
            folder = Path(scratch) / "class"
            chosen = itertools.islice(itertools.cycle(sample_class(lesson)), submissions)
            copies = [replace(one, name=f"student-{n}") for n, one in enumerate(chosen)]
            make_folder(root, folder)
            submit(folder, lesson, copies)
            tell(f"{lesson}: course grade, {submissions} submissions")
            ours = run_course(folder, lesson, submissions, settings)
            tell(f"{lesson}: nbgrader autograde, {submissions} submissions")
            stock = run_stock(folder, lesson, submissions)
        runs += [ours, stock]
        ratio[lesson] = round(stock["each"] / ours["each"], 1)
    about = {"machine": machine(), "sandbox": settings.sandbox, "workers": settings.workers}
    return {**about, "runs": runs, "ratio": ratio}


def run_course(folder: Path, lesson: str, submissions: int, settings: Settings) -> dict[str, Any]:
    """Time `course grade` over a class, feedback included.

    "steps" has the mean wall seconds of each step of a submission, and in "cpu" the CPU time of the
    worker and its guests. "peak" is the driver's largest memory in bytes.
    """
    started = time.perf_counter()
    with started_ahead(folder, lesson, settings) as pool:
        summary = grade(folder, lesson, settings=settings, pool=pool)
    seconds = time.perf_counter() - started
    if len(summary.students) != submissions or summary.blanks:
        raise GradingError(f"{lesson}: not everyone was graded: {summary.blanks}")
    entries = Ledger(ClassFolder(folder).ledger_path(lesson)).entries()
    names = dict.fromkeys(name for entry in entries for name in entry.seconds)
    steps = {n: round(mean(e.seconds.get(n, 0.0) for e in entries), 4) for n in names}
    peak = peak_memory() if sys.platform == "linux" else 0
    return _run("course", lesson, submissions, seconds) | {"steps": steps, "peak": peak}


def run_stock(folder: Path, lesson: str, submissions: int) -> dict[str, Any]:
    """Time `nbgrader autograde` over the same class, with a gradebook of its own."""
    for name in ("autograded", "feedback"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "gradebook.db").unlink()
    with quiet_nbgrader():
        course = ClassFolder(folder)
        course.ensure_assignment(lesson, course.read_release(lesson)[1])
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "COURSE_CHECK_SEED": course.check_seed()}
    command = [sys.executable, "-W", "ignore", "-m", "nbgrader", "autograde", lesson]
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    graded = len(list((folder / "autograded").glob(f"*/{lesson}/{lesson}.ipynb")))
    if done.returncode or graded != submissions:
        raise GradingError(f"nbgrader autograde graded {graded} of {submissions}: {done.stderr}")
    return _run("nbgrader", lesson, submissions, seconds)


def _run(grader: str, lesson: str, submissions: int, seconds: float) -> dict[str, Any]:
    return {
        "lesson": lesson,
        "grader": grader,
        "submissions": submissions,
        "seconds": round(seconds, 2),
        "each": round(seconds / submissions, 4),
    }
