"""The parent of all guests: a process that has imported what notebooks import, and forks.

All processes that ask for guests share a channel, a SOCK_SEQPACKET socket. A message on it holds
modules to import in JSON and, as file descriptors, a socket to control the guest, its two pipes
and its cgroup. On the control socket the host answers requests and tells how the guest ended.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from course_lib.grading.sandbox.inside import lockdown
from course_lib.grading.sandbox.inside.guest import become_guest
from course_lib.grading.sandbox.inside.shell import import_everything

_LOOK_SECONDS = 0.05  # between two looks at the memory and the processes of all guests
_MESSAGE = 1 << 16
_UIDS = range(60_000, 61_184)  # unused by systemd and Debian
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), resource.getpagesize()


@dataclass
class _Guest:
    pid: int
    control: socket.socket
    uid: int | None
    folder: str
    reason: str = ""

    def end(self, reason: str) -> None:
        self.reason = self.reason or reason
        _signal(self.pid, signal.SIGKILL)


class _Host:
    """Serves the processes that hold its channel until all have closed it."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.settings: dict[str, Any] = json.loads(channel.recv(_MESSAGE))
        self.guests: dict[int, _Guest] = {}
        self.strict = self.settings["level"] == "strict"

    def serve(self) -> None:
        """Import everything, then answer messages."""
        if not self.strict:
            lockdown.adopt_orphans()
        import_everything()
        gc.collect()
        gc.freeze()  # so that guests go on sharing the pages of all objects
        woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake
        looked, is_open = 0.0, True
        while is_open:
            controls = {guest.control: guest for guest in self.guests.values()}
            timeout = _LOOK_SECONDS if self.guests else None
            ready, _, _ = select.select([woken, self.channel, *controls], [], [], timeout)
            if woken in ready:
                os.read(woken, 4096)
            for control in controls.keys() & {*ready}:
                self._answer(controls[control])
            with contextlib.suppress(ChildProcessError):
                while (ended := os.wait4(-1, os.WNOHANG))[0]:
                    self._tell(*ended)
            if self.channel in ready:
                is_open = self._fork()
            if time.monotonic() > looked + _LOOK_SECONDS:
                looked = time.monotonic()
                self._look()

    def _answer(self, guest: _Guest) -> None:
        request = _receive(guest.control)[0]
        if request == b"usage":
            _send(guest.control, _used(_families([guest.pid])[guest.pid]))
        elif request == b"interrupt":
            _signal(guest.pid, signal.SIGINT)
        else:
            guest.end("killed")

    def _fork(self) -> bool:
        """Fork a guest if asked to; return whether the channel is still open."""
        data, descriptors = _receive(self.channel)
        if not data:
            return False
        control = socket.socket(fileno=descriptors.pop(0))
        for name in json.loads(data):
            if name not in sys.modules:
                importlib.import_module(name)
                gc.freeze()
        uid = None
        if self.strict and self.settings["change_user"]:  # RLIMIT_NPROC counts by user
            uid = random.choice([*{*_UIDS} - {guest.uid for guest in self.guests.values()}])
        folder = "/scratch" if self.strict else tempfile.mkdtemp(dir=self.settings["place"])
        try:
            if (threads := len(os.listdir("/proc/self/task"))) > 1:
                raise OSError(f"its host has {threads} threads")
            pid = lockdown.fork_into_own_pid_namespace() if self.strict else os.fork()
            if pid == 0:
                become_guest(self.settings | {"uid": uid, "folder": folder}, *descriptors)
            self.guests[pid] = _Guest(pid, control, uid, folder)
        except OSError as error:
            _send(control, {"reason": "refused", "detail": f"no process could be forked: {error}"})
            control.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _tell(self, pid: int, status: int, spent: resource.struct_rusage) -> None:
        """Tell who asked for a guest how it ended."""
        guest = self.guests.pop(pid, None)
        if guest is None:
            return
        signaled = os.WIFSIGNALED(status)
        if not self.strict:  # the host has adopted what the guest left behind
            _, *ours = _families([os.getpid()])[os.getpid()]
            for orphan in {*ours}.difference(*_families(self.guests).values()):
                _signal(orphan, signal.SIGKILL)
            shutil.rmtree(guest.folder, ignore_errors=True)
        ending = {
            "reason": guest.reason or ("signal" if signaled else "exit"),
            "code": os.WTERMSIG(status) if signaled else os.WEXITSTATUS(status),
            "cpu": spent.ru_utime + spent.ru_stime,
            "peak": spent.ru_maxrss * 1024,
        }
        _send(guest.control, ending)
        guest.control.close()

    def _look(self) -> None:
        """Kill guests that hold too much memory or too many processes."""
        families = _families(self.guests)
        for guest in self.guests.values():
            family = families[guest.pid]
            if len(family) > self.settings["processes"]:
                guest.end("processes")
            if all(_total(family, each) > self.settings["memory"] for each in _MEMORY):
                guest.end("memory")


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    with contextlib.suppress(OSError):
        return socket.recv_fds(channel, _MESSAGE, 4)[:2]
    return b"", []


def _send(channel: socket.socket, event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it has left; reading from it says so, too
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
                children.setdefault(int(_stat(name)[1]), []).append(int(name))
    found = {guest: [guest] for guest in guests}
    for family in found.values():
        for pid in family:  # grows while it is walked
            family += children.get(pid, [])
    return found


def _used(family: list[int]) -> dict[str, float]:
    """Return processor time, and how long a thread was ready to run and waited for a processor.

    Of several threads the longest wait counts: many that sleep would add up to any time.
    """
    waits = [0.0]
    for pid in family:
        with contextlib.suppress(OSError, IndexError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                schedule = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
                waits.append(int(schedule[1]) / 1e9)
    cpu = _total(family, lambda pid: sum(map(int, _stat(pid)[11:15])))
    return {"cpu": cpu / _TICKS, "waited": max(waits)}


# Bytes of memory. A page that several processes share counts in each of them; then only each
# process's share of it counts, which is slower to read.
_MEMORY = (
    lambda pid: int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE,
    lambda pid: int(_read(f"/proc/{pid}/smaps_rollup").partition(b"\nPss:")[2].split()[0]) << 10,
)


def _total(family: list[int], field: Callable[[int], int]) -> int:
    total = 0
    for pid in family:
        with contextlib.suppress(OSError, IndexError):  # it has ended
            total += field(pid)
    return total


def _stat(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, whatever that may hold."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    _Host(socket.socket(fileno=int(sys.argv.pop()))).serve()  # guests see no argument
