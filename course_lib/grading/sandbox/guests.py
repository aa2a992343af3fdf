"""Start guests, speak to them, and stop what takes too long.

Everything that a guest sends was made beside student code: bytes are counted as they arrive, and
nothing is believed that cannot be checked.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nbformat import NotebookNode

from course_lib.grading.sandbox.confinement import Reached
from course_lib.grading.sandbox.inside.frames import FrameError, Parser, encode
from course_lib.grading.sanitize import made_output

START_SECONDS = 600.0  # for steps that run no student code, on a busy machine
_GRACE_SECONDS = 1.0
_CEILING = 40  # times a limit by the clock: a machine that is as busy as that cannot grade
_LOOK_SECONDS = 1.0  # between two looks at what a cell has used
_TICK_SECONDS = 0.1
_READ = 1 << 18


class GuestLost(Exception):
    """A guest could not be had, or was lost for reasons outside the student's code."""


@dataclass
class Ran:
    """What became of a cell or a probe request.

    Attributes:
        state: "ok", "error", "timeout" (stopped in time), "killed" (did not stop, or sent too
            much) or "died".
        outputs: nbformat outputs, the first ones up to the limit.
        count: IPython's number of the cell.
        left: whether the cell asked the interpreter to end, as `exit()` does.
        crowded: whether threads or processes that it started still run.
        reply: the answer to a probe request, as text.
        size: bytes of its outputs.
        stopped: why it was stopped, if by a limit: "processor", "waiting" or "ceiling".
        seconds: by the clock, less the time in which other processes had the processor.
    """

    state: str = "ok"
    outputs: list[NotebookNode] = field(default_factory=list)
    count: int | None = None
    left: bool = False
    crowded: bool = False
    reply: str | None = None
    size: int = 0
    stopped: str = ""
    seconds: float = 0.0
    flooded: bool = False


class Guests(Protocol):
    """Starts guests at one sandbox level."""

    reached: Reached

    def start(self, imports: Sequence[str] = ()) -> Guest:
        """Start a guest; it need not be ready yet.

        Args:
            imports: modules that it finds imported, where it is forked.
        """
        ...

    def usage(self, guest: Guest) -> dict[str, float] | None:
        """Return what a guest's processes have used: `cpu` and `waited`, in seconds."""
        ...

    def ending(self, guest: Guest, seconds: float = 0.0) -> dict[str, Any] | None:
        """Return how a guest ended, waiting that long; None if it is not known to have ended."""
        ...

    def interrupt(self, guest: Guest) -> None:
        """Send SIGINT."""

    def kill(self, guest: Guest) -> None:
        """End a guest and everything it started."""

    def close(self) -> None:
        """End all guests and clean up."""


