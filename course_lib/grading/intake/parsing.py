"""Parse what students handed in, in another process, which is ended if it takes too much.

`read_submission` returns the notebook to grade. `OneStudent` returns the answers in each of a
student's notebooks. `read` runs in the other process, gets bytes and sends JSON. This process
parses nothing else of a student's, so that a hostile file costs only its owner.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbformat import NotebookNode

from course_lib.exercises import lessons
from course_lib.grading.intake.ordinary_files import IntakeError, one_line, read_bytes
from course_lib.grading.intake.read import MEMORY, REMEDY, too_large
from course_lib.grading.jobs import Job
from course_lib.workspace.environment import public_environment

SECONDS = 10.0  # of CPU time for the notebooks of one student; an honest one takes 0.1 s
_CEILING = 600  # seconds until a process is given up that gets no CPU time
_OUT_OF_TIME = -getattr(signal, "SIGXCPU", 0) or None  # what the kernel ends it with
_LOOK = 0.1  # seconds between two looks at what the process uses
_MOST_REPLY = 200_000_000  # bytes
_LIBRARY = Path(__file__).resolve().parents[3]


class NotReadError(IntakeError):
    """A submission was not read because of the machine or the course, so it is tried again."""

    is_final = False


def read_submission(job: Job) -> tuple[NotebookNode, list[str], dict[str, list[str]]]:
    """Return the release notebook with a student's answers, notices, and what the answers build on.

    The last maps the names that the student's cells bind to the exercises that they build on.
    """
    reply = _parser.ask(job.lesson, job.release, job.data, job.name, SECONDS)
    found = _found(reply)
    return nbformat.from_dict(found["notebook"]), found["notices"], found["built_on"]


class OneStudent:
    """Read one student's notebooks of a lesson, which share a limit on CPU time.

    Args:
        lesson: the lesson's name.
        release: the text of its release notebook.
    """

    def __init__(self, lesson: str, release: str) -> None:
        self._lesson, self._release, self._left = lesson, release, SECONDS

    def answers(self, path: Path) -> dict[str, str]:
        """Return the answers that differ from the release, by grade_id.

        Raises:
            IntakeError: the notebook cannot be read, belongs to another lesson, or takes too long.
        """
        name, data, left = one_line(path.name), read_bytes(path), self._left
        if left <= 0:
            raise IntakeError(f"{name} was not read, because another one took too long: {REMEDY}")
        self._left = 0.0  # unless it is read in time
        reply = _parser.ask(self._lesson, self._release, data, name, left)
        self._left = left - reply["seconds"]
        return _found(reply)["answers"]

    def has_answers(self, path: Path) -> bool:
        """Return whether a notebook is readable, belongs to this lesson, and was worked on."""
        with contextlib.suppress(IntakeError):
            return bool(self.answers(path))
        return False


def _found(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    if "refused" in reply:
        raise IntakeError(reply["refused"])
    if "failed" in reply:
        raise NotReadError(f"it could not be read ({reply['failed']}): report it to the course")
    return reply


class _Parser:
    """The process that parses, which is replaced after it had to be ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner, self._lock = 0, threading.Lock()

    def ask(
        self, lesson: str, release: str, data: bytes, name: str, seconds: float
    ) -> dict[str, Any]:
        """Return what the other process found, or raise IntakeError if it had to be ended."""
        lesson_of = {name: slug for slug, one in lessons().items() for name in one.exercises}
        about = {"lesson": lesson, "release": release, "name": name, "lesson_of": lesson_of}
        about |= {"seconds": seconds, "size": len(data)}
        line, code = json.dumps(about).encode() + b"\n", 0
        with self._lock:
            for _ in range(2):  # somebody else may have ended it
                process = self.start()
                with _limited(process, name, seconds) as ended, contextlib.suppress(OSError):
                    process.stdin.writelines((line, data))
                    process.stdin.flush()
                    reply = process.stdout.readline(_MOST_REPLY)
                    if reply.endswith(b"\n"):
                        return json.loads(reply)
                code = self.close()
                if ended or code == _OUT_OF_TIME:
                    raise ended[0] if ended else _too_long(name, seconds)
        raise NotReadError(f"{name} could not be read: the process that reads it ended ({code})")

    def start(self) -> Any:
        """Start the process unless it runs."""
        if self._process is None or self._owner != os.getpid():  # a fork must not use its parent's
            environ = {**public_environment(), "PYTHONPATH": str(_LIBRARY)}
            command = [sys.executable, "-P", "-m", "course_lib.grading.intake.read"]
            pipes: Any = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
            process = psutil.Popen(command, env=environ, start_new_session=True, **pipes)
            self._process, self._owner = process, os.getpid()
        return self._process

    def close(self) -> int:
        """End the process, and return its exit code."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # the rest of a request cannot be written
                pipe.close()
        return code


_parser = _Parser()
start, stop = _parser.start, _parser.close


def _too_long(name: str, seconds: float) -> IntakeError:
    return IntakeError(f"{name} takes more than {seconds:.0f} s of CPU time to read: {REMEDY}")


@contextlib.contextmanager
def _limited(process: psutil.Popen, name: str, seconds: float) -> Iterator[list[IntakeError]]:
    """End a process that exceeds a limit during the `with` block, and yield a list for the reason.

    On Linux, the process itself asks the kernel to limit its memory.
    """
    ended: list[IntakeError] = []
    is_over = threading.Event()

    def look() -> tuple[float, float]:
        return sum(process.cpu_times()[:2]), process.memory_info().rss

    def watch() -> None:
        with contextlib.suppress(psutil.Error):
            began, (cpu, size) = time.monotonic(), look()
            while not is_over.wait(_LOOK):
                cpu_now, size_now = look()
                if cpu_now - cpu > seconds:
                    ended.append(_too_long(name, seconds))
                elif size_now - size > MEMORY:
                    ended.append(too_large(name))
                elif time.monotonic() - began > _CEILING:
                    what = f"{name} was not read within {_CEILING} s: this machine is too busy"
                    ended.append(NotReadError(what))
                if ended:
                    process.kill()
                    return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield ended
    finally:
        is_over.set()
        watching.join()
