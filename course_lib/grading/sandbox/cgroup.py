"""Limit each guest with cgroups (v2 or v1), where this process may create them."""

import contextlib
import functools
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

MOUNT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_V1 = ("memory", "pids", "cpuacct")  # controllers, each with a tree of its own


class Group:
    """The cgroups of a guest, which enters them by writing "0" to `entries` before it runs code."""

    def __init__(self, parents: tuple[Path, ...], memory: int, processes: int) -> None:
        name = f"course-{os.getpid()}-{secrets.token_hex(4)}"
        self.folders = [parent / name for parent in parents]
        self.entries: list[int] = []
        limits = {"memory.max": memory, "memory.limit_in_bytes": memory, "pids.max": processes}
        limits |= {"memory.swap.max": 0, "memory.memsw.limit_in_bytes": memory}  # if there is swap
        limits |= {"memory.oom.group": 1}  # end all processes at once
        for folder in self.folders:
            folder.mkdir()
            for file in (folder / name for name in limits):
                if file.exists():  # v1 and v2 have different files
                    file.write_text(str(limits[file.name]))
            # In v1, entering by `tasks` takes no lock that stops the whole machine.
            entry = folder / ("tasks" if len(parents) > 1 else "cgroup.procs")
            self.entries.append(os.open(entry, os.O_WRONLY | os.O_CLOEXEC))

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes that were ever in the group."""
        if len(self.folders) > 1:
            return int((self.folders[2] / "cpuacct.usage").read_text()) / 1e9
        return int((self.folders[0] / "cpu.stat").read_text().split()[1]) / 1e6

    def remove(self) -> bool:
        """Remove the group, and return whether Linux killed a process that exceeded its memory."""
        killed = False
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                killed |= "\noom_kill 0\n" not in (self.folders[0] / name).read_text()
        for descriptor in self.entries:
            os.close(descriptor)
        until = time.monotonic() + 1.0
        for folder in self.folders:
            while folder.exists() and time.monotonic() < until:
                try:
                    folder.rmdir()
                except OSError:  # Linux has not yet removed its processes
                    time.sleep(0.01)
        return killed


@functools.cache
def place() -> tuple[Path, ...]:
    """Return the folders below which guests get groups, which are one (v2), three (v1) or none.

    A trial process has entered a group in each of them.
    """
    for parents in _places():
        for left in (left for parent in parents for left in parent.glob("course-*-*")):
            if not Path(f"/proc/{left.name.split('-')[1]}").exists():  # its creator was killed
                with contextlib.suppress(OSError):
                    left.rmdir()
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            trial = Group(parents, 100_000_000, 10)
            stack.callback(trial.remove)
            process = stack.enter_context(subprocess.Popen(["sleep", "60"]))
            stack.callback(process.kill)
            for entry in trial.entries:
                os.write(entry, str(process.pid).encode())
            return parents
    return ()


def _places() -> Iterator[tuple[Path, ...]]:
    """Yield the places to try, beginning with the nearest group above this process."""
    own: dict[str, str] = {}  # the path of this process's group by controller; v2 is named ""
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in _OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
        folder = MOUNT / own[""]
        for above in (folder, *folder.parents):  # fails above the mount, which ends the search
            if {"memory", "pids"} <= {*(above / "cgroup.subtree_control").read_text().split()}:
                yield (above,)
    if own.keys() >= {*_V1}:
        yield tuple(MOUNT / name / own[name] for name in _V1)
