"""A process that has imported what notebooks import and forks a ready kernel on request.

    driver --socket--> zygote --fork--> keeper --fork--> kernel (pid 1 of its own namespaces)

The zygote runs no student's code and holds no secret. A keeper watches one kernel: its memory, its
number of processes, its time; when the kernel ends, nothing it started outlives it. Requests and
events are lines of JSON on the socket whose number is the first argument.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import time
import traceback
import zlib

_POLL_SECONDS = 0.05


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
torch.nn.functional jaxtyping course_lib.grading.kernels.isolate course_lib.checks.remote
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
            os.close(reader)
            _become_keeper(request, writer, [self.channel.fileno(), *self.keepers])
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


def _become_keeper(request: dict, writer: int, inherited: list[int]) -> None:
    """Runs in the forked keeper and never returns."""
    from course_lib.grading.kernels import isolate

    try:
        isolate.die_with_parent()
        for descriptor in inherited:
            os.close(descriptor)
        os.setsid()
        isolate.adopt_orphans()
        if request["slot"]["level"] == "strict":
            isolate.unshare(isolate.NEWPID)
        said, saying = os.pipe()
        kernel = os.fork()
        if kernel == 0:
            _become_kernel(request, saying)
        os.close(saying)
        words = _Keeper(kernel, request["slot"]).watch()
        if detail := os.read(said, 4096):
            words |= {"reason": "refused", "detail": detail.decode(errors="replace")}
    except BaseException as error:
        words = {"reason": "refused", "detail": f"{type(error).__name__}: {error}"}
    with contextlib.suppress(OSError):
        os.write(writer, json.dumps(words).encode())
    os._exit(0)


class _Keeper:
    """Watches one kernel and everything it starts."""

    def __init__(self, kernel: int, slot: dict) -> None:
        self.kernel, self.slot = kernel, slot
        self.started, self.peak, self.reason = time.monotonic(), 0, ""
        self.strict = slot["level"] == "strict"
        signal.signal(signal.SIGTERM, lambda *_: self._end("killed"))

    def watch(self) -> dict:
        """Wait for the kernel's end; say how it ended."""
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == self.kernel:
                break
            if pid == 0:
                self._look()
                time.sleep(_POLL_SECONDS)
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
        if time.monotonic() - self.started > self.slot["wall_seconds"]:
            return self._end("time")
        used = sum(_memory(pid, "statm") for pid in family)
        if used > self.slot["memory"]:  # pages shared with the zygote count in each: look closer
            used = sum(_memory(pid, "smaps_rollup") for pid in family)
            if used > self.slot["memory"]:
                return self._end("memory")
        self.peak = max(self.peak, used)
        return None

    def _family(self) -> list[int]:
        """The kernel and all processes that came from it."""
        parents = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    text = _read(f"/proc/{name}/stat")
                    parents[int(name)] = int(text.rpartition(b")")[2].split()[1])
        family = {self.kernel} & parents.keys() if self.strict else {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return sorted(family - {os.getpid()})


def _memory(pid: int, file: str) -> int:
    """Bytes: all resident pages (statm), or each shared page by its share (smaps_rollup)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        text = _read(f"/proc/{pid}/{file}")
        if file == "statm":
            return int(text.split()[1]) * resource.getpagesize()
        return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == b"Pss:") << 10
    return 0


def _read(path: str) -> bytes:
    """A small file of /proc; looked at twenty times a second, so without Python's layers."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def _become_kernel(request: dict, saying: int) -> None:
    """Runs in the forked kernel and never returns; what fails before it runs is said."""
    from course_lib.grading.kernels import isolate

    try:
        isolate.die_with_parent()
        _forget_descriptors(saying)
        os.chdir(request["folder"])
        isolate.shut_in(request["slot"])
        os.chdir(request["folder"])  # the empty one that was mounted there
        os.environ.update(request.get("env", {}))
        _run_kernel(request["connection"], request["seed"])
        os._exit(0)
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(_SAYING, traceback.format_exc()[-4000:].encode())
        os._exit(70)


_SAYING = 3


def _forget_descriptors(saying: int) -> None:
    """0, 1 and 2 lead nowhere: a kernel says what it has to say as messages. One more stays."""
    os.dup2(saying, _SAYING)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.closerange(_SAYING + 1, 4096)


def _seed_everything(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (what a notebook's own code draws from)
    torch.manual_seed(seed)


def _run_kernel(connection: dict, seed: int) -> None:
    from ipykernel.kernelapp import IPKernelApp

    _limit_output(connection.pop("output"))
    path = f"{connection.pop('folder')}/connection.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(connection, file)
    app = IPKernelApp.instance(capture_fd_output=False)
    arguments = ["-f", path, "--HistoryManager.enabled=False", "--IPKernelApp.log_level=ERROR"]
    app.initialize(arguments)
    app.shell.events.register("post_run_cell", _streams_restorer())
    _seed_everything(seed)
    os.close(_SAYING)
    app.start()


def _streams_restorer():
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}

    def restore(*_):
        """A kernel whose stdout is None answers nobody."""
        for name, stream in streams.items():
            if getattr(sys, name, None) is None:
                setattr(sys, name, stream)

    return restore


def _limit_output(most: int) -> None:
    """An honest cell that puts out too much is cut short here; the driver stops all others."""
    from ipykernel.displayhook import ZMQShellDisplayHook
    from ipykernel.iostream import OutStream

    show = ZMQShellDisplayHook.write_format_data

    def shortened(self, format_dict, md_dict=None):
        texts = {kind: data for kind, data in format_dict.items() if isinstance(data, str)}
        long = {kind: f"{data[:2000]} ..." for kind, data in texts.items() if len(data) > most}
        return show(self, format_dict | long, md_dict)

    ZMQShellDisplayHook.write_format_data = shortened

    write, written = OutStream.write, [0]

    def counted(self, string):
        written[0] += len(string)
        if written[0] > most:
            written[0] = 0
            raise OSError(f"more than {most:,} characters were printed")
        return write(self, string)

    OutStream.write = counted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
