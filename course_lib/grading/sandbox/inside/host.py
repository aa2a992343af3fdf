"""The parent of all guests: a process that has imported what notebooks import, and forks.

It runs no student code, and it never sees a submission, a seed, the judge, the oracle or the
exercises. Each process that asks for guests has a channel, a SOCK_SEQPACKET socket. A message is
one JSON object, and file descriptors are sent along with it.
"""

import contextlib
import gc
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from course_lib.grading.sandbox.inside import lockdown, usage, warm
from course_lib.grading.sandbox.inside.guest import become_guest

_LOOK_SECONDS = 0.05  # between two looks at the memory and the processes of all guests
_MESSAGE = 1 << 16
_UIDS = range(60_000, 61_184)  # no one else's, as systemd and Debian count


@dataclass
class _Guest:
    name: str
    pid: int
    channel: socket.socket
    uid: int | None
    folder: str
    reason: str = ""
    peak: int = 0


class _Host:
    """Serves the processes that are connected to it until the first of them leaves."""

    def __init__(self, owner: socket.socket) -> None:
        self.owner = owner
        self.channels = [owner]
        self.settings: dict[str, Any] = json.loads(owner.recv(_MESSAGE))
        self.guests: dict[int, _Guest] = {}
        self.strict = self.settings["level"] == "strict"
        self.looked = 0.0
        if not self.strict:
            lockdown.adopt_orphans()

    def serve(self) -> None:
        """Import everything, then answer messages."""
        warm.import_everything()
        gc.collect()
        gc.freeze()  # so that guests go on sharing the pages of all objects
        with open("/proc/self/status", encoding="ascii") as file:
            threads = next(int(line.split()[1]) for line in file if line.startswith("Threads:"))
        self.greeting = {"event": "ready", "threads": threads}
        _send(self.owner, self.greeting)
        woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake
        while self.owner in self.channels:
            timeout = _LOOK_SECONDS if self.guests else None
            ready, _, _ = select.select([woken, *self.channels], [], [], timeout)
            if woken in ready:
                os.read(woken, 4096)
            self._reap()
            for channel in ready:
                if isinstance(channel, socket.socket):
                    self._answer(channel)
            if time.monotonic() > self.looked + _LOOK_SECONDS:
                self.looked = time.monotonic()
                self._look()

    def _answer(self, channel: socket.socket) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE, 3)
        except OSError:
            data, descriptors = b"", []
        if not data:
            return self._leave(channel)
        message = json.loads(data)
        name = message.get("name")
        guest = next((g for g in self.guests.values() if g.name == name), None)
        request = message["request"]
        if request == "join":
            self.channels.append(socket.socket(fileno=descriptors[0]))
            _send(self.channels[-1], self.greeting)
        elif request == "fork":
            self._fork(channel, message, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        elif request == "usage":
            used = usage.of(usage.families([guest.pid])[guest.pid]) if guest else None
            _send(channel, {"event": "usage", "name": name, "used": used})
        elif guest is not None:
            if request == "kill":
                guest.reason = guest.reason or "killed"
            number = signal.SIGKILL if request == "kill" else signal.SIGINT
            with contextlib.suppress(ProcessLookupError):
                os.kill(guest.pid, number)
        return None

    def _fork(
        self, channel: socket.socket, message: dict[str, Any], descriptors: list[int]
    ) -> None:
        warm.import_more(message["imports"])
        reading, writing, *group = descriptors
        uid = self._free_uid()
        folder = "/scratch" if self.strict else tempfile.mkdtemp(dir=self.settings["place"])
        slot = self.settings | {"uid": uid, "folder": folder}
        try:
            pid = lockdown.fork_into_own_pid_namespace() if self.strict else os.fork()
        except OSError as error:
            ended = {"event": "ended", "name": message["name"], "reason": "refused"}
            return _send(channel, ended | {"detail": f"no process could be forked: {error}"})
        if pid == 0:
            become_guest(slot, (reading, writing), group[0] if group else None)
        self.guests[pid] = _Guest(message["name"], pid, channel, uid, folder)
        return None

    def _free_uid(self) -> int | None:
        """Return a user for a guest: RLIMIT_NPROC counts by user, so no two share one."""
        if not (self.strict and self.settings["change_user"]):
            return None
        return random.choice([*{*_UIDS} - {guest.uid for guest in self.guests.values()}])

    def _reap(self) -> None:
        """Tell who asked for it how each guest ended."""
        while True:
            try:
                pid, status, spent = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            guest = self.guests.pop(pid, None)
            if guest is None:
                continue
            signaled = os.WIFSIGNALED(status)
            event = {
                "event": "ended",
                "name": guest.name,
                "reason": guest.reason or ("signal" if signaled else "exit"),
                "code": os.WTERMSIG(status) if signaled else os.WEXITSTATUS(status),
                "cpu": spent.ru_utime + spent.ru_stime,
                "peak": max(guest.peak, spent.ru_maxrss * 1024),
            }
            if not self.strict:
                self._kill_orphans()
                shutil.rmtree(guest.folder, ignore_errors=True)
            _send(guest.channel, event)

    def _kill_orphans(self) -> None:
        """Kill what guests left behind: a guest adopts its own orphans as long as it lives."""
        for pid in usage.children_of(os.getpid()):
            if pid not in self.guests:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _look(self) -> None:
        """Kill guests that hold too much memory or too many processes."""
        families = usage.families(list(self.guests))
        for guest in self.guests.values():
            family = families[guest.pid]
            if len(family) > self.settings["processes"]:
                self._end(guest, "processes")
            memory = usage.resident(family)
            if memory > self.settings["memory"]:  # pages that processes share count in each: ask
                memory = usage.proportional(family)
                if memory > self.settings["memory"]:
                    self._end(guest, "memory")
            guest.peak = max(guest.peak, memory)

    def _end(self, guest: _Guest, reason: str) -> None:
        guest.reason = guest.reason or reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(guest.pid, signal.SIGKILL)

    def _leave(self, channel: socket.socket) -> None:
        self.channels.remove(channel)
        for guest in self.guests.values():
            if guest.channel is channel:
                self._end(guest, "killed")
        channel.close()


def _send(channel: socket.socket, event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it has left; reading from it says so, too
        channel.send(json.dumps(event).encode())


if __name__ == "__main__":
    _Host(socket.socket(fileno=int(sys.argv.pop()))).serve()  # guests see no argument
