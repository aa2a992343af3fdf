"""What a class is graded with, and what crosses to a worker and back.

A worker may be another process or another machine. A job holds the bytes of a submission, which
the worker parses. The worker makes the result: nothing from a student's process is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nbformat import NotebookNode

from course_lib.grading.sandbox.confinement import Limits

MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Settings:
    """How a class is graded.

    Args:
        executor: "processes", "serial" or "dask://HOST:PORT".
        sandbox: "strict" or "off"; the stronger one that this machine has if None.
        workers: number of processes; one for each core if 0.
        shard: "k/n", this machine's share of the class; everything if None.
        limits: what each submission may use.
        force: grade again what has not changed since the last run.
    """

    executor: str = "processes"
    sandbox: str | None = "strict"
    workers: int = 0
    shard: str | None = None
    limits: Limits = field(default_factory=Limits)
    force: bool = False


@dataclass(frozen=True)
class Job:
    """One submission to grade.

    Args:
        student: only for messages.
        lesson: slug.
        key: digests of the submission and of what it is graded with.
        data: the submitted notebook.
        release: the lesson's release notebook as text.
        seed: the submission's own, from which the inputs of its checks are drawn.
        name: of the submitted file, for messages.
        tests: ordinary tests with what the release hides of them.
        notices: what a person should know of the folder.
        beside: names of the files in the notebook's folder, which the guest does not see.
    """

    student: str
    lesson: str
    key: str
    data: bytes
    release: str
    seed: str
    name: str = "the notebook"
    tests: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    beside: frozenset[str] = frozenset()


@dataclass
class Result:
    """The outcome of a job.

    Attributes:
        notebook: the executed notebook.
        fault: why the submission could not be graded; None if it was.
        is_final: whether the same submission would fail again, so that only `--force` tries it.
        notices: what a person should know of the submission.
        seconds: wall time by step: "start" (of guests), "cells", "observe", "judge", "total"; and
            "cpu", the processor time of worker and guests.
        log: what happened, one line each.
    """

    student: str
    lesson: str
    key: str
    notebook: NotebookNode | None = None
    fault: str | None = None
    is_final: bool = False
    notices: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
