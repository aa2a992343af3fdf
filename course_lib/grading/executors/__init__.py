"""Who loops over the submissions: this process, several, or many machines.

All have one interface: `run(jobs)` takes jobs as it has room for them and yields a Result for each,
in any order. A worker that is lost costs nothing but time; a job that takes three workers with it
is set aside with a fault.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from course_lib.grading.executors.local import Processes, Serial
from course_lib.grading.jobs import Job, Result
from course_lib.grading.sandbox.confinement import Limits
from course_lib.workspace.errors import GradingError

_ADDRESS = re.compile(r"dask://([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}", re.ASCII)


class Executor(Protocol):
    """Runs jobs."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield a result for each job."""
        ...

    def close(self) -> None:
        """End all workers."""


def executor(
    name: str,
    *,
    sandbox: str | None = None,
    limits: Limits | None = None,
    workers: int = 0,
    lesson: str = "",
) -> Executor:
    """The executor of a name.

    Args:
        name: "serial", "processes" or "dask://HOST:PORT".
        sandbox: level for the students' code, the best there is if None.
        limits: what each submission may use.
        workers: how many processes; one for each core if 0.
        lesson: that is graded, if jobs will come for certain: the host of its guests starts now.

    Raises:
        GradingError: there is no such executor, or it cannot be reached.
    """
    limits = limits or Limits()
    if name == "serial":
        return Serial(sandbox, limits)
    if name == "processes":
        return Processes(sandbox, limits, workers or os.cpu_count() or 1, lesson)
    if name.startswith("dask://"):
        from course_lib.grading.executors.dask import OnDask

        if not _ADDRESS.fullmatch(name):
            raise GradingError(f"--executor {name}: write dask://HOST:PORT of a Dask scheduler")
        return OnDask(name.removeprefix("dask://"), sandbox, limits)
    raise GradingError(
        f"--executor {name}: there are serial, processes and dask://HOST:PORT of a Dask scheduler"
    )


def shard_of(students: Iterable[str], shard: str | None) -> list[str]:
    """The students of shard "k/n": the same ones on every machine, each in exactly one shard.

    Raises:
        GradingError: not of the form k/n with 1 <= k <= n.
    """
    students = list(students)
    if shard is None:
        return students
    first, _, count = shard.partition("/")
    plain = shard.isascii() and first.isdigit() and count.isdigit()
    if not (plain and 1 <= int(first) <= int(count)):
        raise GradingError(f"--shard {shard}: write k/n with 1 <= k <= n, for example 2/8")
    return [s for s in students if _share(s, int(count)) == int(first) - 1]


def _share(student: str, count: int) -> int:
    digest = hashlib.sha256(student.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % count
