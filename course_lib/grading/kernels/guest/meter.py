"""What a kernel and everything it started have used, read from outside of them in /proc.

Processor time passes as fast as a process gets to run, so a machine that is busy with other work
changes nothing. Time in which a family of processes neither runs nor wants to is its own doing too:
it sleeps, or waits for something. Time in which it wants the processor and does not get it is not.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_LONGEST_LOOK = 0.1  # seconds that one look may add to the waiting: a late look has seen no more
_FORM = struct.Struct("dd")
# Fields of /proc/PID/stat, counted from the one behind the name.
STATE, PARENT, _OWN, _CHILDREN, _STARTED = 0, 1, slice(11, 13), slice(13, 15), 19


@dataclass(frozen=True)
class Used:
    """What a kernel and everything it started have used.

    Args:
        processor: seconds of processor time, of all threads and processes together.
        waiting: seconds in which none of them ran or could have run.
    """

    processor: float = 0.0
    waiting: float = 0.0

    def __sub__(self, before: Used) -> Used:
        return Used(self.processor - before.processor, self.waiting - before.waiting)

    def __bytes__(self) -> bytes:
        return _FORM.pack(self.processor, self.waiting)

    @property
    def total(self) -> float:
        """Seconds that it would have taken on a quiet machine with one processor."""
        return self.processor + self.waiting


def file_of(spool: str | os.PathLike, name: str) -> str:
    """Where a kernel's watchdog notes what it has used; no kernel can reach it in a sandbox."""
    return os.path.join(spool, f"{name}.used")


def read_used(spool: str | os.PathLike, name: str) -> Used | None:
    """What a kernel's watchdog has noted; None before it begins and after it ends."""
    with contextlib.suppress(OSError, struct.error), open(file_of(spool, name), "rb") as file:
        return Used(*_FORM.unpack(file.read()))
    return None


class Meter:
    """Adds up what a family of processes uses, as long as it is looked at often."""

    def __init__(self) -> None:
        self.used = Used()
        self._last, self._gone = time.monotonic(), 0.0
        self._own: dict[tuple[int, bytes], float] = {}

    def look(self, family: Mapping[int, list[bytes]]) -> Used:
        """Add what was used since the last look.

        Args:
            family: for each process the fields of /proc/PID/stat behind its name.
        """
        own = {(pid, fields[_STARTED]): _seconds(fields[_OWN]) for pid, fields in family.items()}
        self._gone += sum(self._own[key] for key in self._own.keys() - own.keys())
        self._own = own
        # Children that were waited for count with their parent, all others as they were seen last.
        reaped = sum(_seconds(fields[_CHILDREN]) for fields in family.values())
        processor = sum(own.values()) + max(reaped, self._gone)
        processor = max(processor, self.used.processor)
        now, last = time.monotonic(), self._last
        self._last, waiting = now, self.used.waiting
        if not any(_wants_to_run(pid, fields) for pid, fields in family.items()):
            idle = min(now - last, _LONGEST_LOOK) - (processor - self.used.processor)
            waiting += max(0.0, idle)
        self.used = Used(processor, waiting)
        return self.used


def _seconds(ticks: list[bytes]) -> float:
    return sum(map(int, ticks)) / _TICKS


def _wants_to_run(pid: int, fields: list[bytes]) -> bool:
    """Whether a thread of a process runs, waits for a processor, or for the disk."""
    if fields[STATE] in b"RD":
        return True
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError):
                if stat_of(f"{pid}/task/{thread}")[STATE] in b"RD":
                    return True
    return False


def stat_of(process: str) -> list[bytes]:
    """The fields of /proc/PROCESS/stat behind its name, whatever that may hold.

    Raises:
        OSError: there is no such process.
    """
    return read(f"/proc/{process}/stat").rpartition(b")")[2].split()


def read(path: str) -> bytes:
    """A small file of /proc; looked at twenty times a second, so without Python's layers."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
