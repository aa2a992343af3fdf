"""A process that has imported what notebooks import and forks a ready kernel on request.

    driver --socket--> zygote --fork--> watchdog --fork--> kernel (pid 1 of its own namespaces)

The zygote runs no student's code and holds no secret. Requests and events are lines of JSON on the
socket whose number is the first argument.
"""

import contextlib
import gc
import importlib
import json
import linecache
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass

from course_lib.grading.kernels.guest import lockdown
from course_lib.grading.kernels.guest.ipykernel_adapter import (
    flush_what_there_is,
    import_without_debugger,
    name_cells_quickly,
    show_errors_quickly,
)


def main(library: str, descriptor: int, door: int | None = None) -> None:
    """Import, say so, then serve requests until the driver closes the socket.

    Args:
        library: where course_lib lies here.
        descriptor: of the socket to the driver.
        door: of a socket at which more of the driver's processes may knock.
    """
    channel = socket.socket(fileno=descriptor)
    _import_everything()
    _settle()
    with open("/proc/self/status", encoding="ascii") as file:
        threads = next(int(line.split()[1]) for line in file if line.startswith("Threads:"))
    greeting = {"event": "ready", "threads": threads, "library": library}
    _Zygote(channel, socket.socket(fileno=door) if door else None, greeting).serve()


# What lessons import, and what kernels import for their first cells and their first traceback.
_WARM = """
ipykernel.ipkernel ipykernel.kernelapp ipykernel.zmqshell ipykernel.heartbeat
ipykernel.iostream ipykernel.parentpoller ipykernel.subshell_manager zmq.eventloop.zmqstream
zmq.utils.garbage jupyter_client.session tornado.platform.asyncio comm IPython.core.completerlib
IPython.core.pylabtools IPython.extensions.storemagic IPython.lib.display stack_data.formatting
pygments.formatters.terminal256 pygments.styles.default pygments.lexers.python pure_eval.utils
matplotlib.pyplot matplotlib.backends.backend_agg matplotlib_inline.backend_inline
torch.nn.functional jaxtyping faulthandler
IPython.core.debugger IPython.core.oinspect IPython.core.logger tornado.queues
"""


def _import_everything() -> None:
    """All of it before the first fork."""
    import_without_debugger()
    for name in _WARM.split():
        importlib.import_module(name)
    import matplotlib
    import numpy as np
    import torch

    import course_lib.attention
    import course_lib.checks.observe.remote
    import course_lib.grading.kernels.guest.watchdog
    import course_lib.notebook
    import course_lib.plotting  # noqa: F401

    flush_what_there_is()
    name_cells_quickly()
    show_errors_quickly()
    matplotlib.use("module://matplotlib_inline.backend_inline")
    torch.set_num_threads(1)
    np.linalg.norm(np.ones(2))
    _show_an_error()
    _observe_an_answer()


def _show_an_error() -> None:
    """Show one of a cell: the first traceback asks each module for its file, compiles patterns."""
    from IPython.core.ultratb import AutoFormattedTB

    name, cell = "<the zygote's cell>", "1 + None\n"
    linecache.cache[name] = len(cell), None, [cell], name
    try:
        exec(compile(cell, name, "exec"), {})
    except TypeError as error:
        AutoFormattedTB("Context").structured_traceback(type(error), error, error.__traceback__)
    del linecache.cache[name]


def _observe_an_answer() -> None:
    """Observe one of ours: what a first call looks up, makes and keeps is here for every kernel."""
    import numpy as np
    import torch

    from course_lib.checks.observe.codec import decode, encode
    from course_lib.checks.observe.probe import Probe, array, tensor
    from course_lib.checks.observe.remote import REPLY_TYPES, REQUEST_TYPES, Reply, Request, answer

    def softmax(scores: object) -> object:
        return scores.softmax(-1) if isinstance(scores, torch.Tensor) else scores

    ones = np.ones((2, 3))
    probes = [
        Probe("tensor", "", args={"scores": tensor(ones, requires_grad=True)}, grad_outputs=ones),
        Probe("strided", "", args={"scores": tensor(ones, strided=True)}, loops="loops"),
        Probe("array", "", args={"scores": array(ones)}),
    ]
    request = encode(Request("softmax", probes))
    reply = answer(decode(request, Request, REQUEST_TYPES), {"softmax": softmax})
    decode(encode(reply), Reply, REPLY_TYPES)


