"""Kernels forked from a zygote, which this process has started or joins."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib.grading.kernels import cgroup, sandbox
from course_lib.grading.kernels.guest.meter import Used, file_of, read_used
from course_lib.grading.kernels.launch import DOOR, Zygote, spool_of
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault
from course_lib.grading.kernels.sandbox import Limits, Reached
from course_lib.grading.kernels.staged_library import library_of

# Events are waited for in which no student's code has a hand: a busy machine takes its time.
START_SECONDS = 600.0
_END_SECONDS = 120.0
_UIDS = 32  # users of one provider, by turns
_WRITABLE = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR")  # folders that programs write to
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}


class ForkedKernels:
    """Kernels forked from a zygote, which is replaced when it dies.

    Args:
        level: of the sandbox.
        limits: what each kernel may use.
        reasons: why no higher level is had, by level.
        joins: folder of a zygote that another process has started and that is joined, not owned;
            one of our own is started where that fails, now or later.
        lesson: that is graded.

    Raises:
        KernelFault: the zygote or its first kernel does not come up at this level.
    """

    def __init__(
        self,
        level: str,
        limits: Limits,
        reasons: dict[str, str],
        joins: Path | None = None,
        lesson: str = "",
    ) -> None:
        self.limits, self.lesson = limits, lesson
        self.reached = Reached(level, {k: v for k, v in reasons.items() if k != level})
        self._claim, first = (
            sandbox.claim_users(_UIDS) if level == "strict" else (None, sandbox.FIRST_UID)
        )
        self._uids = itertools.cycle(range(first, first + _UIDS))
        self._kernels: dict[str, Kernel] = {}
        self._groups: dict[str, cgroup.Group] = {}
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._channel: socket.socket | None = None
        try:
            if joins is None or not self._join(joins):
                self._launch()
                self._try_out()
        except BaseException:
            self.close()
            raise

    def start(
        self, seed: int, env: dict[str, str] | None = None, imports: Sequence[str] = ()
    ) -> Kernel:
        """Fork a kernel; a zygote that has died is replaced first."""
        with self._lock:
            if self._channel is None:
                self._stop()
                self._launch()
            name = secrets.token_hex(4)
            place = spool_of(self.folder) / name
            place.mkdir(mode=0o700)
            uid = next(self._uids) if os.getuid() == 0 and self._level == "strict" else None
            if uid is not None:
                os.chown(place, uid, uid)
            kernel = Kernel(name, _connection(place), self)
            self._kernels[name] = kernel
            request = self._fork_request(kernel, place, uid, seed, env or {})
            group = cgroup.group(name, self.limits.memory, self.limits.processes)
            doors = []
            if group is not None:
                self._groups[name], doors = group, [group.door]
            self._send(request | {"imports": list(imports), "group": bool(doors)}, doors)
        return kernel

    def kill(self, kernel: Kernel) -> None:
        """Ask the kernel's watchdog to end it; without an answer end the zygote and all."""
        if kernel.over.is_set():
            return
        with self._lock, contextlib.suppress(OSError, KernelFault):
            self._send({"request": "kill", "name": kernel.name})
        if not kernel.over.wait(_END_SECONDS):
            self._stop()

    def used(self, kernel: Kernel) -> Used | None:
        """What the kernel's watchdog has noted."""
        return read_used(spool_of(self.folder), kernel.name)

    def close(self) -> None:
        """End all kernels, and the zygote if it is ours; remove every file."""
        self._stop()
        if self._claim is not None:
            self._claim.close()

    @property
    def _level(self) -> str:
        return self.reached.level

    @property
    def _process(self) -> subprocess.Popen | None:
        """The zygote's process, if it is ours."""
        return self._zygote.process if self._zygote else None

    def _launch(self) -> None:
        self._zygote = Zygote(self._level, self.lesson)
        self.folder = self._zygote.folder
        try:
            self._greet(self._zygote.channel)
        except KernelFault as error:
            self._zygote.process.kill()
            self._zygote.process.wait()
            reason = str(error) or f"its process does not start: {self._zygote.last_error()}"
            self._stop()
            raise KernelFault(reason) from error

    def _join(self, folder: Path) -> bool:
        """Whether a zygote that someone else has started serves us."""
        channel = socket.socket(socket.AF_UNIX)
        self.folder = folder
        try:
            os.stat(library_of(folder, self.lesson))  # or it is another lesson's
            channel.connect(str(folder / DOOR))
            self._greet(channel)
            return True
        except (OSError, KernelFault):
            channel.close()
            return False

    def _greet(self, channel: socket.socket) -> None:
        """Wait until the zygote at the other end is ready, then listen to it.

        Raises:
            KernelFault: it is not, with the reason where it has one.
        """
        channel.settimeout(START_SECONDS)
        lines = channel.makefile("rb")
        try:
            ready = json.loads(lines.readline() or b"{}")
        except (OSError, ValueError):
            ready = {}
        if ready.get("event") != "ready":
            lines.close()
            raise KernelFault("")
        if ready["threads"] != 1:
            lines.close()
            raise KernelFault(f"its process has {ready['threads']} threads, so it cannot fork")
        channel.settimeout(None)
        self._channel = channel
        self._listener = threading.Thread(target=self._listen, args=[channel, lines], daemon=True)
        self._listener.start()

    def _listen(self, channel: socket.socket, lines) -> None:
        """Read how kernels end, until the zygote itself does."""
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                event = json.loads(line)
                self._finish(event.pop("name"), event)
        for file in (lines, channel):
            with contextlib.suppress(OSError):
                file.close()
        if channel is self._channel:
            self._channel = None
            for name in list(self._kernels):
                self._finish(name, {"reason": "zygote"})

    def _finish(self, name: str, ending: dict) -> None:
        kernel = self._kernels.pop(name, None)
        group = self._groups.pop(name, None)
        if group is not None:
            if group.ran_out_of_memory() and ending.get("reason") != "disk":
                ending = ending | {"reason": "memory"}
            group.remove()
        if kernel is not None:
            kernel.ending = ending
            kernel.over.set()
            shutil.rmtree(spool_of(self.folder) / name, ignore_errors=True)
            Path(file_of(spool_of(self.folder), name)).unlink(missing_ok=True)

    def _stop(self) -> None:
        """Leave the zygote, which then ends our kernels; end it if it is ours."""
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            self._listener.join(_END_SECONDS)
            channel.close()
        for name in list(self._kernels):
            self._finish(name, {"reason": "zygote"})
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _send(self, request: dict, doors: Sequence[int] = ()) -> None:
        try:
            if self._channel is None:
                raise OSError
            data = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._channel, [data], doors) if doors else 0
            self._channel.sendall(data[sent:])
        except OSError as error:
            raise KernelFault("the process that forks kernels has ended") from error

    def _fork_request(self, kernel: Kernel, place: Path, uid, seed: int, env: dict) -> dict:
        strict, limits = self._level == "strict", self.limits
        inside = "/ipc" if strict else str(place)
        if not strict:
            (place / "scratch").mkdir()
        slot = {
            "level": self._level,
            "spool": "/spool" if strict else str(spool_of(self.folder)),
            "name": kernel.name,
            "uid": uid,
            "memory": limits.memory,
            "disk": limits.disk,
            "file_size": limits.file_size,
            "cpu_seconds": limits.cpu_seconds,
            "processes": limits.processes,
            "others": 0 if strict and (uid is not None or _counts_apart()) else _tasks_here(),
        }
        if self._level != "off":
            slot["filter"] = sandbox.filter_program(self._level)
        if self._level == "basic":
            slot["readable"] = sandbox.readable(library_of(self.folder, self.lesson))
        return {
            "request": "fork",
            "name": kernel.name,
            "folder": "/scratch" if strict else str(place / "scratch"),
            "slot": slot,
            "seed": seed,
            "env": env | ({} if strict else dict.fromkeys(_WRITABLE, inside)),
            "connection": {**kernel.connection, "ip": f"{inside}/k"}
            | {"folder": "/tmp" if strict else inside}
            | {"output": limits.output},
        }

    def _try_out(self) -> None:
        """One kernel must come up and be heard."""
        from course_lib.grading.kernels.client import Client

        kernel = self.start(0)
        try:
            Client(kernel).wait_ready(START_SECONDS).close()
        except KernelFault as error:
            detail = kernel.ending.get("detail", "").strip().splitlines()[-1:]
            raise KernelFault(detail[0] if detail else str(error)) from error
        finally:
            kernel.kill()


def _counts_apart() -> bool:
    """Whether the system counts a user's processes apart in each user namespace (Linux 5.14)."""
    number = [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]]
    return number >= [5, 14]


def _tasks_here() -> int:
    """What else this user runs on the machine: limits on processes count it."""
    from course_lib.grading.kernels.guest import lockdown

    return lockdown.tasks_of(os.getuid())


def _connection(place: Path) -> dict[str, Any]:
    ports = {f"{channel}_port": port for channel, port in _PORTS.items()}
    return {
        "transport": "ipc",
        "ip": str(place / "k"),
        "key": secrets.token_hex(16),
        "signature_scheme": "hmac-sha256",
        "kernel_name": "",
        **ports,
    }
