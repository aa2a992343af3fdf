"""A worker on this machine: what the driver sees of it, and what runs in its process."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from course_lib.grading.jobs import Job, Result
from course_lib.grading.judging.runner import Runner
from course_lib.grading.sandbox.confinement import Limits
from course_lib.workspace.environment import public_environment, without_secrets
from course_lib.workspace.errors import CourseError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


@dataclass
class Task:
    """A job, and how many workers died with it in hand."""

    job: Job
    deaths: int = 0


class Worker:
    """A process that grades one submission after the other, as the driver sees it."""

    def __init__(self, sandbox: str | None, limits: Limits, channel: socket.socket | None) -> None:
        context = processes()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, sandbox, limits, channel))
        try:
            with defer_sigint():
                self.process.start()
        finally:
            theirs.close()
            if channel is not None:
                channel.close()
        self.tasks: deque[Task] = deque()  # the first is in hand, the others wait there
        self.is_up = False

    def take(self, task: Task) -> None:
        self.tasks.append(task)
        with contextlib.suppress(OSError):  # it is gone, which the next look at it tells
            self.pipe.send((run_here, task.job))

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(None)

    def join(self) -> None:
        """Wait for its end; it may still have to write what nobody wants any more."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                self.pipe.recv_bytes()
        self.process.join()
        self.pipe.close()


def processes() -> ForkServerContext | SpawnContext:
    """How workers are made: forked from a server that has imported the judge, or started anew."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["course_lib.grading.executors.worker", "course_lib.checks.judge.grade"]
    )
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # which listens to Ctrl-C again when it has started
    with without_secrets(), block_sigint():
        forkserver.ensure_running()
    return context


@contextlib.contextmanager
def block_sigint() -> Iterator[None]:
    """What starts within never hears the Ctrl-C of its terminal, which is for the driver."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def defer_sigint() -> Iterator[None]:
    """Ctrl-C is heard afterwards: nobody could end a worker that has half begun."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


_runner: list[Runner] = []


def _serve(pipe: Connection, *arguments: Any) -> None:
    """In a new worker: grade what comes through the pipe, up to its None."""
    _begin(*arguments)
    tasks: queue.SimpleQueue = queue.SimpleQueue()
    ended = threading.Event()
    threading.Thread(target=_listen, args=(pipe, tasks, ended), daemon=True).start()
    pipe.send(None)
    while (task := tasks.get()) is not None and not ended.is_set():
        call, job = task
        try:
            answer = call(job)
        except CourseError as error:
            answer = error
        except Exception:
            answer = RuntimeError(traceback.format_exc())
        pipe.send(answer)


def _listen(pipe: Connection, tasks: queue.SimpleQueue, ended: threading.Event) -> None:
    """Read on while a submission is graded, so that the driver never waits; die with it.

    The fork server's end is no help there: each worker holds a pipe to it, so it outlives the
    driver. The guests end with their worker.
    """
    with contextlib.suppress(OSError, EOFError):
        while (task := pipe.recv()) is not None:
            tasks.put(task)
        ended.set()
        tasks.put(None)
        pipe.recv_bytes()  # nothing more comes through but its end
    os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)


def _begin(sandbox: str | None, limits: Limits, channel: socket.socket | None) -> None:
    """Prepare a new worker: forget secrets; guests start with the first job.

    Ctrl-C does nothing here, and is what it was for the processes that this one starts.
    """
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.platform == "linux":
        from course_lib.grading.sandbox.inside import lockdown

        with contextlib.suppress(OSError):
            lockdown.die_with_parent()
    for name in os.environ.keys() - public_environment().keys():
        del os.environ[name]
    gc.freeze()  # what was imported stays: nothing looks through it for garbage
    _arguments[:] = [sandbox, limits, channel]


_arguments: list = [None, None, None]


def run_here(job: Job) -> Result:
    """Grade a job with this process's own runner, which is made for the first one."""
    if not _runner:
        from multiprocessing.util import Finalize  # a forked worker ends without atexit

        _runner.append(Runner(*_arguments))
        Finalize(None, _runner[0].close, exitpriority=10)
    return _runner[0].run(job)
