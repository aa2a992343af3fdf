"""A guest's process: what it has used, how it ended, and how it is stopped."""

import contextlib
import json
import select
import signal
import socket
from typing import Any

import psutil

from course_lib.grading.sandbox.cgroup import Group

_END_SECONDS = 120.0


class Forked:
    """A guest's process, through a socket to its host: the guest is killed when that closes."""

    def __init__(self, control: socket.socket, group: Group | None) -> None:
        self._control, self._group = control, group
        self._ending: dict[str, Any] | None = None

    def usage(self) -> tuple[float, float] | None:
        """Return the seconds that its processes had a processor, and waited for one."""
        self._send(b"usage")
        return self._receive(_END_SECONDS).get("usage")

    def ending(self, seconds: float = 0.0) -> dict[str, Any] | None:
        """Return how it ended, waiting that long; None if it is not known to have ended."""
        self._receive(seconds)
        return self._ending

    def interrupt(self) -> None:
        """Send SIGINT."""
        self._send(b"interrupt")

    def kill(self) -> None:
        """End it and everything it started."""
        self._send(b"kill")
        self._receive(_END_SECONDS)
        self._ending = self._ending or {"reason": "host"}

    def _send(self, request: bytes) -> None:
        with contextlib.suppress(OSError):  # its host has ended, which the next event tells
            self._control.send(request)

    def _receive(self, seconds: float) -> dict[str, Any]:
        """Return the next event, an empty one if there is none by then."""
        if self._ending or not select.select([self._control], [], [], seconds)[0]:
            return {}
        data = b""
        with contextlib.suppress(OSError):
            data = self._control.recv(1 << 16)
        event = json.loads(data) if data else {"reason": "host"}
        if "reason" in event:
            self._control.close()
            if self._group is not None and self._group.remove():
                event["reason"] = "memory"
            self._ending = event
        return event


class Spawned:
    """A guest's process that was started anew."""

    def __init__(self, process: psutil.Popen) -> None:
        self._process = process

    def usage(self) -> tuple[float, float]:
        cpu = 0.0
        for each in self._family():
            with contextlib.suppress(psutil.Error):
                cpu += sum(each.cpu_times()[:4])  # its own, and its late children's
        return cpu, 0.0

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
