"""Submissions in this process, or in several of this machine; a lost worker costs only time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.grading.jobs import Job, Result
from course_lib.grading.kernels.environment import public_environment, without_secrets
from course_lib.grading.kernels.sandbox import Limits, Reached
from course_lib.grading.ledger import MAX_ATTEMPTS
from course_lib.grading.runner import Runner

if TYPE_CHECKING:
    from course_lib.grading.kernels.forked import Zygote

AHEAD = 2  # jobs that wait in line for each worker, so that none ever waits for the driver


def set_aside(job: Job) -> Result:
    """The result of a job that nobody could finish."""
    why = f"it ended the grader {MAX_ATTEMPTS} times: look at it, then grade it with --force"
    return Result(job.student, job.lesson, job.key, fault=why, attempts=MAX_ATTEMPTS)


class Serial:
    """One submission after the other in this process."""

    def __init__(self, sandbox: str | None, limits: Limits) -> None:
        self.runner = Runner(sandbox, limits)

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        for job in jobs:
            yield self.runner.run(job)

    def close(self) -> None:
        self.runner.close()


class Processes:
    """Several processes on this machine, which share a zygote where that is safe."""

    def __init__(self, sandbox: str | None, limits: Limits, workers: int) -> None:
        self.sandbox, self.limits, self.workers = sandbox, limits, workers
        self.pool: ProcessPoolExecutor | None = None
        self.zygote = shared_zygote(sandbox)  # imports while the workers come up

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        waiting = iter(jobs)
        running: dict[Future, Job] = {}
        while True:
            room = AHEAD * self.workers - len(running)
            for _, job in zip(range(room), waiting, strict=False):
                running[self._submit(job)] = job
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            lost = []
            for future in finished:
                job = running.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    lost.append(job)
            if lost:
                lost += running.values()
                running.clear()
                yield from self._one_by_one(lost)

    def _one_by_one(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """After a worker was lost: each suspect alone, so that the guilty one is found."""
        for job in jobs:
            for _ in range(MAX_ATTEMPTS):
                self._end_workers()
                try:
                    yield self._submit(job).result()
                    break
                except BrokenProcessPool:
                    continue
            else:
                yield set_aside(job)

    def _submit(self, job: Job) -> Future:
        if self.pool is None:
            context = _processes()
            joins = self.zygote.folder if self.zygote else None
            arguments = (self.sandbox, self.limits, joins)
            self.pool = ProcessPoolExecutor(
                self.workers, context, initializer=_begin, initargs=arguments
            )
        try:
            with defer_sigint():
                return self.pool.submit(run_here, job)
        except BrokenProcessPool as error:
            failed: Future = Future()
            failed.set_exception(error)
            return failed

    def close(self) -> None:
        self._end_workers()
        if self.zygote is not None:
            self.zygote.close()
            self.zygote = None

    def _end_workers(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.pool = None


def shared_zygote(level: str | None) -> Zygote | None:
    """A zygote for all workers: at "strict" as root, where no kernel can reach its socket."""
    from course_lib.grading.kernels import sandbox

    if level not in (None, "strict") or "strict" in sandbox.obstacles() or os.getuid() != 0:
        return None
    from course_lib.grading.kernels.forked import Zygote

    return Zygote("strict", shared=True)


def _processes() -> BaseContext:
    """How workers are made: forked from a server that has imported the judge, or started anew."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["course_lib.grading.executors.local", "course_lib.checks.judge.grade"]
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


def _begin(sandbox: str | None, limits: Limits, joins: Path | None) -> None:
    """In a new worker: die with the driver; the kernels come up with the first job.

    Ctrl-C does nothing here, and is what it was for the kernels that this process starts.
    """
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.platform == "linux":
        from course_lib.grading.kernels.guest import lockdown

        with contextlib.suppress(OSError):
            lockdown.die_with_parent()
    for name in os.environ.keys() - public_environment().keys():
        del os.environ[name]
    _arguments[:] = [sandbox, limits, joins]


_arguments: list = [None, None, None]


def run_here(job: Job) -> Result:
    """Grade a job with this process's own runner, which is made for the first one."""
    if not _runner:
        from multiprocessing.util import Finalize  # a forked worker ends without atexit

        _runner.append(Runner(*_arguments))
        Finalize(None, _runner[0].close, exitpriority=10)
    return _runner[0].run(job)


def reached(sandbox: str | None) -> Reached:
    """The sandbox level that this machine reaches, tried out.

    Raises:
        GradingError: it does not reach the level asked for.
    """
    from course_lib.grading.kernels.provider import provider

    trial = provider(sandbox)
    trial.close()
    return trial.reached
