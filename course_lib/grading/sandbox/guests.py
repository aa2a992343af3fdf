"""Send cells and probe requests to a guest, enforce time limits, and validate its replies."""

import contextlib
import json
import select
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

import psutil
from nbformat import NotebookNode

from course_lib.grading.clean_outputs import made_output
from course_lib.grading.sandbox.cgroup import Group
from course_lib.grading.sandbox.inside.frames import FrameError, encode, read_frames

START_SECONDS = 600.0  # for steps that run no student code, on a busy machine
_END_SECONDS = 120.0
_GRACE_SECONDS = 1.0
_CEILING = 10  # most wall-clock time, as a multiple of a limit; then the machine is too busy
_LOOK_SECONDS = 0.25  # between measurements of a cell; the first follows after a tick
_TICK_SECONDS = 0.1
_MOST_SENT = 50  # bytes of a cell's frames, as a multiple of the output kept, for short prints
_MOST_NAMES, _LONGEST_NAME = 1_000, 200  # displays that can be updated; characters
_COST = 1_000  # bytes of a worker's memory for an output, in addition to its content


class GuestLost(Exception):
    """A guest could not be started, or was lost for reasons outside the student's code."""


@dataclass
class GuestResult:
    """The result of a cell or a probe request."""

    state: str = "ok"  # or "error", "timeout" (stopped in time), "killed" (by us), "died"
    outputs: list[NotebookNode] = field(default_factory=list)  # cut at the limit
    count: int | None = None  # IPython's execution count
    left: bool = False  # the cell asked the interpreter to exit, as `exit()` does
    crowded: bool = False  # it left threads or processes running
    reply: str | None = None  # the answer to a probe request, as text
    size: int = 0  # bytes of its outputs
    flooded: bool = False  # the outputs exceeded the limit
    stopped: str = ""  # by the limit "cpu", "waiting" or "ceiling"
    seconds: float = 0.0  # counted time, see `_Watch`


class Forked:
    """A guest's process, controlled by a socket to its host. Closing the socket kills the guest."""

    def __init__(self, control: socket.socket, group: Group | None) -> None:
        self._control, self._group = control, group
        self._ending: dict[str, Any] | None = None

    def usage(self) -> tuple[float, float, float] | None:
        """Return the time, the seconds of CPU time, and those in which nothing wanted a CPU."""
        self._send(b"usage")
        used = self._receive(_END_SECONDS).get("usage")
        if used and self._group:
            used[1] = self._group.cpu_seconds()
        return used

    def ending(self, seconds: float = 0.0) -> dict[str, Any] | None:
        """Wait up to `seconds` and return how the guest ended, or None if that is still unknown."""
        self._receive(seconds)
        return self._ending

    def interrupt(self) -> None:
        self._send(b"interrupt")

    def kill(self) -> None:
        self._send(b"kill")
        self._receive(_END_SECONDS)
        self._ending = self._ending or {"reason": "host"}

    def _send(self, request: bytes) -> None:
        with contextlib.suppress(OSError):  # the host has ended, as the next event reports
            self._control.send(request)

    def _receive(self, seconds: float) -> dict[str, Any]:
        """Return the next event, or an empty one if none arrives in time."""
        if self._ending or not select.select([self._control], [], [], seconds)[0]:
            return {}
        event = {"reason": "host"}
        with contextlib.suppress(OSError, ValueError):  # the socket was closed
            event = json.loads(self._control.recv(1 << 16))
        if "reason" in event:
            self._control.close()
            if self._group is not None and self._group.remove():
                event["reason"] = "memory"
            self._ending = event
        return event


class Spawned:
    """A guest's process that was started without a host."""

    def __init__(self, process: psutil.Popen) -> None:
        self._process = process

    def usage(self) -> tuple[float, float, float]:
        cpu, now = 0.0, time.monotonic()
        for each in self._family():
            with contextlib.suppress(psutil.Error):
                cpu += sum(each.cpu_times()[:4])  # its own and that of its dead children
        return now, cpu, now  # waiting is not measured, so all elapsed time counts

    def ending(self, seconds: float = 0.0) -> dict[str, Any] | None:
        with contextlib.suppress(psutil.TimeoutExpired):
            code = self._process.wait(seconds)
            return {"reason": "signal" if code < 0 else "exit", "code": abs(code)}
        return None

    def interrupt(self) -> None:
        with contextlib.suppress(psutil.Error, ValueError):  # it has ended; Windows has no SIGINT
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        for each in self._family():
            with contextlib.suppress(psutil.Error):
                each.kill()
        self._process.wait()

    def _family(self) -> list[Any]:
        with contextlib.suppress(psutil.Error):
            return [*self._process.children(recursive=True), self._process]
        return []


