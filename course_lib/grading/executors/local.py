"""Grade in this process or in several on this machine. A lost worker costs only time."""

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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from course_lib.grading.jobs import MAX_ATTEMPTS, Job, Result, Settings, failed
from course_lib.grading.sandbox import confinement
from course_lib.grading.sandbox.confinement import Limits, Reached
from course_lib.workspace.environment import public_environment, without_secrets
from course_lib.workspace.errors import CourseError, GradingError

if TYPE_CHECKING:
    from course_lib.grading.sandbox.hosts import Host
    from course_lib.grading.worker.runner import Runner

JOBS_PER_WORKER = 2  # one in work and one waiting, so that no worker waits for the driver
_SERVER_ENDED = 255  # multiprocessing's exit code of a worker whose fork server has ended
_MOST_SERVERS = 3 * MAX_ATTEMPTS  # fork servers that may end in a row while one job runs alone


def set_aside(job: Job) -> Result:
    """Return the result of a job that ended each worker on which it ran alone."""
    why = f"it ended the grader {MAX_ATTEMPTS} times: look at it, then grade it with --force"
    return job.result(fault=why, is_final=True)


def make_runner(settings: Settings, channel: socket.socket | None = None) -> Runner:
    """Return a runner. The import is here because a driver of several processes needs no runner."""
    from course_lib.grading.worker import runner

    return runner.Runner(settings.sandbox, settings.limits, channel)


class Serial:
    """One submission after the other in this process."""

    def __init__(self, settings: Settings) -> None:
        self.runner = make_runner(settings)

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        return map(self.runner.run, jobs)

    def close(self) -> None:
        self.runner.close()


class _Worker:
    """A process that grades one submission after the other, as the driver sees it."""

    def __init__(self, settings: Settings, channel: socket.socket | None, failures: int) -> None:
        self.failures = failures  # failed starts before this one
        context = _context()
        self.pipe, theirs = context.Pipe()  # a worker killed while writing blocks no other
        self.process = context.Process(target=_serve, args=(theirs, make_runner, settings, channel))
        with theirs, channel or contextlib.nullcontext(), defer_sigint():
            self.process.start()
        self.jobs: deque[Job] = deque()  # the first is being graded, others wait
        self.is_up = False

    def send(self, job: Job | None) -> None:
        with contextlib.suppress(OSError):  # the worker has ended, as the next poll reports
            self.pipe.send(job)

    def join(self) -> None:
        """Wait until the worker has ended, and discard its remaining output."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                self.pipe.recv_bytes()
        self.process.join()
        self.pipe.close()


class Processes:
    """Several processes on this machine, whose guests come from one host."""

    def __init__(self, settings: Settings, lesson: str) -> None:
        self.settings, self.lesson = settings, lesson
        self.workers: list[_Worker] = []
        self.failed_starts = 0
        self.host = start_host(settings.sandbox, settings.limits, lesson)
        _context()  # starts the fork server, which imports the judge

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield a result for each job. Raise GradingError if no worker starts.

        If a worker ends, its job is run again alone after all others. Only a job that then ends
        its worker again is set aside. If the fork server ends, and all workers with it, this counts
        against no job.
        """
        jobs, again, suspects, deaths = iter(jobs), deque[Job](), deque[Job](), Counter[str]()
        alone, lost_servers = None, 0
        while True:
            self._hand_out(again, jobs)
            if not any(worker.jobs for worker in self.workers):
                if not suspects:
                    return
                again.append(alone := suspects.popleft())
                continue
            ready = wait([worker.pipe for worker in self.workers])
            for worker in [w for w in self.workers if w.pipe in ready]:
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    self.workers.remove(worker)
                    worker.join()
                    code = worker.process.exitcode
                    if not worker.is_up:
                        self._failed_to_start(f"exit code {code}", worker.failures)
                    elif worker.jobs:  # only the job that it was grading is suspect
                        suspect = worker.jobs.popleft()
                        deaths[suspect.student] += suspect is alone and code != _SERVER_ENDED
                        lost_servers += suspect is alone and code == _SERVER_ENDED
                        if deaths[suspect.student] >= MAX_ATTEMPTS:
                            yield set_aside(suspect)
                        elif lost_servers < _MOST_SERVERS:
                            suspects.append(suspect)
                        else:
                            lost_servers = 0
                            why = f"the grader's fork server ended {_MOST_SERVERS} times"
                            yield suspect.result(
                                fault=f"{why}: find out what kills it, then run again"
                            )
                    again.extend(worker.jobs)
                    continue
                if isinstance(answer, Exception):
                    raise answer
                if answer is None:
                    worker.is_up, self.failed_starts = True, 0
                else:
                    worker.jobs.popleft()
                    lost_servers = 0
                    yield answer

    def _hand_out(self, again: deque[Job], jobs: Iterator[Job]) -> None:
        """Give each worker as many jobs as it may hold, after each has a first one."""
        for held in range(JOBS_PER_WORKER):
            for place in range(self.settings.workers or os.cpu_count() or 1):
                if place < len(self.workers) and len(self.workers[place].jobs) > held:
                    continue
                job = again.popleft() if again else next(jobs, None)
                if job is None:
                    return
                if place == len(self.workers):
                    self.workers.append(self._start())
                self.workers[place].jobs.append(job)
                self.workers[place].send(job)

    def _start(self) -> _Worker:
        while True:
            try:
                channel = self.host.channel.dup() if self.host else None
                return _Worker(self.settings, channel, self.failed_starts)
            except (OSError, EOFError) as error:  # the fork server has ended, too
                self._failed_to_start(error, self.failed_starts)

    def _failed_to_start(self, why: object, before: int) -> None:
        """Count a failed start. Workers that end together with their fork server count as one."""
        self.failed_starts += before == self.failed_starts
        if self.failed_starts >= MAX_ATTEMPTS:
            raise GradingError(
                f"no worker comes up on this machine ({why}): make room, or use --executor "
                "serial, then run the same command again; what is graded is kept"
            )

    def close(self) -> None:
        """End all workers. A busy worker finishes its submission first."""
        for worker in self.workers:
            worker.send(None)
        for worker in self.workers:
            worker.join()
        if self.host is not None:
            self.host.close()


