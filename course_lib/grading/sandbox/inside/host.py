"""The host: a process that has imported what notebooks import, and forks all guests."""

import contextlib
import gc
import importlib
import itertools
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from course_lib.grading.sandbox.inside import lockdown

_LOOK_SECONDS = 0.05  # between measurements of all guests
_MESSAGE = 1 << 16
_UIDS = range(60_000, 61_184)  # unused by systemd and Debian
_TICKS = os.sysconf("SC_CLK_TCK")


class _Host:
    """A server that runs until every process with its channel has closed it."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.settings: dict[str, Any] = json.loads(channel.recv(_MESSAGE))
        self.strict = self.settings["level"] == "strict"
        self.uids = itertools.cycle(random.sample(_UIDS, len(_UIDS)))  # RLIMIT_NPROC counts by UID
        self.guests: dict[int, socket.socket] = {}  # the control socket of each PID
        self.killed: dict[int, str] = {}  # reasons by PID
        # The last measurement by PID: its time, the seconds in which each thread had wanted a CPU,
        # and the seconds in which no thread had.
        self.measured: dict[int, tuple[float, dict[str, float], float]] = {}

    def serve(self) -> None:
        if not self.strict:
            lockdown.adopt_orphans()
        gc.disable()  # looking for garbage takes a tenth of the time of imports
        from course_lib.grading.sandbox.inside import guest  # imports torch

        guest.shell.import_everything()
        self.become_guest = guest.become_guest
        gc.enable()
        woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        looked, is_open = 0.0, True
        while is_open:
            sources = [woken, self.channel, *self.guests.values()]
            ready, _, _ = select.select(sources, [], [], _LOOK_SECONDS if self.guests else None)
            if woken in ready:
                os.read(woken, 4096)
            for pid, control in self.guests.items():
                if control not in ready:
                    continue
                request = _receive(control)[0]
                if request == b"usage":
                    _send(control, {"usage": self._usage(pid)})
                elif request == b"interrupt":
                    _signal(pid, signal.SIGINT)
                else:  # b"kill", or closed by the worker
                    self._kill(pid, "killed")
            with contextlib.suppress(ChildProcessError):
                while (ended := os.wait4(-1, os.WNOHANG))[0]:
                    self._tell(*ended)
            if self.channel in ready:
                is_open = self._fork()
            if not self.settings["counted"] and time.monotonic() > looked + _LOOK_SECONDS:
                looked = time.monotonic()
                for pid, family in _families(self.guests).items():
                    if len(family) > self.settings["processes"]:
                        self._kill(pid, "processes")
                    # At "strict", a guest has a network namespace of its own, which counts sockets.
                    used = _total([pid] * self.strict, lambda pid: _number(pid, *_SOCKETS))
                    most = self.settings["memory"] - used * self.settings["socket_memory"]
                    # A single process cannot have so many mappings, so most guests are not counted.
                    mapped = len(family) > 1 and _total(family, _mappings) > _MAPPINGS
                    if mapped or all(_total(family, each) << 10 > most for each in _MEMORY):
                        self._kill(pid, "memory")

    def _usage(self, pid: int) -> tuple[float, float, float]:
        """Return the time, a guest's CPU time, and the seconds in which no thread wanted a CPU."""
        family, now, wanted = _families([pid])[pid], time.monotonic(), {}
        for each in family:
            with contextlib.suppress(OSError):  # it has ended
                for tid in os.listdir(f"/proc/{each}/task"):
                    with contextlib.suppress(OSError, ValueError):
                        ran, waited, _ = map(int, _fields(f"{each}/task/{tid}", "schedstat"))
                        wanted[tid] = (ran + waited) / 1e9
        then, before, idle = self.measured.get(pid, (now, {}, 0.0))
        longest = max((wanted[tid] - before.get(tid, 0.0) for tid in wanted), default=0.0)
        idle += max(now - then - longest, 0.0)
        self.measured[pid] = now, wanted, idle
        cpu = _total(family, lambda pid: sum(map(int, _fields(pid, "stat")[11:15])))
        return now, cpu / _TICKS, idle

    def _kill(self, pid: int, reason: str) -> None:
        self.killed.setdefault(pid, reason)
        _signal(pid, signal.SIGKILL)

    def _fork(self) -> bool:
        """Fork a guest if a request has arrived, and return whether the channel is still open."""
        data, descriptors = _receive(self.channel)
        if not data:
            return False
        control = socket.socket(fileno=descriptors.pop(0))
        for name in json.loads(data):
            if name not in sys.modules:
                importlib.import_module(name)
                gc.freeze()
        uid = next(self.uids) if self.strict and self.settings["change_user"] else None
        try:
            if self.settings["counted"] and len(descriptors) == 2:
                raise OSError("it has no cgroup, although other guests have one")
            if (threads := len(os.listdir("/proc/self/task"))) > 1:
                raise OSError(f"its host has {threads} threads")
            pid = lockdown.fork_into_own_pid_namespace() if self.strict else os.fork()
            if pid == 0:
                self.become_guest(self.settings | {"uid": uid}, *descriptors)
            self.guests[pid] = control
        except OSError as error:
            _send(control, {"reason": "refused", "detail": f"no process could be forked: {error}"})
            control.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _tell(self, pid: int, status: int, spent: resource.struct_rusage) -> None:
        """Report to the client of a guest how the guest ended."""
        if (control := self.guests.pop(pid, None)) is None:
            return
        self.measured.pop(pid, None)
        if not self.strict:  # the host has adopted the guest's children
            _, *ours = _families([os.getpid()])[os.getpid()]
            for orphan in {*ours}.difference(*_families(self.guests).values()):
                _signal(orphan, signal.SIGKILL)
            shutil.rmtree(f"{self.settings['place']}/{pid}", ignore_errors=True)
        code = os.waitstatus_to_exitcode(status)
        reason = self.killed.pop(pid, "signal" if code < 0 else "exit")
        used = {"cpu": spent.ru_utime + spent.ru_stime, "peak": spent.ru_maxrss * 1024}
        _send(control, {"reason": reason, "code": abs(code), **used})
        control.close()


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    with contextlib.suppress(OSError):
        return socket.recv_fds(channel, _MESSAGE, 8)[:2]
    return b"", []


