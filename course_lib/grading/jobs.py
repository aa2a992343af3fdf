"""The settings of a run, the jobs for workers and their results.

A worker may be another process or another machine. It parses the submission, whose bytes are in the
job, and makes the result. Nothing from a student's process is ever unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode

from course_lib.grading.sandbox.confinement import Limits
from course_lib.workspace.full_disk import full_disk

MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Settings:
    """How a class is graded."""

    executor: str = "processes"  # or "serial", or "dask://HOST:PORT"
    sandbox: str | None = "strict"  # or "off"; None for the best one available
    workers: int = 0  # 0 means one for each core
    limits: Limits = field(default_factory=Limits)
    force: bool = False  # grade unchanged work again


@dataclass(frozen=True)
class Job:
    """One submission to grade."""

    student: str
    lesson: str
    key: str  # digests of the submission and of what it is graded with
    data: bytes  # the submitted notebook
    release: str  # the lesson's release notebook
    seed: str  # for the inputs of this submission's checks
    name: str = "the notebook"  # for messages
    tests: Mapping[str, str] = field(default_factory=dict)  # sources by grade_id, unabridged
    notices: tuple[str, ...] = ()  # about the folder, for the instructor
    beside: frozenset[str] = frozenset()  # files in the folder, which the guest does not see

    def result(self, **known: Any) -> "Result":
        """Return a result of this job."""
        return Result(self.student, self.lesson, self.key, **known)


@dataclass
class Result:
    """The outcome of a job.

    `seconds` holds the wall time of each step, "start" (of guests), "cells", "observe", "judge" and
    "total", and under "cpu" the CPU time of worker and guests.
    """

    student: str
    lesson: str
    key: str
    notebook: NotebookNode | None = None  # executed
    fault: str | None = None  # why the submission could not be graded
    is_final: bool = False  # it would fail again, so only --force retries it
    notices: tuple[str, ...] = ()  # for the instructor
    seconds: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)  # one line for each event


def failed(error: Exception) -> str:
    """Return the `fault` of a submission on which the grader itself raised an error."""
    if found := full_disk(error):
        return f"{found}: make room; the next run tries again"
    what = f"{type(error).__name__}: {error}"[:300]
    return f"the grader itself failed ({what}): report it to the course"