def _import_for_good(names: list[str]) -> None:
    """What only some lessons need."""
    if missing := [name for name in names if name not in sys.modules]:
        for name in missing:
            importlib.import_module(name)
        _settle()


def _settle() -> None:
    """What is here now is here for good: nothing looks at it for garbage, a fork hardly copies."""
    gc.collect()
    gc.freeze()
    lockdown.lay_in_large_pages()


@dataclass(frozen=True)
class _Watched:
    """A kernel: its name, its watchdog's pid, and the socket of the process that asked for it."""

    name: str
    pid: int
    channel: socket.socket


class _Zygote:
    """Serves the processes connected to it; knows its watchdogs by their pipes."""

    def __init__(
        self, owner: socket.socket, door: socket.socket | None, greeting: dict[str, object]
    ) -> None:
        self.owner, self.door, self.greeting = owner, door, greeting
        self.pending: dict[socket.socket, bytes] = {}
        self.doors: dict[socket.socket, list[int]] = {}  # to cgroups, in the order of the requests
        self.watchdogs: dict[int, _Watched] = {}
        self._welcome(owner)

    def serve(self) -> None:
        """Until the owner leaves."""
        while self.owner in self.pending:
            doors = [] if self.door is None else [self.door]
            ready, _, _ = select.select([*doors, *self.pending, *self.watchdogs], [], [])
            for source in ready:
                if self.door is not None and source is self.door:
                    self._welcome(self.door.accept()[0])
                elif isinstance(source, int) and source in self.watchdogs:
                    self._finish(source)
                elif source in self.pending:
                    self._read_requests(source)

    def _welcome(self, channel: socket.socket) -> None:
        self.pending[channel] = b""
        _send(channel, self.greeting)

    def _read_requests(self, channel: socket.socket) -> None:
        try:
            data, doors, _, _ = socket.recv_fds(channel, 1 << 20, 64)
        except OSError:
            data, doors = b"", []
        self.doors.setdefault(channel, []).extend(doors)
        *lines, self.pending[channel] = (self.pending[channel] + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["request"] == "fork":
                request["group"] = self.doors[channel].pop(0) if request["group"] else None
                self._fork(request, channel)
                if request["group"] is not None:
                    os.close(request["group"])
            else:
                self._kill(channel, request["name"])
        if not data:
            del self.pending[channel], self.doors[channel]
            self._kill(channel)
            channel.close()

    def _fork(self, request: dict, channel: socket.socket) -> None:
        _import_for_good(request["imports"])
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, or no memory: this kernel's loss only
            os.close(reader)
            os.close(writer)
            detail = f"no process could be forked: {error.strerror}"
            ending = {"reason": "refused", "detail": detail}
            return _send(channel, {"event": "ended", "name": request["name"], **ending})
        if pid == 0:
            from course_lib.grading.kernels.guest.watchdog import become_watchdog

            sockets = [*self.pending, *([self.door] if self.door else [])]
            inherited = [reader, *(each.fileno() for each in sockets), *self.watchdogs]
            become_watchdog(request, writer, inherited)
        os.close(writer)
        self.watchdogs[reader] = _Watched(request["name"], pid, channel)
        return None

    def _finish(self, pipe: int) -> None:
        """A watchdog wrote its last words, or died without."""
        watched = self.watchdogs.pop(pipe)
        data = b"".join(iter(lambda: os.read(pipe, 65536), b""))
        os.close(pipe)
        with contextlib.suppress(ProcessLookupError):
            os.kill(watched.pid, signal.SIGKILL)
        os.waitpid(watched.pid, 0)
        try:
            event = json.loads(data)
        except ValueError:
            event = {"reason": "killed"}
        if watched.channel in self.pending:
            _send(watched.channel, {"event": "ended", "name": watched.name, **event})

    def _kill(self, channel: socket.socket, name: str | None = None) -> None:
        """End the kernel of a name, or all, that were asked for on a socket."""
        for watched in self.watchdogs.values():
            if watched.channel is channel and name in (None, watched.name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(watched.pid, signal.SIGTERM)


def _send(channel: socket.socket, event: dict) -> None:
    with contextlib.suppress(OSError):  # it has left; reading from it says so, too
        channel.sendall(json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
