"""A child process for hostile text: it reads, cleans and renders what students sent.

Forked, so that nothing is imported again; held to processor time and memory of its own, so that no
text can hold up the process that forked it. What it hands back is text, and taken as no more. One
child takes many texts in turn; whatever is too much for it, or makes it large, ends it, and the
next has a new one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

if sys.platform == "linux":
    from course_lib.grading.sandbox.inside import lockdown

SECONDS = 20  # of processor time; an honest submission takes a tenth of one
MEMORY = 600_000_000  # bytes beyond what was there before
MOST = 40_000_000  # bytes of the text that comes back
_CEILING = 600.0  # seconds by the clock, against a child that neither works nor ends
_TURNS = 32  # requests of one child, which collects no garbage
_FORKS = hasattr(os, "fork")
_NO_MEMORY = 3
_SIZE = 8  # bytes that say how many follow


class Unfinished(Exception):
    """A child gave no text; the message says why."""


class Child:
    """Does one kind of work, forked when it is first asked.

    Args:
        work: what it does with a request, without threads and files; its text is the answer.
        seconds: of processor time for each request.
        memory: bytes beyond those of this process.
    """

    def __init__(
        self, work: Callable[[Any], str], seconds: int = SECONDS, memory: int = MEMORY
    ) -> None:
        self.work, self.seconds, self.memory = work, seconds, memory
        self._pid = self._turns = 0
        self._request: Any = None

    def ask(self, request: Any) -> str:
        """The answer to a request.

        Raises:
            Unfinished: it ran into a limit, or failed, or could not begin.
        """
        self.begin(request)
        return self.text()

    def begin(self, request: Any) -> None:
        """Hand over a request, plain data of ours; `text` waits for the answer."""
        self._request = request
        if self._turns >= _TURNS:
            self.end()
        if _FORKS:
            self._send()

    def text(self) -> str:
        """The answer to what was begun; asked of a new child if the one that had others ends.

        Raises:
            Unfinished: it ran into a limit, or failed, or could not begin.
        """
        if not _FORKS:  # pragma: no cover - Windows grades trusted work only
            return self.work(self._request)
        had_others = self._turns > 1
        try:
            return self._answer()
        except Unfinished:
            if not had_others:
                raise
        self._send()
        return self._answer()

    def end(self) -> int:
        """Kill the child and return its wait status."""
        pid, self._pid, self._turns = self._pid, 0, 0
        if not pid:
            return 0
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    def _send(self) -> None:
        """To the child there is, or to a new one; that it has died is noticed when it is heard."""
        self._refused = ""
        try:
            if not self._pid:
                self._fork()
        except OSError as error:
            self._refused = f"no process could be forked: {error.strerror}"
            return
        self._turns += 1
        try:
            data = pickle.dumps(self._request)
        except RecursionError:
            self._refused = "it is nested too deeply"
            return
        with contextlib.suppress(OSError):
            self._socket.sendall(len(data).to_bytes(_SIZE, "little") + data)

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undone:
            undone.callback(ours.close)
            with warnings.catch_warnings():  # other threads hold no lock that parsing needs
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pid = os.fork()
            if not self._pid:  # pragma: no cover - in the child
                _serve(self.work, theirs, self.seconds, self.memory)
            undone.pop_all()
        self._socket = ours

    def _answer(self) -> str:
        try:
            if self._refused:
                raise Unfinished(self._refused)
            return self._read().decode("utf-8", "replace")
        except (EOFError, OSError):
            raise Unfinished(self._why(self.end())) from None
        except Unfinished:
            self.end()
            raise

    def _why(self, status: int) -> str:
        """Return why a child ended, given its wait status."""
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return f"it took more than {self.seconds} s of processor time"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return "it was killed from outside, as the system does when memory runs out"
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _NO_MEMORY:
            return f"it took more than {self.memory / 1e6:.0f} MB of memory"
        return "it failed"

    def _read(self) -> bytes:
        """All of one answer, up to `MOST` bytes.

        Raises:
            EOFError: the child has ended.
        """
        until = time.monotonic() + _CEILING

        def some(most: int) -> bytes:
            if not select.select([self._socket], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Unfinished("it neither ended nor used processor time")
            return self._socket.recv(min(most, 1 << 20))

        size = int.from_bytes(_whole(some, _SIZE), "little")
        if size > MOST:
            raise Unfinished(f"it gave more than {MOST / 1e6:.0f} MB")
        return _whole(some, size)


def _whole(receive: Callable[[int], bytes], size: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: fewer come.
    """
    data = bytearray()
    while len(data) < size:
        part = receive(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _serve(
    work: Callable[[Any], str], parent: socket.socket, seconds: int, memory: int
) -> NoReturn:  # pragma: no cover - in the child
    """Runs in the child and never returns."""
    code = 2
    try:
        gc.disable()  # it would touch, and so copy, every page of the parent's
        _shut_in(parent.fileno(), memory)
        most = _largest() + memory // 4
        while _largest() < most:  # what once was large may stay so
            size = int.from_bytes(_whole(parent.recv, _SIZE), "little")
            request = pickle.loads(_whole(parent.recv, size))
            _allow(seconds)
            answer = work(request).encode("utf-8", "replace")
            parent.sendall(len(answer).to_bytes(_SIZE, "little") + answer)
    except MemoryError:
        code = _NO_MEMORY
    finally:
        os._exit(code)


def _shut_in(kept: int, memory: int) -> None:  # pragma: no cover - in the child
    """No descriptor but one, no Ctrl-C of its own, so much memory, and an end with its parent."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        lockdown.die_with_parent()
        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
    os.closerange(0, kept)
    os.closerange(kept + 1, 4096)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _largest() -> int:  # pragma: no cover - in the child
    """Bytes of memory that this process held at its largest."""
    import resource

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024


def _allow(seconds: int) -> None:  # pragma: no cover - in the child
    """Limit the processor time from now on; exceeding it raises SIGXCPU."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(time.process_time()) + 1 + seconds
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard - 1)  # at the hard limit the kernel sends SIGKILL
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
