"""A process beside each kernel: watches its memory and its processes, and meters their time.

When the kernel ends, nothing it started outlives it.
"""

import contextlib
import json
import os
import resource
import select
import signal
import time

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
        said, saying = os.pipe()
        kernel = os.fork()
        if kernel == 0:
            become_kernel(request, saying, started)
        os.close(saying)
        words = _Watchdog(kernel, slot, note).watch() | _heard(said)
    except BaseException as error:
        words = {"reason": "refused", "detail": f"{type(error).__name__}: {error}"}
    with contextlib.suppress(OSError):
        os.write(writer, json.dumps(words).encode())
    os._exit(0)


def _heard(said: int) -> dict:
    """What the kernel said before any student's code ran in it: its times, or why it failed."""
    data = os.read(said, 8192)
    if data.startswith(READY):
        return {"spent": json.loads(data.removeprefix(READY))}
    return {"reason": "refused", "detail": data.decode(errors="replace")} if data else {}


class _Watchdog:
    """Watches one kernel and everything it starts."""

    def __init__(self, kernel: int, slot: dict, note: int) -> None:
        self.kernel, self.slot = kernel, slot
        self.started, self.peak, self.reason = time.monotonic(), 0, ""
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
        if len(family) > self.slot["max_processes"]:
            return self._end("processes")
        with contextlib.suppress(OSError):  # no room on the disk: noted at the next look
            os.pwrite(self.note, bytes(self.meter.look(family)), 0)
        used = sum(_memory(pid, "statm") for pid in family)
        if used > self.slot["memory"]:  # pages shared with the zygote count in each: look closer
            used = sum(_memory(pid, "smaps_rollup") for pid in family)
            if used > self.slot["memory"]:
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


def _memory(pid: int, file: str) -> int:
    """Bytes: all resident pages (statm), or each shared page by its share (smaps_rollup)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        text = meter.read(f"/proc/{pid}/{file}")
        if file == "statm":
            return int(text.split()[1]) * resource.getpagesize()
        return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == b"Pss:") << 10
    return 0