def start_host(level: str | None, limits: Limits, lesson: str) -> Host | None:
    """Start the host of all workers' guests, if this machine supports one."""
    if sys.platform != "linux":
        return None
    from course_lib.grading.sandbox.hosts import Host

    best = "off" if "strict" in confinement.obstacles() else "strict"
    return Host(level or best, limits, lesson)


def reached(sandbox: str | None) -> Reached:
    """Try out the sandbox, and raise GradingError if it does not reach the requested level."""
    from course_lib.grading.sandbox.hosts import open_guests

    trial = open_guests(sandbox)
    trial.close()
    return trial.reached


def _context() -> Any:
    """Return the start method of workers: a fork server that has imported the judge, or spawn."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["course_lib.grading.worker.ahead", __name__])
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # this call unblocks SIGINT
    # Processes started now ignore Ctrl-C, which is for the driver.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with without_secrets():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextlib.contextmanager
def defer_sigint() -> Iterator[None]:
    """Defer Ctrl-C until a worker has started, because a half-started worker cannot be ended."""
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


def _serve(
    pipe: Connection,
    make: Callable[[Settings, socket.socket | None], Runner],
    settings: Settings,
    channel: socket.socket | None,
) -> None:
    """Grade the jobs from the pipe until None arrives; a worker does nothing else."""
    prepare_worker()
    runner = make(settings, channel)
    jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    ended = threading.Event()
    threading.Thread(target=_listen, args=(pipe, jobs, ended), daemon=True).start()
    pipe.send(None)
    while (job := jobs.get()) is not None and not ended.is_set():
        try:
            answer = runner.run(job)
        except CourseError as error:
            answer = error
        except Exception as error:
            answer = job.result(fault=failed(error))
        pipe.send(answer)
    runner.close()


def _listen(pipe: Connection, jobs: queue.SimpleQueue[Job | None], ended: threading.Event) -> None:
    """Receive jobs while a submission is graded, and exit when the driver has exited."""
    with contextlib.suppress(OSError, EOFError):
        while (job := pipe.recv()) is not None:
            jobs.put(job)
        ended.set()
        jobs.put(None)
        pipe.recv_bytes()  # blocks until the driver closes the pipe or exits
    os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)


def prepare_worker() -> None:
    """Remove secrets, end with the fork server, and leave Ctrl-C to the driver."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.platform == "linux":
        from course_lib.grading.sandbox.inside import lockdown

        lockdown.die_with_parent()
    for name in os.environ.keys() - public_environment().keys():
        del os.environ[name]
    gc.freeze()  # spares garbage collections among imported objects
