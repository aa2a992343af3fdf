"""A child process for hostile text: it reads, cleans and renders what a student sent, and is gone.

Forked, so that nothing is imported again; held to processor time and memory of its own, so that no
text can hold up the process that forked it. What it hands back is text, and taken as no more.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

if sys.platform == "linux":
    from course_lib.grading.kernels.guest import lockdown

SECONDS = 20  # of processor time; an honest submission takes a tenth of one
MEMORY = 600_000_000  # bytes beyond what was there before
MOST = 40_000_000  # bytes of the text that comes back
_CEILING = 600.0  # seconds by the clock, against a child that neither works nor ends
_NO_MEMORY = 3


class Unfinished(Exception):
    """A child gave no text; the message says why."""


class Child:
    """Begins at once; `text` waits for it.

    Args:
        work: what it does, without threads and files; its text is the answer.
        seconds: of processor time.
        memory: bytes beyond those of this process.
    """

    def __init__(
        self, work: Callable[[], str], seconds: int = SECONDS, memory: int = MEMORY
    ) -> None:
        self.seconds, self.memory = seconds, memory
        self._here = None if hasattr(os, "fork") else work  # Windows: only trusted work is graded
        self._pid, self._refused = 0, ""
        if self._here is not None:  # pragma: no cover - Windows forks no process
            return
        reader, writer = os.pipe()
        self._answer = os.fdopen(reader, "rb", buffering=0)
        try:
            with warnings.catch_warnings():  # other threads hold no lock that parsing needs
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pid = os.fork()
        except OSError as error:
            self._refused = f"no process could be forked: {error.strerror}"
        if not self._pid and not self._refused:  # pragma: no cover - in the child
            _work(work, writer, seconds, memory)
        os.close(writer)

    def text(self) -> str:
        """The answer.

        Raises:
            Unfinished: it ran into a limit, or failed, or could not begin.
        """
        if self._here is not None:  # pragma: no cover - Windows forks no process
            return self._here()
        try:
            data = self._read()
        finally:
            status = self.end()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            raise Unfinished(f"it took more than {self.seconds} s of processor time")
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _NO_MEMORY:
            raise Unfinished(f"it took more than {self.memory / 1e6:.0f} MB of memory")
        if status or self._refused:
            raise Unfinished(self._refused or "it failed")
        return data.decode("utf-8", "replace")

    def _read(self) -> bytes:
        """All that the child writes, up to `MOST` bytes."""
        parts, room, until = [], MOST, time.monotonic() + _CEILING
        while select.select([self._answer], [], [], max(0.0, until - time.monotonic()))[0]:
            part = self._answer.read(1 << 20)
            room -= len(part)
            if not part:
                return b"".join(parts)
            if room < 0:
                raise Unfinished(f"it gave more than {MOST / 1e6:.0f} MB")
            parts.append(part)
        raise Unfinished("it neither ended nor used processor time")

    def end(self) -> int:
        """Take it away, however far it is; its exit status."""
        pid, self._pid = self._pid, 0
        self._answer.close()
        if not pid:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]


def many_forks_follow() -> None:
    """What this process holds is the same for many children: make a fork of it cheap, once."""
    if sys.platform == "linux":
        lockdown.lay_in_large_pages()


def text_from(work: Callable[[], str]) -> str:
    """The text that a child makes.

    Raises:
        Unfinished: it made none.
    """
    return Child(work).text()


def _work(
    work: Callable[[], str], writer: int, seconds: int, memory: int
) -> NoReturn:  # pragma: no cover - in the child
    """Runs in the child and never returns."""
    code = 2
    try:
        gc.disable()  # it would touch, and so copy, every page of the parent's
        _shut_in(writer, seconds, memory)
        data = memoryview(work().encode("utf-8", "replace"))
        while data:
            data = data[os.write(writer, data) :]
        code = 0
    except MemoryError:
        code = _NO_MEMORY
    finally:
        os._exit(code)


def _shut_in(writer: int, seconds: int, memory: int) -> None:  # pragma: no cover - in the child
    """No descriptor but one, no Ctrl-C of its own, limits, and an end with its parent."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        lockdown.die_with_parent()
        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
    os.closerange(0, writer)
    os.closerange(writer + 1, 4096)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