def _send(channel: socket.socket, event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the client is gone, as reading shows, too
        channel.send(json.dumps(event).encode())


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _families(guests: Iterable[int]) -> dict[int, list[int]]:
    """Return for each guest its PID and those of its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                children.setdefault(int(_fields(name, "stat")[1]), []).append(int(name))
    found = {guest: [guest] for guest in guests}
    for family in found.values():
        for pid in family:  # grows during the loop
            family += children.get(pid, [])
    return found


_SOCKETS, _TABLES = ("net/sockstat", b" used"), ("status", b"\nVmPTE:")
# Kilobytes of memory. The first counts shared pages in full. The second, slower one divides them.
_MEMORY = (
    lambda pid: _number(pid, "status", b"\nVmRSS:") + _number(pid, *_TABLES),
    lambda pid: _number(pid, "smaps_rollup", b"\nPss:") + _number(pid, *_TABLES),
)
_MAPPINGS = 250_000  # of memory in a guest; each takes up to 400 bytes in the kernel's lists


def _mappings(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_bytes().count(b"\n")


def _total(family: list[int], field: Callable[[int], int]) -> int:
    total = 0
    for pid in family:
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
            total += field(pid)
    return total


def _number(pid: int, name: str, after: bytes) -> int:
    return int(_fields(pid, name, after)[0])


def _fields(pid: int | str, name: str, after: bytes = b")") -> list[bytes]:
    """Return the fields of a file in /proc/PID; in `stat`, those after the process name."""
    return Path(f"/proc/{pid}/{name}").read_bytes().rpartition(after)[2].split()


if __name__ == "__main__":
    _Host(socket.socket(fileno=int(sys.argv.pop()))).serve()  # hides it from guests
