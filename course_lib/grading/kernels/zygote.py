"""A process that has imported what notebooks import and forks a ready kernel on request.

    driver --socket--> zygote --fork--> keeper --fork--> kernel (pid 1 of its own namespaces)

The zygote runs no student's code and holds no secret. Requests and events are lines of JSON on the
socket whose number is the first argument.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import zlib


def main(descriptor: int, library: str) -> None:
    """Import, say so, then serve requests until the driver closes the socket."""
    channel = socket.socket(fileno=descriptor)
    _import_everything()
    with open("/proc/self/status", encoding="ascii") as file:
        threads = next(int(line.split()[1]) for line in file if line.startswith("Threads:"))
    gc.collect()
    gc.freeze()
    _send(channel, {"event": "ready", "threads": threads, "library": library})
    _Zygote(channel).serve()


# What lessons import, and what kernels import for their first cells and their first traceback.
_WARM = """
debugpy.server ipykernel.ipkernel ipykernel.kernelapp ipykernel.zmqshell ipykernel.heartbeat
ipykernel.iostream ipykernel.parentpoller ipykernel.subshell_manager zmq.eventloop.zmqstream
zmq.utils.garbage jupyter_client.session tornado.platform.asyncio comm IPython.core.completerlib
IPython.core.pylabtools IPython.extensions.storemagic IPython.lib.display stack_data.formatting
pygments.formatters.terminal256 pygments.styles.default pygments.lexers.python pure_eval.utils
matplotlib.pyplot matplotlib.backends.backend_agg matplotlib_inline.backend_inline
torch.nn.functional jaxtyping course_lib.grading.kernels.keeper course_lib.checks.remote
course_lib.checks.session course_lib.plotting ipykernel.debugger debugpy.server.api faulthandler
IPython.core.debugger IPython.core.oinspect IPython.core.logger tornado.queues
"""


def _import_everything() -> None:
    """All of it before the first fork."""
    import course_lib

    for name in _WARM.split():
        importlib.import_module(name)
    for name in vars(course_lib)["_exercise_modules"]().values():
        importlib.import_module(name)
    import ipykernel.compiler
    import matplotlib
    import numpy as np
    import torch

    # Names a cell's file by a hash of its text, in Python: 15 ms for a request of 50 kB.
    ipykernel.compiler.murmur2_x86 = lambda text, seed: zlib.crc32(text.encode(), seed)
    matplotlib.use("module://matplotlib_inline.backend_inline")
    torch.set_num_threads(1)
    np.linalg.norm(np.ones(2))
    # The first of its kind is slow for all that torch imports then; no backward: it starts threads.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])


class _Zygote:
    """Serves the driver; knows its keepers and their pipes."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel, self.pending = channel, b""
        self.keepers: dict[int, tuple[str, int]] = {}  # pipe: kernel's name, keeper's pid

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.channel, *self.keepers], [], [])
            for source in ready:
                if source is self.channel:
                    if not self._read_requests():
                        return
                elif source in self.keepers:
                    self._finish(source)

    def _read_requests(self) -> bool:
        data = self.channel.recv(1 << 20)
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["request"] == "fork":
                self._fork(request)
            else:
                self._kill(request["name"])
        return bool(data)

    def _fork(self, request: dict) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            from course_lib.grading.kernels.keeper import become_keeper

            os.close(reader)
            become_keeper(request, writer, [self.channel.fileno(), *self.keepers])
        os.close(writer)
        self.keepers[reader] = request["name"], pid

    def _finish(self, pipe: int) -> None:
        """A keeper wrote its last words, or died without."""
        name, pid = self.keepers.pop(pipe)
        data = b"".join(iter(lambda: os.read(pipe, 65536), b""))
        os.close(pipe)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        try:
            event = json.loads(data)
        except ValueError:
            event = {"reason": "killed"}
        _send(self.channel, {"event": "ended", "name": name, **event})

    def _kill(self, name: str) -> None:
        for kernel, pid in self.keepers.values():
            if kernel == name:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)


def _send(channel: socket.socket, event: dict) -> None:
    channel.sendall(json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
