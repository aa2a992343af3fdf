"""A guest: runs one submission's cells and answers probe requests, one frame at a time."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import glob
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn

from course_lib.checks.observe import remote
from course_lib.checks.observe.cells import watch_cells
from course_lib.grading.sandbox.inside import WRITABLE
from course_lib.grading.sandbox.inside import shell as shells
from course_lib.grading.sandbox.inside.frames import read_frames

_INLET, _OUTLET = 3, 4
_MOST_ZOMBIES = 8


def become_guest(
    slot: dict[str, Any], reading: int, writing: int, group: int | None = None
) -> NoReturn:
    """Confine this forked process and serve a submission; never return.

    `slot` is what `lockdown.confine` takes, and the guest's working `folder`. The descriptors are
    those of its two pipes and, if there is one, of the cgroup to enter.
    """
    from course_lib.grading.sandbox.inside import lockdown

    try:
        lockdown.die_with_parent()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if group is not None:
            with contextlib.suppress(OSError):  # then the other limits hold alone
                os.write(group, b"0")
        _keep_descriptors(reading, writing)
        shells.outlet.open(_OUTLET)
        lockdown.confine(slot)
        if slot["level"] == "off":
            os.environ.update(dict.fromkeys(WRITABLE, slot["folder"]))
        os.chdir(slot["folder"])
        tempfile.tempdir = None  # looked up again, in this environment
        serve(_INLET)
    except BaseException:
        with contextlib.suppress(Exception):
            shells.outlet.send({"kind": "refused", "text": traceback.format_exc()[-4000:]})
    os._exit(0)


def _keep_descriptors(reading: int, writing: int) -> None:
    """Keep the two pipes as 3 and 4 and close all else; 0, 1 and 2 lead nowhere."""
    import fcntl

    high = [fcntl.fcntl(each, fcntl.F_DUPFD, _OUTLET + 1) for each in (reading, writing)]
    _lead_nowhere()
    for descriptor, low in zip(high, (_INLET, _OUTLET), strict=True):
        os.dup2(descriptor, low, inheritable=False)
    os.closerange(_OUTLET + 1, 4096)


def _lead_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def main() -> None:
    """Serve a submission as an ordinary process, where a warm process cannot fork safely."""
    pipes = [os.dup(descriptor) for descriptor in (0, 1)]
    if sys.platform == "win32":
        import msvcrt

        for descriptor in pipes:
            msvcrt.setmode(descriptor, os.O_BINARY)
    _lead_nowhere()
    shells.import_everything()
    shells.outlet.open(pipes[1])
    serve(pipes[0])


def serve(inlet: int) -> None:
    """Say that this guest is ready, and answer frames until the pipe is closed.

    All cells share one event loop, as in a kernel: a task that one cell starts goes on in the next.
    """
    import numpy as np
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (what a notebook's own code draws from)
    torch.manual_seed(0)
    shells.outlet.send({"kind": "ready"})
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve(inlet))
    serving.add_done_callback(lambda _: loop.stop())
    while not serving.done():  # a cell may stop the loop that it runs in, or a task of it may exit
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
    serving.result()


async def _serve(inlet: int) -> None:
    shell = shells.ZMQInteractiveShell.instance()
    watch_cells(shell)
    # "" comes where IPython puts it: after the standard library and before the packages. That is
    # done after all imports of ours, so no file there can shadow one of our modules.
    folders = enumerate(map(os.path.basename, sys.path))
    packages = (n for n, name in folders if name in ("site-packages", "dist-packages"))
    sys.path.insert(next(packages, len(sys.path)), "")
    printed = {name: tempfile.TemporaryFile() for name in ("stdout", "stderr")}  # noqa: SIM115
    for descriptor, file in enumerate(printed.values(), 1):
        os.dup2(file.fileno(), descriptor)
    streams = [shells.Stream(name, descriptor) for descriptor, name in enumerate(printed, 1)]
    sys.stdin, sys.stdout, sys.stderr = shells.NoInput(), *streams
    pipes = [(each, os.fstat(each).st_ino) for each in (inlet, shells.outlet.descriptor)]
    for frame in read_frames(inlet):
        with contextlib.suppress(asyncio.CancelledError):  # a cell may cancel all tasks
            await asyncio.sleep(0)
        for stream in streams:
            stream.written = stream.writes = 0
        if "observe" in frame:
            try:
                reply = remote.reply_to(frame["observe"], shell.user_ns)
            except BaseException as error:
                reply = f"{type(error).__name__}: {error}"[:1000]
            shells.outlet.send({"kind": "reply", "number": frame["number"], "text": reply})
            continue
        done = await _run_cell(shell, frame)
        faulthandler.cancel_dump_traceback_later()  # no cell pays for an earlier one's timers
        for timer in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
            if hasattr(signal, timer):
                signal.setitimer(getattr(signal, timer), 0)
        for stream in streams:  # for a cell that set one to None, or closed it
            if getattr(getattr(sys, stream.name, None), "closed", True):
                setattr(sys, stream.name, stream)
        for name, file in printed.items():
            _send_printed(name, file)
        if any(os.fstat(each).st_ino != identity for each, identity in pipes):
            raise OSError("this cell replaced the pipes of its process")
        done |= {"number": frame["number"], "crowded": _is_crowded()}
        shells.outlet.send({"kind": "done", **done})


async def _run_cell(shell: Any, frame: dict[str, Any]) -> dict[str, Any]:
    """Run a cell as a kernel does and return how it ended."""
    code = frame["run"]
    options = {"store_history": frame["history"], "cell_id": frame["cell_id"]}
    result = error = None
    with _interruptible() as interruptible:
        try:
            transformed, failed = code, None
            try:
                transformed = shell.transform_cell(code)
            except Exception:
                failed = sys.exc_info()
            prepared = {"transformed_cell": transformed, "preprocessing_exc_tuple": failed}
            if shell.should_run_async(code, **prepared):
                task = asyncio.ensure_future(shell.run_cell_async(code, **options, **prepared))
                interruptible(task)
                result = await task
                shell.events.trigger("post_execute")
                shell.events.trigger("post_run_cell", result)
            else:
                result = shell.run_cell(code, **options)
        except (KeyboardInterrupt, asyncio.CancelledError) as interrupt:
            shell.showtraceback((type(interrupt), interrupt, interrupt.__traceback__))
            error = interrupt
    if result is not None:
        error = result.error_before_exec or result.error_in_exec
    ended = isinstance(error, SystemExit | KeyboardInterrupt)
    left, shell.exit_now = shell.exit_now or ended, False
    shell.payload_manager.clear_payload()
    return {"ok": error is None, "count": shell.execution_count - 1, "left": left}


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[asyncio.Future], object]]:
    """Let SIGINT raise KeyboardInterrupt, or cancel the task that is handed over."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield lambda task: signal.signal(signal.SIGINT, lambda *_: task.cancel())
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is_crowded() -> bool:
    """Return whether threads, tasks or processes of earlier cells still run."""
    with contextlib.suppress(AttributeError, ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            _reap_many()
        return True
    return threading.active_count() > 1 or len(asyncio.all_tasks()) > 1


def _reap_many() -> None:
    """Reap zombies if there are many, because this process is the parent of all orphans.

    A few may be children of its own, which a later cell waits for.
    """
    zombies = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state == b"Z" and int(parent) == os.getpid():
                zombies.append(int(path.split("/")[2]))
    for pid in zombies if len(zombies) > _MOST_ZOMBIES else ():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _send_printed(name: str, file: IO[bytes]) -> None:
    """Send what was written to a descriptor past Python, by a subprocess for example."""
    size = os.fstat(file.fileno()).st_size
    if size:
        text = os.pread(file.fileno(), shells.MOST_OUTPUT, 0).decode("utf-8", "replace")
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        shells.outlet.send({"kind": name, "text": text, "size": size})


if __name__ == "__main__":
    main()
