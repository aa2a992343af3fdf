"""`course bench checks`: measure the CPU time of an answer's first check, for each exercise.

Each answer in `tests/variants/` is checked once, in a process of its own that has imported its
modules but drawn no probes and run no known mistake. The first check of a session is timed with its
imports, once torch is loaded. Unlike elapsed time, CPU time hardly depends on other work on the
machine.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from course_lib.authoring.variants import Variant, variants
from course_lib.benchmarks import machine
from course_lib.checks import exercises
from course_lib.checks.judge.verdict import judge_answer
from course_lib.exercises import find
from course_lib.workspace.errors import UsageError

Tell = Callable[[str], None]
# Modules that torch imports when an optimizer, a gradient or a transform is first used.
_PUT_OFF = ("torch._dynamo", "torch.fx.experimental.symbolic_shapes", "torch._functorch.apis")
_FIRST_OF_SESSION = """
import time, torch
started = time.process_time()
from course_lib import check
from course_lib.checks import grade
grade("causal_mask", lambda num_queries, num_keys: torch.ones(num_queries, num_keys).triu())
print(time.process_time() - started)"""


@dataclass(frozen=True)
class Row:
    """An exercise: seconds of each correct answer's first check, and of each wrong one's."""

    exercise: str
    right: tuple[float, ...]
    wrong: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """All rows, seconds of a session's first check, and a description of the machine."""

    rows: list[Row]
    first_of_session: float
    machine: str

    def as_dict(self) -> dict:
        """Return the results as plain data."""
        return {
            "machine": self.machine,
            "rows": [asdict(row) for row in self.rows],
            "median_right": median([s for row in self.rows for s in row.right]),
            "median_wrong": median([s for row in self.rows for s in row.wrong]),
            "worst_right": max(median(row.right) for row in self.rows),
            "worst_wrong": max(median(row.wrong) for row in self.rows),
            "first_of_session": self.first_of_session,
        }

    def text(self) -> str:
        """Return a table of CPU times in seconds, with the number of answers of each kind."""
        form = "{:<32}" + 2 * "{:>8}{:>8}{:>9}"
        head = "median", "slowest"
        right = [s for row in self.rows for s in row.right]
        wrong = [s for row in self.rows for s in row.wrong]
        lines = [form.format("exercise", "right", *head, "wrong", *head)]
        for row in [*self.rows, Row("all", tuple(right), tuple(wrong))]:
            lines.append(form.format(row.exercise, *_cells(row.right), *_cells(row.wrong)))
        found = self.as_dict()
        lines += [
            "",
            f"Seconds of CPU time: a first wrong answer {found['median_wrong']:.2f} in "
            f"the median, {found['worst_wrong']:.2f} at the slowest exercise; a right one "
            f"{found['median_right']:.2f} and {found['worst_right']:.2f}. The first check of a "
            f"session, with its imports: {self.first_of_session:.2f}. {self.machine}.",
        ]
        return "\n".join(lines)


def _cells(seconds: Sequence[float]) -> list[str]:
    slowest = max(seconds, default=0.0)
    return [str(len(seconds)), f"{median(seconds):.2f}", f"{slowest:.2f}"]


def measure(
    root: Path,
    slugs: Sequence[str] | None = None,
    *,
    most: int | None = None,
    tell: Tell = lambda line: None,
) -> Measured:
    """Time the first check of every answer.

    Args:
        root: the course folder, which holds `tests/variants`.
        slugs: lessons; all of them if not given.
        most: the number of answers of each kind to time for each exercise; all if not given.
        tell: called with a line for each exercise.

    Raises:
        UsageError: this system cannot fork a fresh process for each answer.
    """
    if not hasattr(os, "fork"):
        raise UsageError("course bench checks needs a system that forks: Linux or macOS")
    for module in _PUT_OFF:
        importlib.import_module(module)
    rows = []
    for name, exercise in exercises().items():
        if slugs and exercise.lesson not in slugs:
            continue
        tell(name)
        answers = list(variants(root, name))
        kinds = ([a for a in answers if a.is_right], [a for a in answers if not a.is_right])
        right, wrong = (tuple(_first_check(a) for a in kind[:most]) for kind in kinds)
        rows.append(Row(name, right, wrong))
    command = [sys.executable, "-c", _FIRST_OF_SESSION]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(4)]
    # The first of these processes may write bytecode, so it does not count.
    return Measured(rows, median(float(run.stdout) for run in runs[1:]), machine())


def _first_check(answer: Variant) -> float:
    """Return seconds of CPU time in a process forked from one that has checked nothing."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_check, args=(answer, there))
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError as error:
        raise RuntimeError(f"{answer.exercise}: {answer.name} ended the process") from error
    finally:
        process.join()


def _check(answer: Variant, result) -> None:
    started = time.process_time()
    judge_answer(find(answer.exercise), answer.answer, seed="bench")
    result.send(time.process_time() - started)
