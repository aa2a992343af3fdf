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
    """Return processor time, and how long threads were ready to run and waited for a processor."""
    cpu = waited = 0.0
    for pid in family:
        with contextlib.suppress(OSError, ValueError):
            cpu += sum(map(int, _stat(str(pid))[_TIMES])) / _TICKS
            for thread in os.listdir(f"/proc/{pid}/task"):
                waited += int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1]) / 1e9
    return {"cpu": cpu, "waited": waited}


def sizes(family: Iterable[int]) -> tuple[int, int]:
    """Return bytes of address space and of memory, summed over processes that share pages."""
    size = resident = 0
    for pid in family:
        with contextlib.suppress(OSError, ValueError):
            pages = _read(f"/proc/{pid}/statm").split()[:2]
            size, resident = size + int(pages[0]) * _PAGE, resident + int(pages[1]) * _PAGE
    return size, resident


def memory(family: Iterable[int]) -> int:
    """Return bytes of memory; of pages that relatives share, each process's share counts."""
    return sum(map(_private, family)) + _shared(family)


def _private(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]
        pairs = (line.partition(b":") for line in lines)
        kilobytes = {name: int(rest.split()[0]) for name, _, rest in pairs}
        return (kilobytes[b"Pss"] - kilobytes.get(b"Pss_Shmem", 0)) << 10
    return 0


def _shared(family: Iterable[int]) -> int:
    """Return bytes of anonymous shared memory, in full: it stays when processes let go of it."""
    areas: dict[tuple[bytes, int], int] = {}
    for pid in family:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                where, _, _, _, inode, *name = line.split(None, 5)
                if name and name[0].startswith(b"/dev/zero"):
                    first, last = (int(part, 16) for part in where.split(b"-"))
                    areas[inode, first] = last - first
    largest: dict[bytes, int] = {}
    for (inode, _), size in areas.items():
        largest[inode] = largest.get(inode, 0) + size
    return sum(largest.values())


def _stat(process: str) -> list[bytes]:
    """Return the fields of /proc/PROCESS/stat behind its name, whatever that may hold."""
    return _read(f"/proc/{process}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
