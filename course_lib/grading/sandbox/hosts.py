"""Start guests, by forking a host process or, where that is not safe, as new processes."""

import contextlib
import json
import os
import select
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

from course_lib.grading.guest_package import stage_package
from course_lib.grading.sandbox import cgroup, confinement
from course_lib.grading.sandbox.confinement import Limits, Reached
from course_lib.grading.sandbox.guests import Forked, Guest, GuestLost, Spawned
from course_lib.grading.sandbox.inside import WRITABLE
from course_lib.workspace.environment import public_environment
from course_lib.workspace.errors import GradingError

_FOLDER = "course-guests-"
_BUFFER = Path("/proc/sys/net/core/wmem_default")  # bytes; some containers do not show it


class Host:
    """The process that forks guests, and the folder that it needs on disk."""

    def __init__(self, level: str, limits: Limits, lesson: str = "") -> None:
        self.folder, library = _stage(lesson)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.fileno()
        command, environ = confinement.command(level, library, fd)
        options: dict[str, Any] = {"env": environ, "cwd": "/", "pass_fds": [fd]}
        options |= dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
        with theirs, (self.folder / "errors").open("wb") as options["stderr"]:
            self.process = subprocess.Popen(command, start_new_session=True, **options)
        counted = bool(cgroup.place())
        program = confinement.filter_program(counted) if level == "strict" else ""
        settings = {"level": level, "place": str(self.folder), "filter": program}
        settings |= {"change_user": os.getuid() == 0, **asdict(limits)}
        buffer = int(_BUFFER.read_text()) if _BUFFER.exists() else 212_992  # Linux's default
        settings |= {"counted": counted, "socket_memory": 2 * buffer}  # one message may exceed it
        with contextlib.suppress(OSError):  # the host has ended, as the next message reports
            self.channel.send(json.dumps(settings).encode())

    def close(self) -> str:
        """End the host and all its guests, remove its folder, and return what it wrote last."""
        self.process.kill()
        self.process.wait()
        self.channel.close()
        text = (self.folder / "errors").read_text(errors="replace").strip() or "it says nothing"
        shutil.rmtree(self.folder, ignore_errors=True)
        return text.splitlines()[-1][-2000:]


