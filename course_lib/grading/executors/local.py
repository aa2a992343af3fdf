"""Submissions in this process, or in several of this machine; a lost worker costs only time."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from course_lib.grading.executors.worker import Task, Worker, processes
from course_lib.grading.jobs import Job, Result
from course_lib.grading.judging.runner import Runner
from course_lib.grading.ledger import MAX_ATTEMPTS
from course_lib.grading.sandbox.confinement import Limits, Reached
from course_lib.workspace.errors import GradingError

if TYPE_CHECKING:
    from course_lib.grading.sandbox.hosts import Host

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
    """Several processes on this machine, whose guests come from one host.

    Each has a pipe of its own. One that is killed while it writes holds up nobody, which a queue
    that all write to does not promise (`concurrent.futures` waits for ever), and its pipe tells
    which submission it had in hand.
    """

    def __init__(self, sandbox: str | None, limits: Limits, workers: int, lesson: str = "") -> None:
        self.sandbox, self.limits, self.most = sandbox, limits, workers
        self.workers: list[Worker] = []
        self.failed_starts = 0
        processes()
        self.host: Host | None = start_host(sandbox, limits, lesson) if lesson else None

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield a result for each job.

        Raises:
            GradingError: no worker comes up on this machine.
        """
        waiting = (Task(job) for job in jobs)
        again: deque[Task] = deque()
        while True:
            self._hand_out(itertools.chain(_popped(again), waiting))
            if not any(worker.tasks for worker in self.workers):
                return
            ready = wait([worker.pipe for worker in self.workers])
            for worker in [w for w in self.workers if w.pipe in ready]:
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    yield from self._lost(worker, again)
                    continue
                if isinstance(answer, Exception):
                    raise answer
                if answer is None:
                    worker.is_up, self.failed_starts = True, 0
                else:
                    worker.tasks.popleft()
                    yield answer

    def _hand_out(self, tasks: Iterator[Task]) -> None:
        """Give each worker as many as it may have, all their first one first."""
        for held in range(AHEAD):
            for place in range(self.most):
                if place < len(self.workers) and len(self.workers[place].tasks) > held:
                    continue
                task = next(tasks, None)
                if task is None:
                    return
                if place == len(self.workers):
                    self.workers.append(self._start(task.job.lesson))
                self.workers[place].take(task)

    def _start(self, lesson: str) -> Worker:
        if self.host is None:  # imports while the workers come up
            self.host = start_host(self.sandbox, self.limits, lesson)
        while True:
            try:
                channel = self.host.connect() if self.host else None
                return Worker(self.sandbox, self.limits, channel)
            except (OSError, EOFError) as error:  # the fork server was lost, too
                self._failed_to_start(error)

    def _failed_to_start(self, why: object) -> None:
        self.failed_starts += 1
        if self.failed_starts >= MAX_ATTEMPTS:
            raise GradingError(
                f"no worker comes up on this machine ({why}): make room, or use --executor "
                "serial, then run the same command again; what is graded is kept"
            )

    def _lost(self, worker: Worker, again: deque[Task]) -> Iterator[Result]:
        """A worker is gone: what it had in hand is suspect, what waited behind that is not."""
        self.workers.remove(worker)
        worker.join()
        tasks = worker.tasks
        if not worker.is_up:
            self._failed_to_start(f"exit code {worker.process.exitcode}")
        elif tasks:
            tasks[0].deaths += 1
            if tasks[0].deaths >= MAX_ATTEMPTS:
                yield set_aside(tasks.popleft().job)
        again.extend(tasks)

    def close(self) -> None:
        """End all workers; one that is busy finishes its submission first."""
        for worker in self.workers:
            worker.end()
        for worker in self.workers:
            worker.join()
        self.workers.clear()
        if self.host is not None:
            self.host.close()
            self.host = None


def _popped(tasks: deque[Task]) -> Iterator[Task]:
    while tasks:
        yield tasks.popleft()


def start_host(level: str | None, limits: Limits, lesson: str) -> Host | None:
    """Start the host of all workers' guests, where this machine can have one."""
    if sys.platform != "linux":
        return None
    from course_lib.grading.sandbox import confinement
    from course_lib.grading.sandbox.hosts import Host

    best = "off" if "strict" in confinement.obstacles() else "strict"
    return Host(level or best, limits, lesson)


def reached(sandbox: str | None) -> Reached:
    """Return the sandbox level that this machine reaches, after trying it out.

    Raises:
        GradingError: it does not reach the level asked for.
    """
    from course_lib.grading.sandbox.hosts import open_guests

    trial = open_guests(sandbox)
    trial.close()
    return trial.reached