class Guest:
    """One guest: a process that runs a submission's cells.

    Args:
        name: unique among the guests of a host.
        guests: who started it.
        reading: descriptor of the pipe that its frames come from.
        writing: descriptor of the pipe to it.
        most_output: bytes of output kept of one cell; ten times as much ends the guest.
    """

    def __init__(
        self, name: str, guests: Guests, reading: int, writing: int, most_output: int
    ) -> None:
        self.name, self.guests, self.most_output = name, guests, most_output
        self.received = 0  # bytes in all, kept or not
        self.seconds = 0.0  # that its start took, in its own process
        self._reading, self._writing = reading, writing
        self._parser = Parser()
        self._displays: dict[str, list[NotebookNode]] = {}
        self._clear_next = self._closed = False
        self._number = 0  # of the latest request

    def wait_ready(self) -> Guest:
        """Wait until it is confined and ready.

        Raises:
            GuestLost: it ends before, or takes too long.
        """
        if self.seconds:
            return self
        until, frame = time.monotonic() + START_SECONDS, {}
        with contextlib.suppress(EOFError, FrameError):
            while not frame and time.monotonic() < until and not self.is_over:
                frame = (self._next(_TICK_SECONDS) or ({}, 0))[0]
        if frame.get("kind") != "ready":
            ending = self.guests.ending(self, 1.0) or {}
            text = str(frame.get("text") or ending.get("detail") or ending.get("reason", ""))
            self.kill()
            why = text.strip().splitlines()[-1:] or ["it never answered"]
            raise GuestLost(f"a guest did not start ({why[0]})")
        self.seconds = float(frame["seconds"]) or 1e-9
        return self

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._closed or self.guests.ending(self) is not None

    def run(self, code: str, seconds: float, *, history: bool = True, cell_id: str = "") -> Ran:
        """Run a cell for `seconds` of its own time; then interrupt it, a second later kill it.

        Args:
            code: source of the cell.
            seconds: of processor time of all its processes, and by the clock less the time in
                which they waited for a processor.
            history: whether the cell gets a number.
            cell_id: nbformat's id of the cell.
        """
        frame = {"run": code, "history": history, "cell_id": cell_id or None}
        return self._ask(frame, seconds, self.most_output, interrupt=True)

    def observe(self, request: str, seconds: float) -> Ran:
        """Answer an encoded probe request; what the student's answer prints is left out."""
        return self._ask({"observe": request}, seconds, 10 * self.most_output, interrupt=False)

    def kill(self) -> dict[str, Any]:
        """End it and everything it started; return how it ended."""
        if not self._closed:
            self.guests.kill(self)
            self._closed = True
            for descriptor in {self._reading, self._writing}:
                os.close(descriptor)
        return self.guests.ending(self) or {}

    def _ask(self, frame: dict[str, Any], seconds: float, most: int, *, interrupt: bool) -> Ran:
        if self._closed:
            return Ran("died")
        ran = Ran()
        watch = _Watch(self, seconds)
        self._number += 1
        self._write(encode(frame | {"number": self._number}), watch)
        while True:
            try:
                arrived = self._next(_TICK_SECONDS)
                if arrived is not None and self._take(*arrived, ran, most, keep=interrupt):
                    break
            except (EOFError, FrameError) as error:
                arrived = None
                if isinstance(error, EOFError):  # killed before it has ended, it could not say why
                    self.guests.ending(self, _GRACE_SECONDS)
                self.guests.kill(self)
            if arrived is None and self.is_over:
                ran.state = ran.state if ran.state == "timeout" else "died"
                break
            ran.flooded = ran.flooded or ran.size > most
            if ran.size > 10 * most:
                ran.state = "killed"
                break
            stopped = watch.used_up()
            if ran.state != "timeout" and (stopped or ran.flooded):
                ran.state, ran.stopped = "timeout", stopped
                if stopped == "ceiling" or not interrupt:
                    ran.state = "killed"
                    break
                self.guests.interrupt(self)
                own, watch = watch, _Watch(self, _GRACE_SECONDS)
                ran.seconds = own.seconds
            elif stopped:
                ran.state = "killed"
                break
        ran.seconds += watch.seconds
        if ran.state in ("killed", "died"):
            self.guests.kill(self)
        return ran

    def _write(self, data: bytes, watch: _Watch) -> None:
        """Write to the guest as fast as it reads, until it has ended or used up its time."""
        view = memoryview(data)
        while view and not self.is_over and not watch.used_up():
            if select.select([], [self._writing], [], _TICK_SECONDS)[1]:
                with contextlib.suppress(BlockingIOError):
                    try:
                        view = view[os.write(self._writing, view) :]
                    except OSError:
                        return

    def _next(self, seconds: float) -> tuple[dict[str, Any], int] | None:
        """Return the next frame and its size, or None if none is complete by then.

        Raises:
            EOFError: the pipe is closed.
            FrameError: something other than a frame arrived.
        """
        while (taken := self._parser.take()) is None:
            if not select.select([self._reading], [], [], seconds)[0]:
                return None
            data = os.read(self._reading, _READ)
            if not data:
                raise EOFError
            self.received += len(data)
            self._parser.feed(data)
        return taken

    def _take(self, frame: dict[str, Any], size: int, ran: Ran, most: int, *, keep: bool) -> bool:
        """Count an output, and keep it if asked; return whether the frame is the last one.

        Raises:
            FrameError: it is none of a guest's frames.
        """
        kind = frame.get("kind")
        if kind in ("done", "reply") and frame.get("number") != self._number:
            return False  # forged, or an answer to a request that was given up
        if kind == "done":
            if ran.state == "ok" and not frame.get("ok"):
                ran.state = "error"
            ran.left, ran.crowded = frame.get("left") is True, frame.get("crowded") is True
            ran.count = _number(frame.get("count"))
            return True
        if kind == "reply":
            ran.reply = str(frame.get("text"))
            return True
        if kind == "clear":
            self._clear_next = frame.get("wait") is True
            if not self._clear_next:
                ran.outputs.clear()
            return False
        if kind in ("stdout", "stderr"):
            text = str(frame.get("text"))
            ran.size += max(len(text), _number(frame.get("size")) or 0)
            output = made_output("stream", name=kind, text=text)
        else:
            shown = self._displays.get(str(frame.get("display_id")), []) if kind == "update" else []
            ran.size += size * max(1, len(shown))
            output = _output(frame)
        if keep and ran.size <= most:
            self._keep(output, frame, ran)
        return False

    def _keep(self, output: NotebookNode, frame: dict[str, Any], ran: Ran) -> None:
        name = frame.get("display_id")
        if frame.get("kind") == "update":
            for shown in self._displays.get(str(name), []):
                shown.update(data=output.data, metadata=output.metadata)
            return
        if self._clear_next:
            self._clear_next = False
            ran.outputs.clear()
        last = ran.outputs[-1] if ran.outputs else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
            return
        ran.outputs.append(output)
        if name is not None:
            self._displays.setdefault(str(name), []).append(output)


