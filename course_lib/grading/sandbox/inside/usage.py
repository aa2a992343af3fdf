"""What guests and everything they started use, read from outside of them in /proc."""

import contextlib
import os
import resource
from collections.abc import Iterable, Sequence

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()
# Fields of /proc/PID/stat, counted from the one behind the name.
_PARENT, _TIMES = 1, slice(11, 15)


def families(guests: Sequence[int]) -> dict[int, list[int]]:
    """Return for each guest its PID and those of its descendants."""
    children = _children()
    found = {}
    for guest in guests:
        family = [guest]
        for pid in family:  # grows while it is walked
            family += children.get(pid, [])
        found[guest] = family
    return found


def children_of(pid: int) -> list[int]:
    """Return the PIDs of a process's children."""
    return _children().get(pid, [])


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                children.setdefault(int(_stat(name)[_PARENT]), []).append(int(name))
    return children


def of(family: Iterable[int]) -> dict[str, float]:
    """Return processor time, and how long a thread was ready to run and waited for a processor.

    Of several threads the one that waited longest counts: many that sleep would add up to any time.
    """
    cpu = waited = 0.0
    for pid in family:
        with contextlib.suppress(OSError, ValueError):
            cpu += sum(map(int, _stat(str(pid))[_TIMES])) / _TICKS
            for thread in os.listdir(f"/proc/{pid}/task"):
                schedule = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
                waited = max(waited, int(schedule[1]) / 1e9)
    return {"cpu": cpu, "waited": waited}


def resident(family: Iterable[int]) -> int:
    """Return bytes of memory; a page that several processes share counts in each."""
    pages = 0
    for pid in family:
        with contextlib.suppress(OSError, ValueError):
            pages += int(_read(f"/proc/{pid}/statm").split()[1])
    return pages * _PAGE


def proportional(family: Iterable[int]) -> int:
    """Return bytes of memory; of a shared page, each process's share counts. Slower to read."""
    kilobytes = 0
    for pid in family:
        with contextlib.suppress(OSError, ValueError):
            lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
            kilobytes += next(int(line.split()[1]) for line in lines if line.startswith(b"Pss:"))
    return kilobytes << 10


def _stat(process: str) -> list[bytes]:
    """Return the fields of /proc/PROCESS/stat behind its name, whatever that may hold."""
    return _read(f"/proc/{process}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