class Guest:
    """One guest: a process that runs a submission's cells, and the pipes from it and to it."""

    def __init__(
        self, process: Forked | Spawned, level: str, reading: Any, writing: Any, most_output: int
    ) -> None:
        self.process, self.level, self.most_output = process, level, most_output
        self.received = 0  # all bytes, kept or not, plus the cost of outputs
        self._reading, self._writing = reading, writing
        self._writer: threading.Thread | None = None
        self._frames = read_frames(self._read)
        self._displays: dict[str, list[NotebookNode]] = {}
        self._clear_next = self._closed = False
        self._number = 0  # number of the latest request

    def wait_ready(self) -> Self:
        """Wait until the guest is confined and ready, and raise GuestLost if that fails."""
        until, frame = time.monotonic() + START_SECONDS, {}
        with contextlib.suppress(FrameError):
            while not frame and time.monotonic() < until:
                frame, _ = next(self._frames, ({"kind": "end"}, 0)) or ({}, 0)
        if frame.get("kind") != "ready":
            ending = self.process.ending(1.0) or {}
            self.kill()
            why = frame.get("text") or ending.get("detail") or ending.get("reason") or "no answer"
            raise GuestLost(f"a guest did not start ({why.strip().splitlines()[-1]})")
        return self

    @property
    def is_over(self) -> bool:
        return self._closed or self.process.ending() is not None

    def run(
        self, code: str, seconds: float, *, history: bool = True, cell_id: str = ""
    ) -> GuestResult:
        """Run a cell. Interrupt it when its time is used up, and kill it a second later."""
        frame = {"run": code, "history": history, "cell_id": cell_id or None}
        return self._ask(frame, seconds, self.most_output, is_cell=True)

    def observe(self, request: str, seconds: float) -> GuestResult:
        """Send an encoded probe request. Output that the student's answer prints is dropped."""
        return self._ask({"observe": request}, seconds, 10 * self.most_output, is_cell=False)

    def kill(self) -> dict[str, Any]:
        """Kill the guest and everything it started, and return how it ended."""
        if not self._closed:
            self._closed = True
            self.process.kill()
            if self._writer is not None:
                self._writer.join(_GRACE_SECONDS)
            self._reading.close()
            self._writing.close()
        return self.process.ending() or {}

    def _ask(self, frame: dict, seconds: float, most: int, *, is_cell: bool) -> GuestResult:
        if self._closed:
            return GuestResult("died")
        ran, watch, is_over = GuestResult(), _Watch(self.process, seconds), False
        most_received = self.received + _MOST_SENT * self.most_output
        self._number += 1
        data = memoryview(encode(frame | {"number": self._number}))
        self._writer = threading.Thread(target=self._write, args=[data], daemon=True)
        self._writer.start()
        while True:
            try:
                arrived = next(self._frames)
                if arrived and self._take(*arrived, ran, most, keep=is_cell):
                    break
                is_over = arrived is None and self.is_over and not self._arrives(0.0)
            except (StopIteration, FrameError):  # it was killed before it could say why
                self.process.ending(_GRACE_SECONDS)
                is_over = True
            is_interrupted = ran.state == "timeout"
            if is_over:
                ran.state = "timeout" if is_interrupted else "died"
                break
            stopped, has_filled = watch.used_up(), self.received > most_received
            ran.flooded |= has_filled
            must_stop = stopped or (ran.flooded and not is_interrupted)
            if not is_interrupted:
                ran.stopped = stopped
            at_once = is_interrupted or not is_cell or stopped == "ceiling"
            if has_filled or (must_stop and at_once):
                ran.state = "killed"
                break
            if must_stop:
                ran.state = "timeout"
                self.process.interrupt()
                ran.seconds, watch = watch.seconds, _Watch(self.process, _GRACE_SECONDS)
        if watch.before:  # the time since the last measurement may belong to other programs too
            watch.look()
        ran.seconds += watch.seconds
        for output in ran.outputs:
            if output.output_type == "stream":
                output.text = "".join(output.text)
        if is_over or ran.state == "killed":
            self.process.kill()
        return ran

    def _write(self, data: memoryview) -> None:
        """Write to the guest in a separate thread, because a guest may stop reading."""
        with contextlib.suppress(OSError):  # the process has ended
            while data:
                data = data[self._writing.write(data) :]

    def _read(self) -> bytes | None:
        if not self._arrives(_TICK_SECONDS):
            return None
        data = self._reading.read(1 << 18)
        self.received += len(data)
        return data

    def _arrives(self, seconds: float) -> bool:
        return bool(select.select([self._reading], [], [], seconds)[0])

    def _take(self, frame: dict, size: int, ran: GuestResult, most: int, *, keep: bool) -> bool:
        """Count an output, keep it if `keep`, and return whether the frame is the last one."""
        kind = frame.get("kind")
        if kind in ("done", "reply"):
            if frame.get("number") != self._number:
                return False  # forged, or a late answer to an abandoned request
            if kind == "reply":
                ran.reply = str(frame.get("text"))
            elif ran.state == "ok" and not frame.get("ok"):
                ran.state = "error"
            ran.left, ran.crowded = frame.get("left") is True, frame.get("crowded") is True
            ran.count = _number(frame.get("count"))
            return True
        if kind == "clear":
            self._clear_next = frame.get("wait") is True
            if not self._clear_next:
                ran.outputs.clear()
            return False
        output = _output(frame)
        name = str(frame.get("display_id"))[:_LONGEST_NAME]
        shown = self._displays.get(name, [])
        last = ran.outputs[-1] if ran.outputs else {}
        if output.output_type == "stream":
            ran.size += max(len(output.text[0]), _number(frame.get("size")) or 0)
        else:
            ran.size += size * (max(1, len(shown)) if kind == "update" else 1)
        ran.flooded = ran.size > most
        if not keep or ran.flooded:
            return False
        if kind == "update":
            for each in shown:
                each.update(data=output.data, metadata=output.metadata)
        elif not self._clear_next and last.get("name") == kind:
            last["text"] += output.text
        else:
            if self._clear_next:
                ran.outputs.clear()
            self._clear_next = False
            ran.outputs.append(output)
            ran.size += _COST // 10
            self.received += _COST
            is_named = kind == "display" and frame.get("display_id") is not None
            if is_named and (shown or len(self._displays) < _MOST_NAMES):
                self._displays.setdefault(name, []).append(output)
        return False