def _output(frame: dict[str, Any]) -> NotebookNode:
    kind = frame.get("kind")
    if kind == "error":
        traceback = frame.get("traceback")
        lines = [str(line) for line in traceback] if isinstance(traceback, list) else []
        names = {key: str(frame.get(key)) for key in ("ename", "evalue")}
        return made_output("error", traceback=lines, **names)
    data, metadata = frame.get("data"), frame.get("metadata")
    if kind not in ("display", "update", "result") or not isinstance(data, dict):
        raise FrameError(f"a frame of kind {str(kind)[:40]!r}")
    bundle = {"data": data, "metadata": metadata if isinstance(metadata, dict) else {}}
    if kind == "result":
        return made_output("execute_result", execution_count=_number(frame.get("count")), **bundle)
    return made_output("display_data", **bundle)


def _number(count: object) -> int | None:
    """Return a cell's number, None for what a notebook cannot hold as one."""
    return count if type(count) is int and count >= 0 else None


class _Watch:
    """Measures what a cell uses, as rarely as its limit allows."""

    def __init__(self, guest: Guest, limit: float) -> None:
        self.guest, self.limit = guest, limit
        self.started = self.looked = time.monotonic()
        self.before: dict[str, float] | None = None
        self.waited = self.cpu = 0.0

    @property
    def seconds(self) -> float:
        """The time by the clock, less the time in which others had the processor."""
        return min(time.monotonic() - self.started - self.waited, self.limit)

    def used_up(self) -> str:
        """Return which limit is reached (see `Ran.stopped`), or "" if none is known to be."""
        now = time.monotonic()
        if now - self.looked < min(_LOOK_SECONDS, self.limit / 4):
            return ""
        self.looked = now
        used = self.guest.guests.usage(self.guest)
        if used is not None:
            self.before = self.before or used
            self.cpu = used["cpu"] - self.before["cpu"]
            self.waited = min(used["waited"] - self.before["waited"], now - self.started)
        if self.cpu > self.limit:
            return "processor"
        if now - self.started - self.waited > self.limit:
            return "waiting" if self.cpu < self.limit / 4 else "processor"
        return "ceiling" if now - self.started > _CEILING * self.limit else ""
