"""Limit each guest by a cgroup (v2), where this process may make one."""

import contextlib
import functools
import os
import secrets
import time
from pathlib import Path

MOUNT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class Group:
    """A cgroup that a guest enters by writing "0" to `procs` before it runs student code."""

    def __init__(self, folder: Path, memory: int, processes: int) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "memory.max").write_text(str(memory))
        (folder / "pids.max").write_text(str(processes))
        (folder / "memory.oom.group").write_text("1")  # end all its processes at once
        with contextlib.suppress(OSError):  # missing on a system without swap
            (folder / "memory.swap.max").write_text("0")
        self.procs = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def remove(self) -> bool:
        """Remove the group, and return whether Linux killed it for exceeding its memory."""
        events = (self.folder / "memory.events").read_text()
        os.close(self.procs)
        until = time.monotonic() + 1.0
        while self.folder.exists() and time.monotonic() < until:
            try:
                self.folder.rmdir()
            except OSError:  # Linux has not yet removed its processes
                time.sleep(0.01)
        return "\noom_kill 0\n" not in events


def group(memory: int, processes: int) -> Group | None:
    """Return a group for a guest, or None if none can be made."""
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
        for above in (folder, *folder.parents):  # fails above the mount, which ends the search
            controllers = (above / "cgroup.subtree_control").read_text().split()
            # Moving a process needs write access to the common ancestor of both groups.
            ours = os.access(above, os.W_OK) and os.access(above / "cgroup.procs", os.W_OK)
            if {"memory", "pids"} <= {*controllers} and ours:
                for left in above.glob("course-*-*"):  # left by killed processes
                    if not Path(f"/proc/{left.name.split('-')[1]}").exists():
                        with contextlib.suppress(OSError):
                            left.rmdir()
                return above
    return None
