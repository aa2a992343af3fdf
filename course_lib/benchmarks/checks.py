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
from pathlib import Path
from statistics import median
from typing import Any

from course_lib.authoring.variants import Variant, variants
from course_lib.benchmarks import machine
from course_lib.checks import exercises
from course_lib.checks.judge.verdict import judge_answer
from course_lib.exercises import find
from course_lib.workspace.errors import UsageError

# Modules that torch imports when an optimizer, a gradient or a transform is first used, and those
# that the first check of a session imports.
_PUT_OFF = (
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "torch._functorch.apis",
    "course_lib.attention",
    "course_lib.fused",
)
_FIRST_OF_SESSION = """
import time, torch
started = time.process_time()
from course_lib import check
from course_lib.checks import grade
grade("causal_mask", lambda num_queries, num_keys: torch.ones(num_queries, num_keys).triu())
print(time.process_time() - started)"""


def measure(
    root: Path,
    slugs: Sequence[str] | None = None,
    *,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Time the first check of every answer, and return CPU times in seconds.

    For each exercise and for all together, this is the number of correct and of wrong answers, with
    the median and the slowest of each.

    Args:
        root: the course folder, which holds `tests/variants`.
        slugs: lessons; all of them if not given.
        tell: called with a line for each exercise.

    Raises:
        UsageError: this system cannot fork a fresh process for each answer.
    """
    if not hasattr(os, "fork"):
        raise UsageError("course bench checks needs a system that forks: Linux or macOS")
    for module in _PUT_OFF:
        importlib.import_module(module)
    rows: dict[str, tuple[list[float], list[float]]] = {}
    for name, exercise in exercises().items():
        if slugs and exercise.lesson not in slugs:
            continue
        tell(name)
        answers = list(variants(root, name))
        kinds = ([a for a in answers if a.is_right], [a for a in answers if not a.is_right])
        right, wrong = ([_first_check(a) for a in kind] for kind in kinds)
        rows[name] = right, wrong
    command = [sys.executable, "-c", _FIRST_OF_SESSION]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(4)]
    total = [[s for row in rows.values() for s in row[kind]] for kind in (0, 1)]
    return {
        "machine": machine(),
        "exercises": {name: _summary(*row) for name, row in rows.items()},
        "all": _summary(*total),
        # The first of these processes may write bytecode, so it does not count.
        "first_of_session": round(median(float(run.stdout) for run in runs[1:]), 3),
    }


def _summary(right: Sequence[float], wrong: Sequence[float]) -> dict[str, dict[str, float]]:
    return {
        kind: {
            "answers": len(seconds),
            "median": round(median(seconds), 3),
            "slowest": round(max(seconds), 3),
        }
        for kind, seconds in (("right", right), ("wrong", wrong))
    }


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
