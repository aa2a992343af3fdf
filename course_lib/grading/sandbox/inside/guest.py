"""Run one submission's cells and answer probe requests, one frame at a time."""

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from course_lib.checks.observe import remote
from course_lib.checks.observe.cells import watch_cells
from course_lib.checks.observe.global_state import seed_all
from course_lib.grading.sandbox.inside import WRITABLE, shell
from course_lib.grading.sandbox.inside.frames import read_frames

_INLET, _OUTLET = 3, 4


def become_guest(settings: dict[str, Any], reading: int, writing: int, *entries: int) -> NoReturn:
    """Confine this forked process with the `settings` for `confine`, and serve a submission."""
    from course_lib.grading.sandbox.inside import lockdown

    try:
        lockdown.die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for entry in entries:  # of its cgroups
            os.write(entry, b"0")
        _take_pipes(reading, writing)
        os.closerange(_OUTLET + 1, 4096)
        shell.outlet.open(_OUTLET)
        lockdown.confine(settings)
        if settings["level"] == "strict":
            os.chdir("/scratch")
        else:
            os.mkdir(folder := f"{settings['place']}/{os.getpid()}")
            os.chdir(folder)
            os.environ.update(dict.fromkeys(WRITABLE, folder))
        tempfile.tempdir = None  # looked up again, in this environment
        serve()
    except BaseException:
        with contextlib.suppress(Exception):
            shell.outlet.send("refused", text=traceback.format_exc()[-4000:])
    os._exit(0)


def _take_pipes(reading: int, writing: int) -> None:
    """Move the two pipes to descriptors 3 and 4, and point 0, 1 and 2 to /dev/null."""
    os.dup2(reading, _INLET, inheritable=False)
    os.dup2(writing, _OUTLET, inheritable=False)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def serve() -> None:
    """Report that this guest is ready, and answer frames until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seed_all(0)
    shell.outlet.send("ready")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    serving = loop.create_task(_serve())
    serving.add_done_callback(lambda _: loop.stop())
    while not serving.done():  # a cell may stop the loop, or its task may exit
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
    serving.result()


async def _serve() -> None:
    ipython = shell.ZMQInteractiveShell.instance()
    watch_cells(ipython)
    # Put "" where IPython does, after the standard library and before the packages. All modules of
    # the course are imported by now, so that no file there can shadow them.
    folders = enumerate(map(os.path.basename, sys.path))
    packages = (n for n, name in folders if name in ("site-packages", "dist-packages"))
    sys.path.insert(next(packages, len(sys.path)), "")
    sys.stdin = shell.NoInput()
    streams = [shell.Stream("stdout", 1), shell.Stream("stderr", 2)]
    files = [tempfile.TemporaryFile(buffering=0) for _ in streams]  # noqa: SIM115
    for stream, file in zip(streams, files, strict=True):
        os.dup2(file.fileno(), stream.fileno())
        setattr(sys, stream.name, stream)
    pipes = [(each, os.fstat(each).st_ino) for each in (_INLET, _OUTLET)]
    owner = os.getpid()  # a student's fork must not read
    arrived = read_frames(lambda: os.read(_INLET, 1 << 20) if os.getpid() == owner else b"")
    for frame, _ in filter(None, arrived):
        with contextlib.suppress(asyncio.CancelledError):  # a cell may cancel all tasks
            await asyncio.sleep(0)
        for stream in streams:
            stream.written = 0
        if "observe" in frame:
            try:
                reply = remote.reply_to(frame["observe"], ipython.user_ns)
            except BaseException as error:
                reply = f"{type(error).__name__}: {error}"[:1000]
            shell.outlet.send("reply", number=frame["number"], text=reply)
            continue
        done = await _run_cell(ipython, frame)
        faulthandler.cancel_dump_traceback_later()  # timers must not hit later cells
        for timer in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
            if hasattr(signal, timer):
                signal.setitimer(getattr(signal, timer), 0)
        for stream, file in zip(streams, files, strict=True):
            if getattr(getattr(sys, stream.name, None), "closed", True):  # set to None, or closed
                setattr(sys, stream.name, stream)
            # Output that a subprocess, for example, wrote directly to the descriptor.
            if size := os.fstat(file.fileno()).st_size:
                file.seek(0)
                text = file.read(shell.MOST_OUTPUT).decode("utf-8", "replace")
                file.seek(0)
                file.truncate()
                shell.outlet.send(stream.name, text=text, size=size)
        if any(os.fstat(each).st_ino != identity for each, identity in pipes):
            raise OSError("this cell replaced the pipes of its process")
        shell.outlet.send("done", number=frame["number"], crowded=_is_crowded(), **done)


async def _run_cell(ipython: Any, frame: dict[str, Any]) -> dict[str, Any]:
    """Run a cell as a kernel does. SIGINT raises KeyboardInterrupt or cancels its task."""
    code = frame["run"]
    options = {"store_history": frame["history"], "cell_id": frame["cell_id"]}
    prepared = {"transformed_cell": code, "preprocessing_exc_tuple": None}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            prepared["transformed_cell"] = ipython.transform_cell(code)
        except Exception:
            prepared["preprocessing_exc_tuple"] = sys.exc_info()
        if ipython.should_run_async(code, **prepared):
            task = asyncio.ensure_future(ipython.run_cell_async(code, **options, **prepared))
            signal.signal(signal.SIGINT, lambda *_: task.cancel())
            result = await task
            ipython.events.trigger("post_execute")
            ipython.events.trigger("post_run_cell", result)
        else:
            result = ipython.run_cell(code, **options)
        error = result.error_before_exec or result.error_in_exec
    except (KeyboardInterrupt, asyncio.CancelledError) as interrupt:
        ipython.showtraceback((type(interrupt), interrupt, interrupt.__traceback__))
        error = interrupt
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    left = ipython.exit_now or isinstance(error, SystemExit | KeyboardInterrupt)
    ipython.exit_now = False
    ipython.payload_manager.clear_payload()
    return {"ok": error is None, "count": ipython.execution_count - 1, "left": left}


def _is_crowded() -> bool:
    """Return whether threads, tasks or processes of earlier cells still run."""
    with contextlib.suppress(AttributeError, ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # fails without a child
        # This process adopts all orphans. Other children may be awaited by a later cell.
        with contextlib.suppress(OSError):
            children = Path("/proc/thread-self/children").read_text().split()
            for pid in children[:-8]:
                os.waitpid(int(pid), os.WNOHANG)
        return True
    return threading.active_count() > 1 or len(asyncio.all_tasks()) > 1


if __name__ == "__main__":  # for SpawnedGuests
    _take_pipes(0, 1)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (_INLET, _OUTLET):
            msvcrt.setmode(descriptor, os.O_BINARY)
    shell.import_everything()
    shell.outlet.open(_OUTLET)
    serve()
