"""Where guests come from: forked from a host process, or started one by one.

One host serves a driver and all its workers. It ends with them, and its guests end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from course_lib.grading.library import stage_library
from course_lib.grading.sandbox import cgroup, confinement
from course_lib.grading.sandbox.confinement import Limits, Reached
from course_lib.grading.sandbox.guests import Guest, GuestLost
from course_lib.grading.sandbox.inside import WRITABLE
from course_lib.grading.sandbox.processes import Forked, Spawned
from course_lib.workspace.environment import public_environment
from course_lib.workspace.errors import GradingError

_FOLDER = "course-guests-"


def open_guests(
    level: str | None = None,
    limits: Limits | None = None,
    lesson: str = "",
    channel: socket.socket | None = None,
) -> Guests:
    """Start what guests come from, at the stronger level that this machine has if it is None.

    Guests see the solutions of lessons before the graded `lesson`, none if it is "". A `channel`
    leads to a host that another process started.

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
    wanted = level or "off"
    remedy = ", or say --trusted --sandbox off if you trust all who handed in"
    raise GradingError(
        f"sandbox {wanted} cannot be had here: {reasons.get(wanted, 'its probe failed')}. Fix "
        f"that{remedy if wanted == 'strict' else ''}"
    )


class Host:
    """The process that forks guests, and the folder that it needs on disk."""

    def __init__(self, level: str, limits: Limits, lesson: str = "") -> None:
        self.folder = _make_folder()
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
        tasks = (each.info for each in psutil.process_iter(["uids", "num_threads"]))
        ours = [task["num_threads"] for task in tasks if task["uids"].real == os.getuid()]
        program = confinement.filter_program() if level == "strict" else ""
        settings = {"level": level, "place": str(self.folder), "filter": program}
        settings |= {"change_user": os.getuid() == 0, "others": sum(ours), **asdict(limits)}
        with contextlib.suppress(OSError):  # it has ended, which the next message tells
            self.channel.send(json.dumps(settings).encode())

    def connect(self) -> socket.socket:
        """Return a channel for another process."""
        return self.channel.dup()

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


def _make_folder() -> Path:
    """Make a folder, and remove those that processes of ours left that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_FOLDER).partition("-")[0])
            if path.lstat().st_uid == os.getuid() and not psutil.pid_exists(owner):
                shutil.rmtree(path, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
    folder.chmod(0o711)
    return folder


class ForkedGuests:
    """Guests forked from a host, which is replaced when it dies.

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
        self._channel, self._host = channel, None
        self._alive: list[Forked] = []
        try:
            if channel is not None:
                with contextlib.suppress(GuestLost):
                    self.start().wait_ready().kill()
                    return
                self.close()
            self.start().wait_ready().kill()
        except BaseException as error:
            host = self._host
            self.close()
            if host and isinstance(error, GuestLost) and "(host)" in str(error):
                raise GuestLost(f"its host does not start: {host.last_error}") from error
            raise

    def start(self, imports: Sequence[str] = ()) -> Guest:
        """Fork a guest with these modules imported; a host that has died is replaced first."""
        if any((each.ending() or {}).get("reason") == "host" for each in self._alive):
            self.close()
        if self._channel is None:
            self._host = Host(self.reached.level, self.limits, self.lesson)
            self._channel = self._host.channel
        group = cgroup.group(secrets.token_hex(4), self.limits.memory, self.limits.processes)
        reading, their_writing = os.pipe()
        their_reading, writing = os.pipe()
        os.set_blocking(writing, False)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = Forked(control, group)
        self._alive = [*(each for each in self._alive if each.ending() is None), process]
        passed = [theirs.fileno(), their_reading, their_writing, *([group.door] if group else [])]
        try:
            socket.send_fds(self._channel, [json.dumps([*imports]).encode()], passed)
        except OSError as error:
            self.close()
            raise GuestLost("the process that forks guests has ended") from error
        finally:
            theirs.close()
            os.close(their_reading)
            os.close(their_writing)
        return Guest(process, self.reached.level, reading, writing, self.limits.output)

    def close(self) -> None:
        """End all guests and leave the host; end it if it is ours."""
        if self._host is not None:
            self._host.close()
        for process in self._alive:
            process.kill()
        if self._channel is not None:
            self._channel.close()
        self._channel = self._host = None
        self._alive.clear()


class SpawnedGuests:
    """Guests that are ordinary processes, started anew: slower by the time of their imports."""

    def __init__(self, reached: Reached, limits: Limits, lesson: str = "") -> None:
        self.reached, self.limits = reached, limits
        self._folder = _make_folder()
        self._library = stage_library(self._folder, lesson)
        self._started: list[Spawned] = []

    def start(self, imports: Sequence[str] = ()) -> Guest:
        """Start a guest in an empty folder.

        Raises:
            GuestLost: it does not start.
        """
        place, home = (tempfile.mkdtemp(dir=self._folder) for _ in range(2))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environ = public_environment() | confinement.environment(str(self._library))
        environ |= {"PATH": path, **dict.fromkeys(WRITABLE, home)}
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "course_lib.grading.sandbox.inside.guest"],
                env=environ,
                cwd=place,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise GuestLost(f"a guest does not start: {error}") from error
        assert process.stdin is not None and process.stdout is not None
        self._started.append(Spawned(process))
        ours, theirs = socket.socketpair()  # on Windows, only sockets can be waited for
        threading.Thread(target=_copy, args=(process.stdout, theirs), daemon=True).start()
        writing = os.dup(process.stdin.fileno())
        process.stdin.close()
        level, most = self.reached.level, self.limits.output
        return Guest(self._started[-1], level, ours.detach(), writing, most)

    def close(self) -> None:
        """End all guests and clean up."""
        for process in self._started:
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


Guests = ForkedGuests | SpawnedGuests


def _copy(source: Any, target: socket.socket) -> None:
    with source, target, contextlib.suppress(OSError):
        while data := source.read1(1 << 16):
            target.sendall(data)
