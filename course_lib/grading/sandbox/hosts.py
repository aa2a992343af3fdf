"""Where guests come from: forked from a host process, or started one by one.

    driver or worker --channel--> host (in bubblewrap) --fork--> guest (in namespaces of its own)

One host serves a driver and all its workers. It ends with the process that started it, and its
guests end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from course_lib.grading.library import stage_library
from course_lib.grading.sandbox import cgroup, confinement
from course_lib.grading.sandbox.confinement import Limits, Reached
from course_lib.grading.sandbox.guests import START_SECONDS, Guest, GuestLost, Guests
from course_lib.grading.sandbox.inside import WRITABLE
from course_lib.workspace.environment import public_environment

_END_SECONDS = 120.0
_MESSAGE = 1 << 16
_FOLDER = "course-guests-"


def open_guests(
    level: str | None = None,
    limits: Limits | None = None,
    lesson: str = "",
    channel: socket.socket | None = None,
) -> Guests:
    """Start what guests come from.

    Args:
        level: "strict" or "off"; the stronger one that this machine has if None.
        limits: what each guest may use.
        lesson: that is graded: guests see the solutions of those before it, none if "".
        channel: to a host that another process started.

    Raises:
        GradingError: this machine does not reach the level; the message says why and the remedy.
    """
    limits = limits or Limits()
    reasons = dict(confinement.obstacles())
    for candidate in confinement.LEVELS if level is None else (level,):
        if candidate in reasons:
            continue
        reached = Reached(candidate, reasons)
        try:
            if sys.platform != "linux":  # forking after our imports is not safe elsewhere
                return SpawnedGuests(reached, limits, lesson)
            return ForkedGuests(reached, limits, lesson, channel)
        except GuestLost as error:
            reasons[candidate] = str(error)
    raise confinement.refuse(level or "off", reasons)


class Host:
    """The process that forks guests, and the folder that it needs on disk.

    Args:
        level: "strict" or "off".
        limits: what each guest may use.
        lesson: that is graded: no solution of it or of a later one is in the sandbox.

    Attributes:
        channel: the socket to it of the process that started it.
        last_error: the last line of its standard error, once it is closed.
    """

    def __init__(self, level: str, limits: Limits, lesson: str = "") -> None:
        from course_lib.grading.sandbox.inside import lockdown  # which only Linux can import

        _remove_folders_of_the_dead()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
        self.folder.chmod(0o711)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        library = stage_library(self.folder, lesson)
        command, environ = confinement.command(level, library, theirs.fileno())
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self.process = subprocess.Popen(
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
        program = confinement.filter_program() if level == "strict" else ""
        settings = {"level": level, "place": str(self.folder), "filter": program}
        settings |= {"change_user": os.getuid() == 0, **asdict(limits)}
        settings["others"] = lockdown.tasks_of(os.getuid())
        with contextlib.suppress(OSError):  # it has ended, which the next message tells
            self.channel.send(json.dumps(settings).encode())

    def connect(self) -> socket.socket:
        """Return a channel for another process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.suppress(OSError):
            message = json.dumps({"request": "join"}).encode()
            socket.send_fds(self.channel, [message], [theirs.fileno()])
        return ours

    def close(self) -> None:
        """End it and with it all guests, and remove its folder."""
        self.process.kill()
        self.process.wait()
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()
        self.last_error = lines[-1] if lines else "it says nothing"
        self.channel.close()
        self._errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_folders_of_the_dead() -> None:
    """Remove what processes of ours left that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_FOLDER).partition("-")[0])
            if path.lstat().st_uid == os.getuid() and not psutil.pid_exists(owner):
                shutil.rmtree(path, ignore_errors=True)


class ForkedGuests:
    """Guests forked from a host, which is replaced when it dies.

    Args:
        reached: the sandbox level.
        limits: what each guest may use.
        lesson: that is graded.
        channel: to a host that another process started; one of our own is started where that
            fails, now or later.

    Raises:
        GuestLost: the host or its first guest does not come up at this level.
    """

    def __init__(
        self,
        reached: Reached,
        limits: Limits,
        lesson: str = "",
        channel: socket.socket | None = None,
    ) -> None:
        self.reached, self.limits, self.lesson = reached, limits, lesson
        self._host: Host | None = None
        self._channel = channel
        self._alive: dict[str, cgroup.Group | None] = {}
        self._endings: dict[str, dict[str, Any]] = {}
        try:
            if channel is None or not self._is_ready():
                self._launch()
            self.start().wait_ready().kill()
        except BaseException:
            self.close()
            raise

    def start(self, imports: Sequence[str] = ()) -> Guest:
        """Fork a guest; a host that has died is replaced first."""
        if self._channel is None:
            self._launch()
        assert self._channel is not None
        name = secrets.token_hex(4)
        group = cgroup.group(name, self.limits.memory, self.limits.processes)
        message = {"request": "fork", "name": name, "imports": list(imports)}
        their_reading, writing = os.pipe()
        reading, their_writing = os.pipe()
        os.set_blocking(writing, False)
        try:
            doors = [group.door] if group else []
            data, pipes = json.dumps(message).encode(), [their_reading, their_writing]
            socket.send_fds(self._channel, [data], [*pipes, *doors])
        except OSError as error:
            self._lose_host()
            raise GuestLost("the process that forks guests has ended") from error
        finally:
            os.close(their_reading)
            os.close(their_writing)
        self._alive[name] = group
        return Guest(name, self, reading, writing, self.limits.output)

    def usage(self, guest: Guest) -> dict[str, float] | None:
        self._send({"request": "usage", "name": guest.name})
        until = time.monotonic() + _END_SECONDS
        while guest.name in self._alive and time.monotonic() < until:
            event = self._receive(1.0)
            if event and event["event"] == "usage" and event["name"] == guest.name:
                return event["used"]
        return None

    def ending(self, guest: Guest, seconds: float = 0.0) -> dict[str, Any] | None:
        until = time.monotonic() + seconds
        while guest.name in self._alive:
            left = until - time.monotonic()
            if self._receive(max(0.0, left)) is None and left <= 0:
                return None
        return self._endings.get(guest.name)

    def interrupt(self, guest: Guest) -> None:
        self._send({"request": "interrupt", "name": guest.name})

    def kill(self, guest: Guest) -> None:
        if self.ending(guest) is None:
            self._send({"request": "kill", "name": guest.name})
            if self.ending(guest, _END_SECONDS) is None:
                self._lose_host()

    def close(self) -> None:
        self._lose_host()

    def _launch(self) -> None:
        self._lose_host()
        self._host = host = Host(self.reached.level, self.limits, self.lesson)
        self._channel = host.channel
        if not self._is_ready():
            self._lose_host()
            raise GuestLost(f"its host does not start: {host.last_error}")

    def _is_ready(self) -> bool:
        """Wait for the host's greeting.

        Raises:
            GuestLost: it cannot fork safely.
        """
        ready = self._receive(START_SECONDS)
        if ready and ready.get("threads") != 1:
            raise GuestLost(f"its host has {ready.get('threads')} threads, so it cannot fork")
        return ready is not None

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            if self._channel is not None:
                self._channel.send(json.dumps(message).encode())

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next event, or None if there is none by then; note how guests end."""
        if self._channel is None or not select.select([self._channel], [], [], seconds)[0]:
            return None
        try:
            data = self._channel.recv(_MESSAGE)
        except OSError:
            data = b""
        if not data:
            self._lose_host()
            return None
        event = json.loads(data)
        if event["event"] == "ended":
            self._end(event["name"], event)
        return event

    def _end(self, name: str, ending: dict[str, Any]) -> None:
        group = self._alive.pop(name, None)
        if group is not None:
            if group.ran_out_of_memory():
                ending = ending | {"reason": "memory"}
            group.remove()
        self._endings[name] = ending

    def _lose_host(self) -> None:
        """Leave the host, which ends our guests; end it if it is ours."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._host is not None:
            self._host.close()
            self._host = None
        for name in list(self._alive):
            self._end(name, {"reason": "host"})


class SpawnedGuests:
    """Guests that are ordinary processes, started anew: slower by the time of their imports.

    Args:
        reached: the sandbox level, always "off".
        limits: what each guest may use.
        lesson: that is graded.
    """

    def __init__(self, reached: Reached, limits: Limits, lesson: str = "") -> None:
        self.reached, self.limits = reached, limits
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
        self._library = stage_library(self._folder, lesson)
        self._processes: dict[str, subprocess.Popen] = {}

    def start(self, imports: Sequence[str] = ()) -> Guest:
        """Start a guest in an empty folder.

        Raises:
            GuestLost: it does not start.
        """
        name = secrets.token_hex(4)
        place, home = self._folder / name, self._folder / f"{name}-home"
        place.mkdir()
        home.mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environ = public_environment() | confinement.environment(str(self._library))
        environ |= {"PATH": path, **dict.fromkeys(WRITABLE, str(home))}
        command = [sys.executable, "-P", "-m", "course_lib.grading.sandbox.inside.guest"]
        ours, theirs = socket.socketpair()  # on Windows, only sockets can be waited for
        try:
            process = subprocess.Popen(
                command,
                env=environ,
                cwd=place,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise GuestLost(f"a guest does not start: {error}") from error
        assert process.stdin is not None and process.stdout is not None
        self._processes[name] = process
        threading.Thread(target=_copy, args=(process.stdout, theirs), daemon=True).start()
        writing = os.dup(process.stdin.fileno())
        process.stdin.close()
        return Guest(name, self, ours.detach(), writing, self.limits.output)

    def usage(self, guest: Guest) -> dict[str, float] | None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._processes[guest.name].pid)
            cpu = 0.0
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    cpu += sum(each.cpu_times()[:4])  # its own, and its late children's
            return {"cpu": cpu, "waited": 0.0}
        return None

    def ending(self, guest: Guest, seconds: float = 0.0) -> dict[str, Any] | None:
        try:
            code = self._processes[guest.name].wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return {"reason": "signal" if code < 0 else "exit", "code": abs(code)}

    def interrupt(self, guest: Guest) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._processes[guest.name].send_signal(signal.SIGINT)

    def kill(self, guest: Guest) -> None:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._processes[guest.name].pid)
            for each in (*process.children(recursive=True), process):
                with contextlib.suppress(psutil.Error):
                    each.kill()
        self._processes[guest.name].wait()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _copy(source: Any, target: socket.socket) -> None:
    with source, target, contextlib.suppress(OSError):
        while data := source.read1(1 << 16):
            target.sendall(data)
