"""Speaks to one kernel: runs code, collects what it puts out, and stops what takes too long.

jupyter_client writes and reads the messages, `channels` brings them. Everything that arrives was
made beside a student's code: bytes are counted as they come, and a message that is too large or
not understood is left out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from jupyter_client.session import Session
from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

from course_lib.grading.kernels.channels import MAX_MESSAGE, Channel
from course_lib.grading.kernels.guest import NO_FRONT_END
from course_lib.grading.kernels.guest.meter import Used
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault

_GRACE_SECONDS = 1.0
_CEILING = 40  # times a limit by the clock: a machine that is as busy as that cannot grade
_TICK_SECONDS = 0.05
_ASK_AGAIN_SECONDS = 0.2
Attached = Mapping[str, Any] | None
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


@dataclass
class Ran:
    """What became of one piece of code.

    Attributes:
        state: "ok", "error", "timeout" (stopped in time), "killed" (did not stop, or put out
            too much) or "died".
        outputs: nbformat outputs, the first ones up to the limit.
        stopped: why it was stopped, if by a limit: "processor", "waiting" or "ceiling".
        size: bytes that the outputs took on the way.
        used: processor time and waiting, of all that the kernel started, too, up to the limit.
        seconds: until the kernel was idle again.
    """

    state: str
    outputs: list[NotebookNode] = field(default_factory=list)
    count: int | None = None
    size: int = 0
    stopped: str = ""
    used: Used = field(default_factory=Used)
    seconds: float = 0.0
    flooded: bool = False


class _Allowance:
    """What a kernel may use from now on.

    Args:
        kernel: whose.
        seconds: of processor time, and as many in which nothing of it wants to run.
    """

    def __init__(self, kernel: Kernel, seconds: float) -> None:
        self.kernel, self.seconds = kernel, seconds
        self._ceiling = time.monotonic() + _CEILING * seconds
        self._first = self._last = kernel.used() or Used()
        self._looked = time.monotonic()

    @property
    def used(self) -> Used:
        """What it has used, also beyond what it may; the last that was known where it has ended."""
        self._last = self.kernel.used() or self._last
        return self._last - self._first

    @property
    def counted(self) -> Used:
        """What counts of it: no more than it may use, since we look late on a busy machine."""
        used = self.used
        return Used(min(used.processor, self.seconds), min(used.waiting, self.seconds))

    def spent(self) -> str:
        """Which of `Ran.stopped` it has used up; empty if none, or it was asked a moment ago."""
        if time.monotonic() < self._looked + _TICK_SECONDS:
            return ""
        self._looked, used = time.monotonic(), self.used
        if used.processor > self.seconds:
            return "processor"
        if used.waiting > self.seconds:
            return "waiting"
        return "ceiling" if time.monotonic() > self._ceiling else ""


class Client:
    """The connection to a kernel.

    Args:
        kernel: whom to speak to.
        most_output: bytes of output kept of one piece of code; ten times as much ends the kernel.
    """

    def __init__(self, kernel: Kernel, most_output: int = 1_000_000) -> None:
        self.kernel, self.most_output = kernel, most_output
        connection = kernel.connection
        self._session = Session(key=connection["key"].encode())
        self._session.signature_scheme = connection["signature_scheme"]
        names = ("shell", "control", "iopub")
        self._channels = {name: Channel(connection, name) for name in names}

    @property
    def received(self) -> int:
        """Bytes that came from the kernel, kept or not."""
        return sum(channel.received for channel in self._channels.values())

    def wait_ready(self, seconds: float) -> Client:
        """Wait until the kernel's output arrives.

        Raises:
            KernelFault: it ends before, or takes longer.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.kernel.over.is_set():
            # It greets whoever listens to its output. What it put out before is lost: an answer
            # that never came may have been there, so it is asked again.
            if self._next("iopub", _ASK_AGAIN_SECONDS) is not None:
                return self
            self._send("shell", "kernel_info_request")
        self.close()
        why = self.kernel.ending.get("reason", f"it did not answer within {seconds:.0f} s")
        raise KernelFault(f"a kernel did not start ({why})")

    def _hear(self, request: str, limit: _Allowance) -> None:
        """Wait until a request was answered and its output has ended, as long as a limit allows."""
        heard: set[str] = set()
        while len(heard) < 2 and not limit.spent() and not self.kernel.over.is_set():
            for channel in {"shell", "iopub"} - heard:
                message = self._next(channel, 0.01)
                if _is_about(message, {request}) and (channel == "shell" or _says_idle(message)):
                    heard.add(channel)

    def run(
        self, code: str, seconds: float, *, silent: bool = False, attached: Attached = None
    ) -> Ran:
        """Run a cell's code for `seconds` of its own time; then interrupt it, a second later kill.

        Args:
            seconds: of processor time of all that it has started, and as many in which nothing of
                it wants to run; time in which others have the processor is not counted.
            silent: whether the cell is left out of the history.
            attached: what the code finds as its message's metadata; IPython reads none of it.
        """
        started, allowance = time.monotonic(), _Allowance(self.kernel, seconds)
        most, before = MAX_MESSAGE if silent else self.most_output, self.received
        request = self._execute(code, history=not silent, attached=attached)
        ran, limit, interrupted = Ran("ok"), allowance, False
        while True:
            message = self._next("iopub", _TICK_SECONDS)
            size = self.received - before
            if _is_about(message, {request}):
                if _says_idle(message):
                    break
                if size <= most:
                    _take(message, ran)
                    ran.size = size
            if self.kernel.over.is_set() and message is None:
                ran.state = "died"
                break
            ran.flooded = ran.flooded or size > most
            spent = limit.spent()
            ran.stopped = ran.stopped if interrupted else spent
            if size > 10 * most or spent == "ceiling" or (interrupted and spent):
                self.kernel.kill()
                ran.state = "killed"
                break
            if not interrupted and (spent or ran.flooded):
                self._interrupt()
                interrupted, limit = True, _Allowance(self.kernel, _GRACE_SECONDS)
                ran.state = "timeout"
        if ran.state == "timeout":
            self._absorb_interrupt()
        ran.seconds, ran.used = time.monotonic() - started, allowance.counted
        if ran.state == "ok":
            self._finish(request, ran)
        return ran

    def _absorb_interrupt(self) -> None:
        """Wait until the interrupt was sent, and let it hit nothing that matters.

        The code may have ended by itself just before; the next cell must not pay for that.
        """
        sent = _Allowance(self.kernel, _GRACE_SECONDS)
        while self._next("control", _TICK_SECONDS) is None:
            if sent.spent() or self.kernel.over.is_set():
                break
        request = self._execute("pass", history=False)
        self._hear(request, _Allowance(self.kernel, _GRACE_SECONDS))

    def _finish(self, request: str, ran: Ran) -> None:
        limit = _Allowance(self.kernel, _GRACE_SECONDS)
        while not limit.spent() and not self.kernel.over.is_set():
            reply = self._next("shell", _TICK_SECONDS)
            if _is_about(reply, {request}):
                content = reply.get("content", {})
                ran.state = "ok" if content.get("status") == "ok" else "error"
                count = content.get("execution_count")
                ran.count = count if type(count) is int else None
                return
        ran.state = "error"

    def _next(self, channel: str, seconds: float) -> dict[str, Any] | None:
        for each in self._channels.values():
            each.flush()
        frames = self._channels[channel].receive(seconds)
        if frames is None:
            return None
        try:
            return self._session.deserialize(self._session.feed_identities(frames)[1])
        except Exception:  # unsigned, or not a message at all
            return None

    def _send(
        self, channel: str, kind: str, content: dict | None = None, attached: Attached = None
    ) -> str:
        """Send a request; return its id."""
        message = self._session.msg(kind, content=content, metadata=dict(attached or {}))
        self._channels[channel].send(self._session.serialize(message))
        return message["msg_id"]

    def _execute(self, code: str, *, history: bool, attached: Attached = None) -> str:
        asked = {"code": code, "silent": False, "store_history": history}
        asked |= {"user_expressions": {}, "allow_stdin": False, "stop_on_error": False}
        return self._send(
            "shell", "execute_request", asked, {NO_FRONT_END: True, **(attached or {})}
        )

    def _interrupt(self) -> None:
        self._send("control", "interrupt_request")

    def close(self) -> None:
        """Drop the connection; the kernel goes on."""
        for channel in self._channels.values():
            channel.close()


def _take(message: dict, ran: Ran) -> None:
    """Keep an output."""
    if message.get("msg_type") in _OUTPUTS:
        with contextlib.suppress(Exception):  # a message that only looks like an output
            output = output_from_msg(message)
            last = ran.outputs[-1] if ran.outputs else {}
            if output.output_type == "stream" and last.get("name") == output.name:
                last["text"] += output.text
            else:
                ran.outputs.append(output)


def _is_about(message: dict | None, requests: set[str]) -> TypeGuard[dict]:
    return message is not None and message.get("parent_header", {}).get("msg_id") in requests


def _says_idle(message: dict) -> bool:
    content = message.get("content", {})
    return message.get("msg_type") == "status" and content.get("execution_state") == "idle"
