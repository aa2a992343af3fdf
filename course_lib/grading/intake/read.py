"""Read a submission in a worker: parse it and put its answers into the release notebook."""

from __future__ import annotations

import contextlib
import functools
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import nbformat
from nbformat import NotebookNode

from course_lib.exercises import exercises
from course_lib.grading.graded_cells import ANSWER
from course_lib.grading.intake.gate import IntakeError
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.intake.source_checks import same_as_course, source_checks
from course_lib.grading.intake.submissions import SubmittedCell, parse, read_bytes
from course_lib.grading.jobs import Job, Result

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")
_SECONDS = 20  # of processor time; an honest submission takes a tenth of one
_MEMORY = 600_000_000  # bytes beyond what the process holds


def read_submission(job: Job, result: Result) -> NotebookNode:
    """Return the release notebook with a student's answers; note what was found in the result.

    Raises:
        IntakeError: it cannot be read; the message says why and what to ask for.
    """
    release = _release(job.release)
    with _limited(job.name):
        notebook, notices = _rebuilt(job.lesson, release, job.data, job.name)
        notices += source_checks(notebook)
        result.same_as_course = tuple(same_as_course(notebook, job.lesson))
    result.notices = tuple(notices)
    return notebook


def has_answers(lesson: str, release: NotebookNode, path: Path) -> bool:
    """Return whether a notebook can be read, is of this lesson, and was worked on."""
    try:
        with _limited(path.name):
            notebook, _ = _rebuilt(lesson, release, read_bytes(path), path.name)
            return _answers_in(notebook) != _answers_in(release)
    except IntakeError:
        return False


def _rebuilt(
    lesson: str, release: NotebookNode, data: bytes, name: str
) -> tuple[NotebookNode, list[str]]:
    cells, read = parse(data, name)
    _refuse_another_lesson(lesson, cells)
    notebook, restored = rebuild(release, cells)
    return notebook, [*read, *restored]


def _answers_in(notebook: NotebookNode) -> list[list[str]]:
    """The words of the cells that answers go into."""
    cells = (c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution"))
    return [cell.source.split() for cell in cells]


@functools.lru_cache(maxsize=2)
def _release(text: str) -> NotebookNode:
    return nbformat.reads(text, as_version=4)


@contextlib.contextmanager
def _limited(name: str) -> Iterator[None]:
    """Bound the memory and the processor time of this process while it reads hostile text.

    Raises:
        IntakeError: more was needed.
    """
    try:
        with _limits():
            yield
    except (MemoryError, TimeoutError) as error:
        why = str(error) or f"it took more than {_MEMORY / 1e6:.0f} MB of memory"
        remedy = "ask for the lesson's notebook with the answers"
        raise IntakeError(f"{name} could not be read ({why}): {remedy}") from None


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource

    with open("/proc/self/statm", "rb") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    limits = {resource.RLIMIT_AS: size + _MEMORY}
    is_main = threading.current_thread() is threading.main_thread()
    handler: Any = None
    if is_main:  # no other thread can handle the signal, which would end the process
        limits[resource.RLIMIT_CPU] = int(time.process_time()) + 1 + _SECONDS
        handler = signal.signal(signal.SIGXCPU, _too_long)
    before = {which: resource.getrlimit(which) for which in limits}
    try:
        for which, most in limits.items():
            known = [value for value in before[which] if value != resource.RLIM_INFINITY]
            resource.setrlimit(which, (min([most, *known]), before[which][1]))
        yield
    finally:
        for which, pair in before.items():
            resource.setrlimit(which, pair)
        if is_main:
            signal.signal(signal.SIGXCPU, handler)


def _too_long(number: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError(f"it took more than {_SECONDS} s of processor time")


def _refuse_another_lesson(lesson: str, cells: Sequence[SubmittedCell]) -> None:
    """Reject a notebook that belongs to another lesson instead of scoring it 0."""
    known = exercises()
    asked = {name for cell in cells for name in _CHECK.findall(cell.source)}
    asked |= {(cell.grade_id or "").removesuffix(ANSWER) for cell in cells}
    found = Counter(known[name].lesson for name in asked & known.keys())
    if found and lesson not in found:
        other = found.most_common(1)[0][0]
        raise IntakeError(f"this is the notebook of {other}: ask for that of {lesson}")
