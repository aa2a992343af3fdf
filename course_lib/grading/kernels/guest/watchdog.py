"""A process beside each kernel: watches its memory and its processes, and meters their time.

When the kernel ends, nothing it started outlives it.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import stat
import time
from collections.abc import Iterable

from course_lib.grading.kernels.guest import lockdown, meter
from course_lib.grading.kernels.guest.kernel import READY, become_kernel

_POLL_SECONDS = 0.05
_NOTE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def become_watchdog(request: dict, writer: int, inherited: list[int]) -> None:
    """Runs in the forked watchdog and never returns.

    Args:
        request: of the driver; says how to shut the kernel in and what it may use.
        writer: pipe for the last words, a JSON object.
        inherited: descriptors of the zygote that are no business of a kernel's.
    """
    started = time.monotonic()
    try:
        lockdown.die_with_parent()
        for descriptor in inherited:
            os.close(descriptor)
        os.setsid()
        lockdown.adopt_orphans()
        if request["slot"]["level"] == "strict":
            lockdown.unshare(lockdown.NEWPID)
        slot = request["slot"]
        note = os.open(meter.file_of(slot["spool"], slot["name"]), _NOTE, 0o600)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kernel = os.fork()
        if kernel == 0:
            become_kernel(request, theirs.fileno(), started)
        theirs.close()
        if request["group"] is not None:
            os.close(request["group"])
        watchdog = _Watchdog(kernel, slot, note)
        heard = _heard(ours)
        words = watchdog.watch() | heard
    except BaseException as error:
        words = {"reason": "refused", "detail": f"{type(error).__name__}: {error}"}
    with contextlib.suppress(OSError):
        os.write(writer, json.dumps(words).encode())
    os._exit(0)


def _heard(kernel: socket.socket) -> dict:
    """What the kernel says before any student's code runs in it: its times, or why it failed."""
    data, received, _, _ = socket.recv_fds(kernel, 8192, 1)
    if received:
        data = kernel.recv(8192)
    if data.startswith(READY):
        for mounts in received:
            lockdown.seal_sockets(mounts)
            os.close(mounts)
        kernel.send(b"!")
        return {"spent": json.loads(data.removeprefix(READY))}
    return {"reason": "refused", "detail": data.decode(errors="replace")} if data else {}


class _Watchdog:
    """Watches one kernel and everything it starts."""

    def __init__(self, kernel: int, slot: dict, note: int) -> None:
        self.kernel, self.slot = kernel, slot
        self.started, self.peak, self.reason = time.monotonic(), 0, ""
        self.first = 0  # address space of the kernel when it began
        self.strict = slot["level"] == "strict"
        self.meter, self.note = meter.Meter(), note
        self.woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGTERM, lambda *_: self._end("killed"))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake

    def watch(self) -> dict:
        """Wait for the kernel's end; say how it ended."""
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == self.kernel:
                break
            if pid == 0:
                self._look()
                select.select([self.woken], [], [], _POLL_SECONDS)
                with contextlib.suppress(BlockingIOError):
                    os.read(self.woken, 64)
        for pid in () if self.strict else self._family():  # a pid namespace ends with its first
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while not self.strict:
            try:
                os.wait()
            except ChildProcessError:
                break
        return {
            "reason": self.reason or ("signal" if os.WIFSIGNALED(status) else "exit"),
            "code": os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
            "cpu": round(usage.ru_utime + usage.ru_stime, 3),
            "peak": max(self.peak, usage.ru_maxrss * 1024),
            "seconds": round(time.monotonic() - self.started, 3),
        }

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.kernel, signal.SIGKILL)

    def _look(self) -> None:
        family = self._family()
        if len(family) > self.slot["processes"]:
            return self._end("processes")
        with contextlib.suppress(OSError):  # no room on the disk: noted at the next look
            os.pwrite(self.note, bytes(self.meter.look(family)), 0)
        if not self.strict and _written(self.slot, family) > self.slot["disk"]:
            return self._end("disk")
        most = self.slot["memory"]
        sizes = [_sizes(pid) for pid in family]
        self.first = self.first or sizes[0][0]
        used = sum(resident for _, resident in sizes)
        grown = sum(max(0, size - self.first) for size, _ in sizes)
        if used > most or grown > most:  # pages that are shared count in each: look closer
            used = sum(map(_private, family)) + _shared(family)
            if used > most:
                return self._end("memory")
        self.peak = max(self.peak, used)
        return None

    def _family(self) -> dict[int, list[bytes]]:
        """The kernel and all processes that came from it, with their fields of /proc/PID/stat."""
        known = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    known[int(name)] = meter.stat_of(name)
        parents = {pid: int(fields[meter.PARENT]) for pid, fields in known.items() if fields}
        family = {self.kernel} & parents.keys() if self.strict else {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return {pid: known[pid] for pid in sorted(family - {os.getpid()})}


def _sizes(pid: int) -> tuple[int, int]:
    """Bytes of a process: its address space, and what of it lies in memory."""
    with contextlib.suppress(OSError, ValueError):
        size, resident = meter.read(f"/proc/{pid}/statm").split()[:2]
        return int(size) * resource.getpagesize(), int(resident) * resource.getpagesize()
    return 0, 0


def _private(pid: int) -> int:
    """Bytes of a process in memory, pages of files and of its relatives by its share."""
    with contextlib.suppress(OSError, ValueError):
        lines = meter.read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]
        kilobytes = {
            name: int(rest.split()[0]) for name, _, rest in (i.partition(b":") for i in lines)
        }
        return (kilobytes[b"Pss"] - kilobytes.get(b"Pss_Shmem", 0)) << 10
    return 0


def _shared(family: Iterable[int]) -> int:
    """Bytes of memory without a file that processes share, in full: it stays when they let go."""
    areas = {}
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


_ENTRIES = 2000  # in the folder of a kernel that is not shut in


def _written(slot: dict, family: Iterable[int]) -> int:
    """Bytes on the disk in a kernel's folder, and in files that only its processes still know."""
    found = number = 0
    for folder, _, files in os.walk(f"{slot['spool']}/{slot['name']}"):
        number += 1 + len(files)
        if number > _ENTRIES:
            return slot["disk"] + 1
        found += sum(_blocks(f"{folder}/{name}", -1) for name in files)
    for pid in family:
        with contextlib.suppress(OSError):
            names = os.listdir(f"/proc/{pid}/fd")
            found += sum(_blocks(f"/proc/{pid}/fd/{name}", 0) for name in names)
    return found


def _blocks(path: str, links: int) -> int:
    """Bytes that an ordinary file takes; of a number of names, any if negative."""
    with contextlib.suppress(OSError):
        about = os.stat(path) if links == 0 else os.lstat(path)
        if stat.S_ISREG(about.st_mode) and links in (-1, about.st_nlink):
            return about.st_blocks * 512
    return 0