def _output(frame: dict[str, Any]) -> NotebookNode:
    """Return a frame as an output. The text of a stream is a list of its parts."""
    kind = frame.get("kind")
    if kind in ("stdout", "stderr"):
        return made_output("stream", name=kind, text=[str(frame.get("text"))])
    if kind == "error":
        lines = str(frame.get("traceback")).split("\n")
        names = {key: str(frame.get(key)) for key in ("ename", "evalue")}
        return made_output("error", traceback=lines, **names)
    bundle = {"data": frame.get("data"), "metadata": frame.get("metadata", {})}
    if kind not in ("display", "update", "result") or {*map(type, bundle.values())} != {dict}:
        raise FrameError(f"a frame of kind {str(kind)[:40]!r}")
    count = {"execution_count": None} if kind == "result" else {}
    return made_output("execute_result" if count else "display_data", **bundle, **count)


def _number(count: object) -> int | None:
    """Return a count, or None for a value that a notebook cannot hold as a count."""
    return count if type(count) is int and count >= 0 else None


class _Watch:
    """A meter of counted time, which is elapsed time minus what other programs take away.

    Time is counted while a guest's processes use a CPU, and while none of them wants one. Other
    programs therefore cost a cell nothing, and processes of a cell that wait for each other gain
    nothing.
    """

    def __init__(self, process: Forked | Spawned, limit: float) -> None:
        self.process, self.limit = process, limit
        self.started = self.looked = time.monotonic()
        self.before: tuple[float, float, float] | None = None
        self.waited = self.cpu = 0.0

    @property
    def seconds(self) -> float:
        """Return the counted time, at most the limit, for a submission's total."""
        elapsed = time.monotonic() - self.started
        return max(min(elapsed - self.waited, self.limit), elapsed / _CEILING)

    def look(self) -> None:
        """Measure what the processes have used, and how long they waited for other programs."""
        if used := self.process.usage():
            self.before = self.before or used
            elapsed, self.cpu, idle = (a - b for a, b in zip(used, self.before, strict=True))
            self.waited = max(elapsed - self.cpu - idle, 0.0)

    def used_up(self) -> str:
        """Return the name of the exceeded limit as in `GuestResult.stopped`, or ""."""
        now = time.monotonic()
        pause = _LOOK_SECONDS if self.before else _TICK_SECONDS
        if now - self.looked < min(pause, self.limit / 10):
            return ""
        self.looked = now
        self.look()
        if self.cpu > self.limit:
            return "cpu"
        if now - self.started - self.waited > self.limit:
            return "waiting" if self.cpu < self.limit / 4 else "cpu"
        return "ceiling" if now - self.started > _CEILING * self.limit else ""
