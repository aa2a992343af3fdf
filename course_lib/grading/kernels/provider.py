"""Where kernels come from: forked from a zygote in a sandbox, or started as ordinary processes.

Both give a `Kernel`: the connection to speak to it, a way to kill it, and how it ended.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from course_lib.grading.kernels import sandbox
from course_lib.grading.kernels.sandbox import LEVELS, Limits, Reached

_START_SECONDS = 60.0
_HEARTBEAT_SECONDS = 5.0
_LONGEST_FOLDER = 70
_UIDS = 32  # users of one zygote, by turns
_FOLDER = "course-kernels-"
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}


class KernelFault(Exception):
    """A kernel could not be had: the machine's fault, never the student's."""


@dataclass
class Kernel:
    """One running kernel.

    Args:
        name: unique among the kernels of this process.
        connection: what jupyter_client reads from a connection file.
        provider: who started it.
    """

    name: str
    connection: dict[str, Any]
    provider: Provider
    over: threading.Event = field(default_factory=threading.Event)
    ending: dict[str, Any] = field(default_factory=dict)

    def kill(self, wait: float = 5.0) -> dict[str, Any]:
        """End it and everything it started; return how it ended."""
        self.provider.kill(self)
        self.over.wait(wait)
        return self.ending

    def seal(self) -> None:
        """From now on nothing can be added to the folder that holds its sockets."""
        place = Path(self.connection["ip"]).parent
        with contextlib.suppress(OSError):
            if os.getuid() == 0 and self.provider.reached.level == "strict":
                os.chown(place, 0, 0)
                place.chmod(0o711)


class Provider(Protocol):
    """Starts kernels at one sandbox level."""

    reached: Reached

    def start(self, seed: int, env: dict[str, str] | None = None) -> Kernel:
        """A new kernel; its sockets may not be bound yet."""

    def kill(self, kernel: Kernel) -> None:
        """End a kernel."""

    def close(self) -> None:
        """End all kernels and clean up."""


def provider(level: str | None = None, limits: Limits | None = None) -> Provider:
    """Start what kernels come from.

    Args:
        level: the sandbox that is asked for; the best there is if None.
        limits: what each kernel may use.

    Raises:
        GradingError: the machine does not reach the level; the message says why and the cure.
    """
    limits = limits or Limits()
    reasons = dict(sandbox.obstacles())
    for candidate in LEVELS if level is None else (level,):
        if candidate in reasons:
            continue
        try:
            if sys.platform != "linux":  # forks there, too, but not after importing what we import
                from course_lib.grading.kernels.spawned import SpawnedKernels

                return SpawnedKernels(Reached("off", reasons))
            return ForkedKernels(candidate, limits, reasons)
        except KernelFault as error:
            reasons[candidate] = str(error)
    raise sandbox.refuse(level or "off", reasons)


class ForkedKernels:
    """A zygote and the kernels forked from it; restarted when it dies.

    Raises:
        KernelFault: the zygote or its first kernel does not come up at this level.
    """

    def __init__(self, level: str, limits: Limits, reasons: dict[str, str]) -> None:
        self.limits = limits
        self.reached = Reached(level, {k: v for k, v in reasons.items() if k != level})
        place = tempfile.gettempdir()  # paths of sockets must be short
        place = place if len(place) <= _LONGEST_FOLDER else "/tmp"
        _sweep(Path(place))
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=place))
        self.folder.chmod(0o711)
        self.spool = self.folder / "s"
        self.spool.mkdir()
        self.spool.chmod(0o711)
        self.library = sandbox.stage_library(self.folder)
        self._claim, first = _claim_uids() if level == "strict" else (None, sandbox.FIRST_UID)
        self._uids = itertools.cycle(range(first, first + _UIDS))
        self._kernels: dict[str, Kernel] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        try:
            self._launch()
            self._try_out()
        except BaseException:
            self.close()
            raise

    def start(self, seed: int, env: dict[str, str] | None = None) -> Kernel:
        """Fork a kernel; a zygote that has died is replaced first."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._stop()
                self._launch()
            name = secrets.token_hex(4)
            place = self.spool / name
            place.mkdir(mode=0o700)
            uid = next(self._uids) if os.getuid() == 0 and self._level == "strict" else None
            if uid is not None:
                os.chown(place, uid, uid)
            kernel = Kernel(name, _connection(place), self)
            self._kernels[name] = kernel
            self._send(self._fork_request(kernel, place, uid, seed, env or {}))
        return kernel

    def kill(self, kernel: Kernel) -> None:
        """Ask the kernel's keeper to end it; without an answer end the zygote and all."""
        if kernel.over.is_set():
            return
        with self._lock, contextlib.suppress(OSError):
            self._send({"request": "kill", "name": kernel.name})
        if not kernel.over.wait(_HEARTBEAT_SECONDS):
            self._stop()

    def close(self) -> None:
        """End the zygote, with it all kernels, and remove every file."""
        self._stop()
        if self._claim is not None:
            self._claim.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _level(self) -> str:
        return self.reached.level

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        command, environ = sandbox.command(self._level, self.library, self.spool, theirs.fileno())
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self._process = subprocess.Popen(
            command,
            env=environ,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._channel, self._listener = ours, None
        ours.settimeout(_START_SECONDS)
        self._lines = ours.makefile("rb")
        try:
            ready = json.loads(self._lines.readline() or b"{}")
        except (OSError, ValueError):
            ready = {}
        if ready.get("event") != "ready":
            self._process.kill()
            self._process.wait()
            reason = self._last_error()
            self._stop()
            raise KernelFault(f"its process does not start: {reason}")
        if ready["threads"] != 1:
            self._stop()
            raise KernelFault(f"its process has {ready['threads']} threads, so it cannot fork")
        ours.settimeout(None)
        self._listener = threading.Thread(target=self._listen, args=[self._process], daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen) -> None:
        """Read how kernels end, until the zygote itself does."""
        with contextlib.suppress(OSError, ValueError):
            for line in self._lines:
                event = json.loads(line)
                self._finish(event.pop("name"), event)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        process.kill()
        process.wait()
        if process is self._process:
            for name in list(self._kernels):
                self._finish(name, {"reason": "zygote"})

    def _finish(self, name: str, ending: dict) -> None:
        kernel = self._kernels.pop(name, None)
        if kernel is not None:
            kernel.ending = ending
            kernel.over.set()
            shutil.rmtree(self.spool / name, ignore_errors=True)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._listener is not None:
            self._listener.join(_HEARTBEAT_SECONDS)
        for file in (self._lines, self._channel, self._errors):
            with contextlib.suppress(OSError):
                file.close()
        for name in list(self._kernels):
            self._finish(name, {"reason": "zygote"})

    def _send(self, request: dict) -> None:
        try:
            self._channel.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise KernelFault("the process that forks kernels has ended") from error

    def _fork_request(self, kernel: Kernel, place: Path, uid, seed: int, env: dict) -> dict:
        strict, limits = self._level == "strict", self.limits
        inside = "/ipc" if strict else str(place)
        if not strict:
            (place / "scratch").mkdir()
        slot = {
            "level": self._level,
            "spool": "/spool" if strict else str(self.spool),
            "name": kernel.name,
            "uid": uid,
            "memory": limits.memory,
            "disk": limits.disk,
            "file_size": limits.file_size,
            "cpu_seconds": limits.cpu_seconds,
            "processes": limits.processes if uid is not None else None,
            "max_processes": limits.processes,
            "wall_seconds": 2 * limits.total_seconds + 60,  # it may have waited for its turn
        }
        if self._level != "off":
            slot["filter"] = sandbox.filter_program(self._level)
        if self._level == "basic":
            slot["readable"] = sandbox.readable(self.library)
        return {
            "request": "fork",
            "name": kernel.name,
            "folder": "/scratch" if strict else str(place / "scratch"),
            "slot": slot,
            "seed": seed,
            "env": env | ({} if strict else {"HOME": inside, "TMPDIR": inside}),
            "connection": {**kernel.connection, "ip": f"{inside}/k"}
            | {"folder": "/tmp" if strict else inside}
            | {"output": limits.output},
        }

    def _try_out(self) -> None:
        """One kernel must come up and answer."""
        from course_lib.grading.kernels.client import Client

        kernel = self.start(0)
        try:
            Client(kernel).wait_ready(_START_SECONDS).close()
        except KernelFault as error:
            detail = kernel.ending.get("detail", "").strip().splitlines()[-1:]
            raise KernelFault(detail[0] if detail else str(error)) from error
        finally:
            kernel.kill()

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it says nothing"


def _claim_uids() -> tuple[socket.socket | None, int]:
    """The first of some users that no other zygote on this machine uses, and what holds them.

    Limits on processes are counted by user, so two kernels of one user could starve each other.
    A name without a file can be bound once, and is free again however its holder ends.
    """
    first = range(sandbox.FIRST_UID, sandbox.LAST_UID - _UIDS, _UIDS)
    for uid in first:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0course-grading-uid-{uid}")
            return claim, uid
        except OSError:
            claim.close()
    return None, secrets.choice(first)


def _sweep(place: Path) -> None:
    """Remove the folders of our own processes that were killed and could not do it."""
    for path in place.glob(f"{_FOLDER}*-*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_FOLDER).partition("-")[0])
            mine = path.lstat().st_uid == os.getuid() and not path.is_symlink()
            if mine and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(path, ignore_errors=True)


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
