"""A cgroup (v2) for each guest, where this process may make one: the system holds its limits."""

import contextlib
import functools
import os
import secrets
import time
from pathlib import Path

MOUNT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class Group:
    """A group that a guest enters before student code runs in it, by writing "0" to `procs`."""

    def __init__(self, folder: Path, memory: int, processes: int) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "memory.max").write_text(str(memory))
        (folder / "pids.max").write_text(str(processes))
        (folder / "memory.oom.group").write_text("1")  # all of it ends, or nothing
        with contextlib.suppress(OSError):  # a system without swap may have no such file
            (folder / "memory.swap.max").write_text("0")
        self.procs = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def remove(self) -> bool:
        """Remove the group; return whether the system ended it because it ran out of memory."""
        events = (self.folder / "memory.events").read_text()
        os.close(self.procs)
        until = time.monotonic() + 1.0
        while self.folder.exists() and time.monotonic() < until:
            try:
                self.folder.rmdir()
            except OSError:  # the system has yet to see that its processes have ended
                time.sleep(0.01)
        return "\noom_kill 0\n" not in events


def group(memory: int, processes: int) -> Group | None:
    """Return a group for a guest, or None where none can be had."""
    with contextlib.suppress(OSError):
        if parent := place():
            name = f"course-{os.getpid()}-{secrets.token_hex(4)}"
            return Group(parent / name, memory, processes)
    return None


@functools.cache
def place() -> Path | None:
    """Return the nearest group above this process in which groups with both limits can be made."""
    with contextlib.suppress(OSError, ValueError):
        (own,) = (line[3:] for line in _OWN.read_text().splitlines() if line.startswith("0::"))
        folder = MOUNT / own.lstrip("/")
        for above in (folder, *folder.parents):  # above the mount there is no such file
            controllers = (above / "cgroup.subtree_control").read_text().split()
            # Who moves a process needs the right to write to both groups' common ancestor.
            ours = os.access(above, os.W_OK) and os.access(above / "cgroup.procs", os.W_OK)
            if {"memory", "pids"} <= {*controllers} and ours:
                for left in above.glob("course-*-*"):  # of a process that was killed
                    if not Path(f"/proc/{left.name.split('-')[1]}").exists():
                        with contextlib.suppress(OSError):
                            left.rmdir()
                return above
    return None
