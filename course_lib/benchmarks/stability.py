"""`course bench stability`: grade copies of harmful notebooks repeatedly and compare outcomes.

Every notebook answers a whole lesson correctly, and the cell of one answer harms its process. The
last of several runs shares the machine with busy processes. The time limit of a cell is short, so
that endless ones end soon.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from course_lib.authoring.paste import solution_source
from course_lib.demo.demo_course import SampleStudent, make_folder, submit
from course_lib.grading.driver import grade
from course_lib.grading.jobs import Settings
from course_lib.grading.sandbox.confinement import Limits

LIMITS = Limits(memory=1_000_000_000, cell_seconds=4.0)
_BUSY = 8
# An answer cell with harmful code, where ANSWER is the solution. The code begins with a guard where
# it could harm a machine that does not confine it.
_GUARD = "import os, threading, time\nassert os.getpid() == 1\n"
NOTEBOOKS = {
    "exit": "ANSWER\nexit()",
    "leaves": "ANSWER\nimport os\nos._exit(0)",
    "crashes": "import ctypes\nctypes.string_at(0)\nANSWER",
    "timer": f"{_GUARD}threading.Timer(1.0, os._exit, [1]).start()\n"
    "import signal\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(1))\nsignal.alarm(1)\n"
    "ANSWER",
    "descriptors": f"{_GUARD}os.closerange(3, 256)\nANSWER",
    "bomb": f"{_GUARD}while True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "children": f"{_GUARD}until = time.monotonic() + 2\nwhile time.monotonic() < until:\n"
    "    try:\n        if os.fork() == 0:\n            time.sleep(3600)\n"
    "    except OSError:\n        pass\nANSWER",
    "memory": f"{_GUARD}kept = []\nwhile True:\n    kept.append(bytearray(b'x') * 10_000_000)",
    "loop": "while True:\n    try:\n        while True:\n            pass\n"
    "    except BaseException:\n        pass",
    "flood": "import os\nwhile True:\n    os.write(1, b'x' * 1_000_000)",
}
# The exercise that is harmed in each lesson, and the notebooks. Lesson 11's checks run a model.
LESSONS = {
    "02_masked_softmax": ("length_mask", tuple(NOTEBOOKS)),
    "11_real_model": ("KVCache", ("exit", "crashes")),
}


def measure(
    root: Path, *, copies: int = 20, runs: int = 3, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Grade copies of each notebook several times.

    Return how often each line of points and outcomes occurred for each notebook, which is called by
    its lesson's number and its name, and the "unstable" notebooks, whose copies did not all get the
    same outcome.

    Args:
        root: the course.
        copies: the number of copies of each notebook in a class.
        runs: how often each class is graded; the last of several runs shares the machine.
        tell: called with a line at each step.
    """
    settings = Settings(sandbox="strict", workers=2, limits=LIMITS)
    found: dict[str, Counter[str]] = {}
    for (lesson, (harmed, names)), run in itertools.product(LESSONS.items(), range(runs)):
        codes = {name: NOTEBOOKS[name].replace("ANSWER", solution_source(harmed)) for name in names}
        students = [
            SampleStudent(f"{name}-{number:02}", {harmed: code}, {})
            for number in range(copies)
            for name, code in codes.items()
        ]
        beside = _BUSY if 0 < run == runs - 1 else 0
        tell(f"{lesson}, run {run + 1} of {runs}, beside {beside} busy processes")
        with tempfile.TemporaryDirectory(prefix="course-bench-") as scratch, busy(beside):
            folder = Path(scratch) / "class"
            make_folder(root, folder)
            submit(folder, lesson, students)
            for student in grade(folder, lesson, settings=settings).students:
                rows = [row for row in student.rows if row.outcome]
                lost = [f"{r.exercise} {r.outcome}" for r in rows if r.points != r.max_points]
                points = sum(row.points or 0 for row in rows)
                outcome = f"{points:g} points; {', '.join(lost) or 'all correct'}"
                name = f"{lesson[:2]} {student.student.rpartition('-')[0]}"
                found.setdefault(name, Counter())[student.problem or outcome] += 1
    unstable = [name for name, seen in found.items() if len(seen) > 1]
    return {"outcomes": {name: dict(seen) for name, seen in found.items()}, "unstable": unstable}


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """Run processes that keep the CPU busy."""
    command = [sys.executable, "-S", "-E", "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
