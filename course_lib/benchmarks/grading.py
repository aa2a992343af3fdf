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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from course_lib.benchmarks import machine, peak_memory
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.demo_course import make_folder, sample_class, submit
from course_lib.grading.driver import Settings, grade
from course_lib.grading.executors import started_ahead
from course_lib.grading.ledger import Ledger
from course_lib.workspace.errors import GradingError

Tell = Callable[[str], None]


@dataclass
class Measured:
    """One run of a grader over a class.

    Attributes:
        grader: "course" or "nbgrader".
        seconds: wall time of the whole run, start included.
        steps: mean wall time of each step of one submission, if the grader reports it; "cpu" is the
            CPU time of the worker and its guests.
        peak: the largest resident size of the driving process, in bytes.
    """

    grader: str
    lesson: str
    submissions: int
    seconds: float
    steps: dict[str, float] = field(default_factory=dict)
    peak: int = 0

    @property
    def each(self) -> float:
        """Return the wall seconds for one submission."""
        return self.seconds / self.submissions


@dataclass
class Comparison:
    """All runs, and the machine that ran them."""

    runs: list[Measured]
    machine: str
    sandbox: str
    workers: int

    def ratio(self, lesson: str) -> float | None:
        """Return our throughput over that of stock nbgrader, or None if that was not run."""
        each = {run.grader: run.each for run in self.runs if run.lesson == lesson}
        return each["nbgrader"] / each["course"] if "nbgrader" in each else None

    def as_dict(self) -> dict:
        """Return the results as JSON-able data."""
        runs = [asdict(run) | {"each": round(run.each, 4)} for run in self.runs]
        ratios = {run.lesson: self.ratio(run.lesson) for run in self.runs}
        about = {"machine": self.machine, "sandbox": self.sandbox, "workers": self.workers}
        return {**about, "runs": runs, "ratio": ratios}

    def text(self) -> str:
        """Return a table, followed by a breakdown of the time that one submission takes."""
        lines = [f"{self.machine}; sandbox {self.sandbox}, {self.workers} workers", ""]
        lines.append(f"{'lesson':<24}{'grader':<10}{'submissions':>11}{'seconds':>9}{'each':>8}")
        for run in self.runs:
            lines.append(
                f"{run.lesson:<24}{run.grader:<10}{run.submissions:>11}{run.seconds:>9.1f}"
                f"{run.each:>8.3f}"
            )
        lines.append("")
        for lesson in dict.fromkeys(run.lesson for run in self.runs):
            if (ratio := self.ratio(lesson)) is not None:
                lines.append(f"{lesson}: {ratio:.1f} times the throughput of nbgrader autograde")
        for run in self.runs:
            if run.steps:
                steps = {name: s for name, s in run.steps.items() if name != "cpu"}
                parts = ", ".join(f"{name} {1000 * s:.0f} ms" for name, s in steps.items())
                parts += f"; CPU time {1000 * run.steps.get('cpu', 0.0):.0f} ms"
                peak = f"; driver's peak memory {run.peak / 1e6:.0f} MB" if run.peak else ""
                lines.append(f"{run.lesson}, one submission in its worker: {parts}{peak}")
        return "\n".join(lines)


def compare(
    root: Path,
    lessons: list[str],
    *,
    submissions: int = 24,
    tell: Tell = lambda line: None,
) -> Comparison:
    """Grade the same class with both graders, in turn.

    Args:
        root: the course.
        lessons: the lessons whose sample classes are graded.
        submissions: number of submissions, which are copies of the sample class.
        tell: called with a line at each step.

    Raises:
        GradingError: a lesson has no sample class, or a grader does not finish.
    """
    runs, settings = [], Settings(workers=2)  # nbgrader has one process
    for lesson in lessons:
        with tempfile.TemporaryDirectory(prefix="course-bench-") as scratch:
            folder = Path(scratch) / "class"
            chosen = itertools.islice(itertools.cycle(sample_class(lesson)), submissions)
            copies = [replace(one, name=f"student-{n}") for n, one in enumerate(chosen)]
            make_folder(root, folder)
            submit(folder, lesson, copies)
            tell(f"{lesson}: course grade, {submissions} submissions")
            runs.append(run_course(folder, lesson, submissions, settings))
            tell(f"{lesson}: nbgrader autograde, {submissions} submissions")
            runs.append(run_stock(folder, lesson, submissions))
    return Comparison(runs, machine(), "strict", settings.workers)


def run_course(folder: Path, lesson: str, submissions: int, settings: Settings) -> Measured:
    """Time `course grade` over a class, feedback included."""
    started = time.perf_counter()
    with started_ahead(folder, lesson, settings) as pool:
        summary = grade(folder, lesson, settings=settings, pool=pool)
    seconds = time.perf_counter() - started
    if len(summary.students) != submissions or summary.blanks:
        raise GradingError(f"{lesson}: not everyone was graded: {summary.blanks}")
    entries = Ledger(ClassFolder(folder).ledger_path(lesson)).entries()
    names = dict.fromkeys(name for entry in entries for name in entry.seconds)
    steps = {n: sum(e.seconds.get(n, 0.0) for e in entries) / len(entries) for n in names}
    peak = peak_memory() if sys.platform == "linux" else 0
    return Measured("course", lesson, submissions, seconds, steps, peak)


def run_stock(folder: Path, lesson: str, submissions: int) -> Measured:
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
    return Measured("nbgrader", lesson, submissions, seconds)
