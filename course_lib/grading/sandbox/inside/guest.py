"""A guest: runs one submission's cells and answers probe requests, one frame at a time."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn

from course_lib.grading.sandbox.inside import WRITABLE
from course_lib.grading.sandbox.inside import shell as shells
from course_lib.grading.sandbox.inside.frames import Inlet

_INLET, _OUTLET = 3, 4


def become_guest(slot: dict[str, Any], pipes: tuple[int, int], group: int | None) -> NoReturn:
    """Confine this forked process and serve a submission; never return.

    Args:
        slot: what `lockdown.confine` takes, and the guest's working `folder`.
        pipes: to read frames from and to write them to.
        group: file of a cgroup to enter, if there is one.
    """
    from course_lib.grading.sandbox.inside import lockdown

    try:
        started = time.monotonic()
        lockdown.die_with_parent()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()
        if group is not None:
            with contextlib.suppress(OSError):  # then the other limits hold alone
                os.write(group, b"0")
        _keep_descriptors(*pipes)
        shells.outlet.open(_OUTLET)
        lockdown.confine(slot)
        if slot["level"] == "off":
            lockdown.adopt_orphans()
        if slot["level"] == "off":
            os.environ.update(dict.fromkeys(WRITABLE, slot["folder"]))
        os.chdir(slot["folder"])
        tempfile.tempdir = None  # looked up again, in this environment
        _seed_everything()
        shells.outlet.send({"kind": "ready", "seconds": time.monotonic() - started})
        serve(Inlet(_INLET))
    except BaseException:
        with contextlib.suppress(Exception):
            shells.outlet.send({"kind": "refused", "text": traceback.format_exc()[-4000:]})
    os._exit(0)


def _keep_descriptors(reading: int, writing: int) -> None:
    """Keep the two pipes as 3 and 4 and close all else; 0, 1 and 2 lead nowhere."""
    import fcntl

    high = [fcntl.fcntl(each, fcntl.F_DUPFD, _OUTLET + 1) for each in (reading, writing)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    for descriptor, low in zip(high, (_INLET, _OUTLET), strict=True):
        os.dup2(descriptor, low, inheritable=False)
    os.closerange(_OUTLET + 1, 4096)


def _seed_everything() -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (what a notebook's own code draws from)
    torch.manual_seed(0)


def main() -> None:
    """Serve a submission as an ordinary process, where a warm process cannot fork safely."""
    from course_lib.grading.sandbox.inside.warm import import_everything

    pipes = [os.dup(descriptor) for descriptor in (0, 1)]
    if sys.platform == "win32":
        import msvcrt

        for descriptor in pipes:
            msvcrt.setmode(descriptor, os.O_BINARY)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    import_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shells.outlet.open(pipes[1])
    _seed_everything()
    shells.outlet.send({"kind": "ready", "seconds": 0.0})
    serve(Inlet(pipes[0]))


def serve(inlet: Inlet) -> None:
    """Answer frames until the pipe is closed.

    All cells share one event loop, as in a kernel: a task that one cell starts goes on in the next.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve(inlet))
    serving.add_done_callback(lambda _: loop.stop())
    while not serving.done():  # a cell may stop the loop that it runs in, or a task of it may exit
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
    serving.result()


async def _serve(inlet: Inlet) -> None:
    from course_lib.checks.observe import remote
    from course_lib.checks.observe.cells import watch_cells

    shell = shells.ZMQInteractiveShell.instance()
    watch_cells(shell)
    _import_from_the_working_folder()
    printed = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
    for descriptor, file in enumerate(printed, 1):
        os.dup2(file.fileno(), descriptor)
    streams = shells.Stream("stdout", 1), shells.Stream("stderr", 2)
    sys.stdin, sys.stdout, sys.stderr = shells.NoInput(), *streams
    pipes = _identities(inlet)
    while True:
        with contextlib.suppress(asyncio.CancelledError):  # a cell may cancel all tasks
            await asyncio.sleep(0)
        frame = inlet.next()
        if frame is None:
            return
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
        _end_timers()
        _restore_streams(*streams)
        for name, file in zip(("stdout", "stderr"), printed, strict=True):
            _send_printed(name, file)
        if _identities(inlet) != pipes:
            raise OSError("this cell replaced the pipes of its process")
        done |= {"number": frame["number"], "crowded": _is_crowded()}
        shells.outlet.send({"kind": "done", **done})


def _import_from_the_working_folder() -> None:
    """Put "" where IPython puts it: after the standard library and before the packages.

    This comes after all imports of ours, so no file there can shadow one of our modules.
    """
    folders = (os.path.basename(path) for path in sys.path)
    before = (n for n, name in enumerate(folders) if name in ("site-packages", "dist-packages"))
    sys.path.insert(next(before, len(sys.path)), "")


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
            options |= {"transformed_cell": transformed, "preprocessing_exc_tuple": failed}
            if shell.should_run_async(code, **_without_history(options)):
                task = asyncio.ensure_future(shell.run_cell_async(code, **options))
                interruptible(task)
                result = await task
                shell.events.trigger("post_execute")
                shell.events.trigger("post_run_cell", result)
            else:
                options = {k: options[k] for k in ("store_history", "cell_id")}
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


def _without_history(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k not in ("store_history", "cell_id")}


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[asyncio.Future], object]]:
    """Let SIGINT raise KeyboardInterrupt, or cancel the task that is handed over."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield lambda task: signal.signal(signal.SIGINT, lambda *_: task.cancel())
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _identities(inlet: Inlet) -> list[int]:
    return [os.fstat(each).st_ino for each in (inlet.descriptor, shells.outlet.descriptor)]


def _end_timers() -> None:
    """No cell is interrupted or ended by what an earlier one has set up."""
    faulthandler.cancel_dump_traceback_later()
    if hasattr(signal, "setitimer"):
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)


def _is_crowded() -> bool:
    """Return whether threads, tasks or processes of earlier cells still run."""
    if threading.active_count() > 1 or len(asyncio.all_tasks()) > 1:
        return True
    with contextlib.suppress(AttributeError, ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    return False


def _restore_streams(stdout: shells.Stream, stderr: shells.Stream) -> None:
    """Give a cell that set them to None, or closed them, its streams back."""
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        if getattr(getattr(sys, name, None), "closed", True):
            setattr(sys, name, stream)


def _send_printed(name: str, file: IO[bytes]) -> None:
    """Send what was written to a descriptor past Python, by a subprocess for example."""
    size = os.fstat(file.fileno()).st_size
    if size:
        text = os.pread(file.fileno(), shells.most_output, 0).decode("utf-8", "replace")
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        shells.outlet.send({"kind": name, "text": text, "size": size})


if __name__ == "__main__":
    main()
