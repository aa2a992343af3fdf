"""A cgroup (v2) for each guest, where this process may make one: the system holds its limits.

Where there is none, RLIMIT_AS and RLIMIT_NPROC hold each process, and the watchdog counts all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_CONTROLLERS = {"memory", "pids"}
_REMOVE_SECONDS = 1.0


class Group:
    """A group that a guest enters before anything of a student's runs in it.

    Args:
        parent: a group that is ours.
        name: of the guest.
        memory: bytes of all its processes together, files in memory included.
        processes: how many at once, threads included.

    Attributes:
        door: descriptor to which a process writes "0" to enter.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, parent: Path, name: str, memory: int, processes: int) -> None:
        self.folder = parent / f"course-{os.getpid()}-{name}"
        self.folder.mkdir()
        try:
            (self.folder / "memory.max").write_text(str(memory))
            (self.folder / "pids.max").write_text(str(processes))
            (self.folder / "memory.oom.group").write_text("1")  # all of it ends, or nothing
            if (self.folder / "memory.swap.max").exists():
                (self.folder / "memory.swap.max").write_text("0")
            self.door = os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self.folder.rmdir()
            raise

    def ran_out_of_memory(self) -> bool:
        """Whether the system ended it for that."""
        with contextlib.suppress(OSError, ValueError):
            lines = (self.folder / "memory.events").read_text().splitlines()
            return int(dict(line.split() for line in lines)["oom_kill"]) > 0
        return False

    def remove(self) -> None:
        """Its processes have ended; the system may need a moment to see that."""
        with contextlib.suppress(OSError):
            os.close(self.door)
        until = time.monotonic() + _REMOVE_SECONDS
        while self.folder.exists() and time.monotonic() < until:
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.01)


def group(name: str, memory: int, processes: int) -> Group | None:
    """A group for a guest; None where none can be had."""
    parent = place()
    with contextlib.suppress(OSError):
        return Group(parent, name, memory, processes) if parent else None
    return None


@functools.cache
def place() -> Path | None:
    """Where groups can be made that hold memory and processes; tried out, once.

    The nearest group above this process whose controllers its children get, and that is ours.
    """
    with contextlib.suppress(OSError, ValueError):
        (own,) = (line[3:] for line in _OWN.read_text().splitlines() if line.startswith("0::"))
        folder = MOUNT / own.lstrip("/")
        for above in (folder, *folder.parents):
            if above.is_relative_to(MOUNT) and _may_be_used(above):
                return above
    return None


def _may_be_used(folder: Path) -> bool:
    controllers = set((folder / "cgroup.subtree_control").read_text().split())
    if not controllers >= _CONTROLLERS or not os.access(folder, os.W_OK):
        return False
    _sweep(folder)
    tried = folder / f"course-{os.getpid()}-try"
    with contextlib.suppress(OSError):
        tried.mkdir()
        enter = 'echo 0 > "$0/cgroup.procs" && grep -q . "$0/cgroup.procs"'
        done = subprocess.run(["/bin/sh", "-c", enter, tried], capture_output=True)
        files = all((tried / name).exists() for name in ("memory.max", "pids.max"))
        tried.rmdir()
        return done.returncode == 0 and files
    return False


def _sweep(folder: Path) -> None:
    """Remove the groups of our own processes that were killed and could not do it."""
    for path in folder.glob("course-*-*"):
        with contextlib.suppress(OSError):
            if not Path(f"/proc/{path.name.split('-')[1]}").exists():
                path.rmdir()
