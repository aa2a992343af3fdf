"""Grading on any Dask cluster whose workers have the course installed; see docs/scale.md."""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from course_lib import __version__
from course_lib.grading.executors.local import JOBS_PER_WORKER, make_runner, set_aside
from course_lib.grading.jobs import Job, Result, Settings
from course_lib.grading.ledger import checks_digest
from course_lib.workspace.errors import CourseError, GradingError

if TYPE_CHECKING:
    from distributed import Future

    from course_lib.grading.worker.runner import Runner

_CONNECT_SECONDS = 15
_ANSWER_SECONDS = 60  # time for a busy scheduler to answer
_LOOK_SECONDS = 2
_ALONE_SECONDS = 120  # time for a cluster to get a worker
_KEPT = "run the same command again; what is graded is kept"

_runners: dict[tuple, Runner] = {}
_one_at_a_time = threading.Lock()


class OnDask:
    """Jobs on the workers of a Dask scheduler; GradingError if it cannot be reached."""

    def __init__(self, settings: Settings) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            cure = 'pip install "attention-course[scale]"'
            raise GradingError(f"Dask is not installed here: {cure}") from error
        self.address = settings.executor.removeprefix("dask://")
        self.settings = settings
        # Silence Dask's loggers, because this class reports each problem once.
        names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
        self.levels = {name: logging.getLogger(name).level for name in names}
        _set_levels(dict.fromkeys(names, logging.CRITICAL + 1))
        place = f"tcp://{self.address}"
        try:
            self.client = Client(place, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            _set_levels(self.levels)
            raise GradingError(
                f"no Dask scheduler answers at {self.address}: start one with `dask scheduler`"
            ) from error

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield a result for each job; raise GradingError if that is impossible."""
        suspects = []
        for job, result in self._work(jobs):
            if result is not None:
                yield result
            else:
                suspects.append(job)
        for job in suspects:  # alone, since Dask also suspects waiting jobs
            for _, result in self._work([job]):
                yield result or set_aside(job)

    def _work(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Result | None]]:
        """Yield each job with its result, or with None if too many workers died running it."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        waiting, running, finished = iter(jobs), {}, queue.SimpleQueue()
        self._fill(waiting, running, finished)
        while running:
            future = self._next(finished)
            job = running.pop(future.key)
            try:
                result = self._result(future)
            except KilledWorker:
                result = None
            except (FutureCancelledError, OSError) as error:
                alive = self.client.status == "running"
                raise self._lost("it began anew" if alive else "the connection broke") from error
            except (ImportError, AttributeError, TypeError) as error:
                raise GradingError(
                    f"a worker of {self.address} does not know this course ({error}): install "
                    f"there what is installed here, then {_KEPT}"
                ) from error
            future.release()
            self._fill(waiting, running, finished)
            yield job, result

    def _fill(
        self, waiting: Iterator[Job], running: dict[Any, Job], finished: queue.SimpleQueue[Future]
    ) -> None:
        """Queue a few jobs for each worker, instead of the whole class."""
        room = JOBS_PER_WORKER * max(1, self._workers()) - len(running)
        for _, job in zip(range(room), waiting, strict=False):
            known = versions(job.lesson)
            future = self.client.submit(run_on_worker, job, known, self.settings, pure=False)
            running[future.key] = job
            future.add_done_callback(finished.put)

    def _next(self, finished: queue.SimpleQueue[Future]) -> Future:
        """Wait for a future, and check meanwhile that the scheduler and workers are alive."""
        seen = time.monotonic()
        while True:
            try:
                return finished.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self._workers():
                    seen = time.monotonic()
            if time.monotonic() - seen > _ALONE_SECONDS:
                raise GradingError(
                    f"the Dask scheduler at {self.address} has had no worker for {_ALONE_SECONDS} "
                    f"s: start some with `dask worker {self.address}`, then {_KEPT}"
                )

    def _result(self, future: Future) -> Result:
        """Return a future's result, which may have to be computed once more."""
        while True:
            try:
                return future.result(timeout=_ANSWER_SECONDS)
            except TimeoutError:
                self._workers()

    def _workers(self) -> int:
        """Return how many workers there are; raise GradingError if the scheduler is gone."""
        scheduler: Any = self.client.scheduler if self.client.status == "running" else None
        try:
            cores: Any = self.client.sync(scheduler.ncores, callback_timeout=_ANSWER_SECONDS)
            return len(cores)
        except TimeoutError as error:
            raise self._lost(f"no answer within {_ANSWER_SECONDS} s") from error
        except (OSError, AttributeError, RuntimeError) as error:
            raise self._lost("the connection broke") from error

    def _lost(self, why: str) -> GradingError:
        return GradingError(
            f"the Dask scheduler at {self.address} was lost ({why}): start it again, then {_KEPT}"
        )

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self.client.close(timeout=_CONNECT_SECONDS)
        _set_levels(self.levels)


def _set_levels(levels: dict[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@functools.cache
def versions(lesson: str) -> dict[str, str]:
    """Return the versions on which grades depend, by name; they must be equal on all machines."""
    return {
        "the course": f"{__version__} ({checks_digest(lesson)[:8]})",
        "torch": version("torch").partition("+")[0],  # CPU and CUDA builds may be mixed
        "numpy": version("numpy"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def run_on_worker(job: Job, wanted: dict, settings: Settings) -> Result:
    """Grade a job on a worker, with a runner that stays for the next job."""
    here = versions(job.lesson)
    other = [f"{k} {here.get(k)} instead of {v}" for k, v in wanted.items() if here.get(k) != v]
    machine = f"the Dask worker on {socket.gethostname()}"
    if other:
        raise GradingError(
            f"{machine} has {', '.join(other)}: install there what is installed here, start it "
            f"again, then {_KEPT}"
        )
    with _one_at_a_time:
        runner = _runners.setdefault((settings.sandbox, settings.limits), make_runner(settings))
        try:
            return runner.run(job)
        except CourseError as error:
            raise GradingError(f"{machine} cannot grade: {error}") from error
