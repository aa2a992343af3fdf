"""The settings of a run, and what is sent to a worker and back.

A worker may be another process or another machine. A job holds the bytes of a submission, which
the worker parses. The worker makes the result: nothing from a student's process is ever unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nbformat import NotebookNode

from course_lib.grading.sandbox.confinement import Limits

MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Settings:
    """How a class is graded."""

    executor: str = "processes"  # or "serial", or "dask://HOST:PORT"
    sandbox: str | None = "strict"  # or "off"; None: the stronger one that this machine has
    workers: int = 0  # processes; 0: one for each core
    shard: str | None = None  # "k/n": this machine's share of the class
    limits: Limits = field(default_factory=Limits)  # of each submission
    force: bool = False  # grade unchanged work again


@dataclass(frozen=True)
class Job:
    """One submission to grade."""

    student: str
    lesson: str
    key: str  # digests of the submission and of what it is graded with
    data: bytes  # the submitted notebook
    release: str  # the lesson's release notebook
    seed: str  # the submission's own, from which the inputs of its checks are drawn
    name: str = "the notebook"  # of the submitted file, for messages
    tests: Mapping[str, str] = field(default_factory=dict)  # by grade_id, with the hidden parts
    notices: tuple[str, ...] = ()  # what a person should know of the folder
    beside: frozenset[str] = frozenset()  # files in the folder, which the guest does not see


@dataclass
class Result:
    """The outcome of a job.

    `seconds` holds the wall time of each step, "start" (of guests), "cells", "observe", "judge" and
    "total", and under "cpu" the processor time of worker and guests.
    """

    student: str
    lesson: str
    key: str
    notebook: NotebookNode | None = None  # executed
    fault: str | None = None  # why the submission could not be graded
    is_final: bool = False  # the same submission would fail again: only --force tries it
    notices: tuple[str, ...] = ()  # what a person should know of the submission
    seconds: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)  # what happened, one line each