def _stage(lesson: str) -> tuple[Path, Path]:
    """Make a folder, stage the guests' library in it, and return both paths.

    Also remove folders that killed processes of the course left behind.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_FOLDER).partition("-")[0])
            if path.lstat().st_uid == os.getuid() and not psutil.pid_exists(owner):
                shutil.rmtree(path, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
    folder.chmod(0o711)
    try:
        return folder, stage_package(folder, lesson)
    except BaseException:  # such as a full disk
        shutil.rmtree(folder, ignore_errors=True)
        raise


class ForkedGuests:
    """Guests forked from a host, which is replaced when it dies."""

    def __init__(self, reached: Reached, limits: Limits, lesson: str, channel: Any) -> None:
        self.reached, self.limits, self.lesson = reached, limits, lesson
        self._channel, self._host = channel, None
        self._guests: list[Guest] = []
        if channel is not None:
            with contextlib.suppress(GuestLost):
                self.start().wait_ready().kill()
                return
            self.close()
        try:
            self.start().wait_ready().kill()
        except BaseException as error:
            last_words = self.close()
            if isinstance(error, GuestLost) and "(host)" in str(error):
                raise GuestLost(f"its host does not start: {last_words}") from error
            raise

    def start(self, imports: Sequence[str] = ()) -> Guest:
        """Fork a guest with these modules imported, after replacing a host that has died."""
        if self._channel and select.select([self._channel], [], [], 0)[0]:  # it has ended
            self.close()
        if self._channel is None:
            self._host = Host(self.reached.level, self.limits, self.lesson)
            self._channel = self._host.channel
        limits, group = self.limits, None
        try:
            if place := cgroup.place():
                group = cgroup.Group(place, limits.memory, limits.processes)
        except OSError as error:
            raise GuestLost(f"its cgroup cannot be created: {error}") from error
        reading, their_writing = os.pipe()
        their_reading, writing = os.pipe()
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)
        guest = Guest(Forked(control, group), self.reached.level, *pipes, self.limits.output)
        self._guests = [*(each for each in self._guests if not each.is_over), guest]
        passed = [theirs.detach(), their_reading, their_writing]
        joining = group.entries if group else []
        with contextlib.suppress(OSError):  # the host has died, as the guest's pipe reports
            socket.send_fds(self._channel, [json.dumps([*imports]).encode()], passed + joining)
        for descriptor in passed:
            os.close(descriptor)
        return guest

    def close(self) -> str:
        """End all guests. If the host is ours, end it, too, and return its last output."""
        last_words = self._host.close() if self._host else ""
        for guest in self._guests:
            guest.kill()
        if self._channel is not None:
            self._channel.close()
        self._channel = self._host = None
        return last_words


class SpawnedGuests:
    """Guests that are new processes, which start more slowly because each imports its modules."""

    def __init__(self, reached: Reached, limits: Limits, lesson: str, _channel: Any) -> None:
        self.reached, self.limits = reached, limits
        self._folder, self._library = _stage(lesson)
        self._guests: list[Guest] = []

    def start(self, _imports: Sequence[str] = ()) -> Guest:
        """Start a guest in an empty folder, and raise GuestLost if that fails."""
        place, home = (tempfile.mkdtemp(dir=self._folder) for _ in range(2))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environ = public_environment() | confinement.environment(str(self._library))
        environ |= {"PATH": path, **dict.fromkeys(WRITABLE, home)}
        streams: dict[str, Any] = {"stderr": subprocess.DEVNULL}
        streams |= dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        command = [sys.executable, "-P", "-m", "course_lib.grading.sandbox.inside.guest"]
        try:
            process = psutil.Popen(command, bufsize=0, env=environ, cwd=place, **streams)
        except OSError as error:
            raise GuestLost(f"a guest does not start: {error}") from error
        ours, theirs = socket.socketpair()  # Windows can wait for sockets but not for pipes
        threading.Thread(target=_copy, args=(process.stdout, theirs), daemon=True).start()
        with ours:
            pipes = ours.makefile("rb", buffering=0), process.stdin
        guest = Guest(Spawned(process), self.reached.level, *pipes, self.limits.output)
        self._guests = [*(each for each in self._guests if not each.is_over), guest]
        return guest

    def close(self) -> None:
        for guest in self._guests:
            guest.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _copy(source: Any, target: socket.socket) -> None:
    with source, target, contextlib.suppress(OSError):
        while data := source.read(1 << 16):
            target.sendall(data)


Guests = ForkedGuests | SpawnedGuests


def open_guests(
    level: str | None = None, limits: Limits | None = None, lesson: str = "", channel: Any = None
) -> Guests:
    """Start a source of guests. A level of None selects the strongest one available.

    Guests see the solutions of the lessons before the graded `lesson`, and none if it is "". A
    `channel` is a socket to a host that another process started.
    """
    kind = ForkedGuests if sys.platform == "linux" else SpawnedGuests  # unsafe elsewhere
    reasons = dict(confinement.obstacles())
    for candidate in ("strict", "off") if level is None else (level,):
        if candidate not in reasons:
            try:
                return kind(Reached(candidate, reasons), limits or Limits(), lesson, channel)
            except GuestLost as error:
                reasons[candidate], channel = str(error), None  # it leads to a host of this level
    wanted = level or "off"
    why = f"sandbox {wanted} is not available here: {reasons[wanted]}. Fix that"
    trust = ", or use --trusted --sandbox off if you trust everyone who submitted"
    raise GradingError(why + trust * (wanted == "strict"))
