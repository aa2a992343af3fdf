"""Grading on many machines: any Dask cluster whose workers have the course installed.

A worker needs no gradebook, no password and no shared file system: a job carries the notebook and
the seed, a result carries the graded notebook. See docs/scale.md for SSH, SLURM and Kubernetes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from course_lib.grading.executors import _AHEAD, set_aside
from course_lib.grading.intake import GradingError
from course_lib.grading.kernels.sandbox import Limits
from course_lib.grading.runner import Job, Result, Runner

_CONNECT_SECONDS = 15
_runners: dict[tuple, Runner] = {}
_one_at_a_time = threading.Lock()


class OnDask:
    """Runs jobs on the workers of a Dask scheduler.

    Raises:
        GradingError: the scheduler cannot be reached, or has no worker.
    """

    def __init__(self, address: str, sandbox: str | None, limits: Limits) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise GradingError(
                'Dask is not installed here: pip install "attention-course[scale]"'
            ) from error
        self.address, self.arguments = address, (sandbox, limits)
        try:
            self.client = Client(f"tcp://{address}", timeout=_CONNECT_SECONDS)
        except OSError as error:
            raise GradingError(
                f"no Dask scheduler answers at {address}: start one with `dask scheduler`"
            ) from error

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        from distributed import KilledWorker, as_completed
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError

        waiting, running = iter(jobs), {}
        finished = as_completed(with_results=False)
        self._fill(waiting, running, finished)
        while running:
            future = next(finished)
            job = running.pop(future.key)
            try:
                result = future.result()
            except KilledWorker:
                result = set_aside(job)
            except (FutureCancelledError, CommClosedError, OSError) as error:
                raise GradingError(
                    f"the Dask scheduler at {self.address} was lost: start it again and repeat "
                    "this command; what is graded is kept"
                ) from error
            future.release()
            self._fill(waiting, running, finished)
            yield result

    def _fill(self, waiting: Iterator[Job], running: dict, finished) -> None:
        """Keep a few jobs ahead for each worker, not the whole class in the scheduler."""
        workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        room = _AHEAD * workers - len(running)
        for _, job in zip(range(room), waiting, strict=False):
            future = self.client.submit(run_on_worker, job, *self.arguments, pure=False)
            running[future.key] = job
            finished.add(future)

    def close(self) -> None:
        self.client.close()


def run_on_worker(job: Job, sandbox: str | None, limits: Limits) -> Result:
    """On a worker: grade a job; the runner stays for the next one."""
    with _one_at_a_time:
        if (sandbox, limits) not in _runners:
            _runners[sandbox, limits] = Runner(sandbox, limits)
        return _runners[sandbox, limits].run(job)
