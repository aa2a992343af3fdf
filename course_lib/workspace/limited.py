"""Handle hostile input in another process, which the kernel ends when it exceeds a limit.

`ask` sends JSON and bytes to a module that calls `serve`, and returns the JSON that it replies. The
process is reused for the next input, unless it had to be ended. None of its output is unpickled.
"""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.workspace.environment import public_environment

if sys.platform != "win32":
    import resource

MEMORY = 600_000_000  # additional bytes for one input, on Linux
CEILING = 120.0  # seconds for one input; the only limit on Windows
_OUT_OF_TIME = -getattr(signal, "SIGXCPU", 0)  # exit code after too much CPU time
_MOST_REPLY = 100_000_000  # bytes
_LIBRARY = Path(__file__).resolve().parents[2]
_processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}  # by module and own PID


class LimitError(Exception):
    """The input exceeds a limit, which the message names."""


class LostError(Exception):
    """The process sent no reply. The message says why, and the input may not be at fault."""


def ask(module: str, about: dict[str, Any], data: bytes, seconds: float) -> dict[str, Any]:
    """Return the reply to an input, with the `seconds` of CPU time that it took.

    Args:
        module: a module that runs `serve` when it is executed.
        about: the first argument of the served function.
        data: the second argument of that function.
        seconds: the CPU time that the function may take.

    Raises:
        LimitError: the input takes too much memory or CPU time.
        LostError: the process failed or was ended for another reason.
    """
    request = json.dumps([seconds, len(data), about]).encode(), b"\n", data
    code: int | None = None
    for _ in range(2):  # another program may end the process
        process: Any = start(module)
        late = threading.Timer(CEILING, process.kill)
        late.daemon = True
        late.start()
        line = b""
        with contextlib.suppress(OSError):  # it has ended
            process.stdin.writelines(request)
            process.stdin.flush()
            line = process.stdout.readline(_MOST_REPLY)
        is_late = late.finished.is_set()
        late.cancel()
        if line.endswith(b"\n"):
            reply = json.loads(line)
            if "limit" in reply:
                raise LimitError(reply["limit"])
            if "failed" in reply:
                raise LostError(f"{reply['failed']}: report it to the course")
            return reply
        code = stop(module)
        if len(line) == _MOST_REPLY:
            raise LimitError(f"more than {_MOST_REPLY / 1e6:.0f} MB for the results")
        if code == _OUT_OF_TIME:
            raise LimitError(f"more than {seconds:.0f} s of CPU time")
        if is_late:
            raise LostError(f"no end within {CEILING:.0f} s; it or this machine is too busy")
    raise LostError(f"its process ended with exit code {code}")


def start(module: str) -> subprocess.Popen[bytes]:
    """Start the process of a module, unless it is running. Its imports take a moment."""
    key = module, os.getpid()  # a fork must not share the process of its parent
    if key not in _processes:
        environ = {**public_environment(), "PYTHONPATH": str(_LIBRARY)}
        _processes[key] = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        atexit.register(stop, module)
    return _processes[key]


def stop(module: str) -> int | None:
    """End the process of a module, and return its exit code, or None if there is none."""
    process: Any = _processes.pop((module, os.getpid()), None)
    if process is None:
        return None
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # the rest of a request cannot be written
            pipe.close()
    return process.wait()


def serve(answer: Callable[[dict[str, Any], bytes], dict[str, Any]]) -> None:
    """Reply to one input after another until the asking process closes the pipe or ends."""
    asked, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        for descriptor in range(3):  # no other code uses the pipes, and warnings are lost
            os.dup2(nothing.fileno(), descriptor)
    largest = _size() + MEMORY // 3
    while line := asked.readline():
        seconds, size, about = json.loads(line)
        started = time.process_time()
        try:
            _limit(started + seconds)
            reply = answer(about, asked.read(size))
        except MemoryError:
            reply = {"limit": f"more than {MEMORY / 1e6:.0f} MB of memory"}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"[:300]}
        reply |= {"seconds": time.process_time() - started}
        told.write(json.dumps(reply).encode() + b"\n")
        told.flush()
        if _size() > largest:  # a new process has all of its memory for the next input
            return


def _limit(cpu: float) -> None:
    """Let the kernel limit the CPU time and the memory of this process."""
    if sys.platform == "win32":
        return
    wanted = {resource.RLIMIT_CPU: int(cpu) + 1}
    wanted |= {resource.RLIMIT_AS: size + MEMORY} if (size := _size()) else {}
    for which, most in wanted.items():
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, hard))


def _size() -> int:
    """Return the size of this process's address space in bytes, or 0 where it is not limited."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
