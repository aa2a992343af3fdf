"""Starts a zygote: the process, the folder that it shares with us, the socket to it.

One zygote serves the process that started it. Where a kernel cannot reach its socket (strict), it
serves any of our processes that knows its door: workers then need not import everything once each.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from course_lib.grading.kernels import sandbox
from course_lib.grading.kernels.staged_library import stage_library

DOOR = "door"
_FOLDER = "course-kernels-"
_LONGEST_SOCKET = 107  # bytes in the path of a Unix socket
LONGEST_PLACE = _LONGEST_SOCKET - len(f"/{_FOLDER}4194304-12345678/s/12345678/k-5")


class Zygote:
    """The process that forks kernels.

    Args:
        level: the sandbox it runs in.
        lesson: that is graded: no solution of it or of a later one is there.
        shared: whether other processes may join it; only at "strict", whose kernels cannot.

    Attributes:
        folder: all that it and its kernels need on disk; removed with it.
        channel: the socket on which it is told what to do.
    """

    def __init__(self, level: str, lesson: str = "", *, shared: bool = False) -> None:
        place = place_for_sockets()
        _sweep(Path(place))
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=place))
        self.folder.chmod(0o711)
        spool_of(self.folder).mkdir()
        spool_of(self.folder).chmod(0o711)
        library = stage_library(self.folder, lesson)
        self.channel, theirs = socket.socketpair()
        passed = [theirs]
        if shared:
            door = socket.socket(socket.AF_UNIX)
            door.bind(str(self.folder / DOOR))
            (self.folder / DOOR).chmod(0o600)
            door.listen(64)
            passed.append(door)
        descriptors = [each.fileno() for each in passed]
        command, environ = sandbox.command(level, library, spool_of(self.folder), descriptors)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self.process = subprocess.Popen(
            command,
            env=environ,
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            cwd="/",
            start_new_session=True,
        )
        for each in passed:
            each.close()

    def last_error(self) -> str:
        """What it said last before it failed to start."""
        self._errors.seek(0)
        lines = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it says nothing"

    def close(self) -> None:
        """End it, with it all kernels, and remove every file."""
        self.process.kill()
        self.process.wait()
        for file in (self.channel, self._errors):
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def place_for_sockets() -> str:
    """The folder for temporary files, or /tmp if a socket's path would be too long there."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= LONGEST_PLACE else "/tmp"


def spool_of(folder: Path) -> Path:
    """Where the sockets of a zygote's kernels lie."""
    return folder / "s"


def _sweep(place: Path) -> None:
    """Remove the folders of our own processes that were killed and could not do it."""
    for path in place.glob(f"{_FOLDER}*-*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int(path.name.removeprefix(_FOLDER).partition("-")[0])
            mine = path.lstat().st_uid == os.getuid() and not path.is_symlink()
            if mine and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(path, ignore_errors=True)
