"""A cgroup (v2) for each guest, where this process may make one: the system holds its limits.

Where there is none, RLIMIT_AS and RLIMIT_NPROC hold each process, and the host counts all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path

MOUNT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_REMOVE_SECONDS = 1.0


class Group:
    """A group that a guest enters before student code runs in it.

    Files in memory count as memory, and threads as processes. To enter, a process writes "0" to the
    descriptor `door`.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path, memory: int, processes: int) -> None:
        self.folder = folder
        folder.mkdir()
        try:
            (folder / "memory.max").write_text(str(memory))
            (folder / "pids.max").write_text(str(processes))
            (folder / "memory.oom.group").write_text("1")  # all of it ends, or nothing
            if (folder / "memory.swap.max").exists():
                (folder / "memory.swap.max").write_text("0")
            self.door = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            folder.rmdir()
            raise

    def ran_out_of_memory(self) -> bool:
        """Return whether the system ended it for that."""
        with contextlib.suppress(OSError, ValueError):
            lines = (self.folder / "memory.events").read_text().splitlines()
            return int(dict(line.split() for line in lines)["oom_kill"]) > 0
        return False

    def remove(self) -> None:
        """Remove the group once the system sees that its processes have ended."""
        os.close(self.door)
        until = time.monotonic() + _REMOVE_SECONDS
        while self.folder.exists() and time.monotonic() < until:
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.01)


def group(name: str, memory: int, processes: int) -> Group | None:
    """Return a group for a guest, or None where none can be had."""
    with contextlib.suppress(OSError):
        if parent := place():
            return Group(parent / f"course-{os.getpid()}-{name}", memory, processes)
    return None


@functools.cache
def place() -> Path | None:
    """Return the nearest group above this process in which groups with both limits can be made."""
    with contextlib.suppress(OSError, ValueError):
        (own,) = (line[3:] for line in _OWN.read_text().splitlines() if line.startswith("0::"))
        folder = MOUNT / own.lstrip("/")
        for above in (folder, *folder.parents):
            if not above.is_relative_to(MOUNT):
                break
            controllers = (above / "cgroup.subtree_control").read_text().split()
            # Who moves a process needs the right to write to both groups' common ancestor.
            ours = os.access(above, os.W_OK) and os.access(above / "cgroup.procs", os.W_OK)
            if {"memory", "pids"} <= {*controllers} and ours:
                _sweep(above)
                return above
    return None


def _sweep(folder: Path) -> None:
    """Remove the groups of our own processes that were killed and could not do it."""
    for path in folder.glob("course-*-*"):
        with contextlib.suppress(OSError):
            if not Path(f"/proc/{path.name.split('-')[1]}").exists():
                path.rmdir()
