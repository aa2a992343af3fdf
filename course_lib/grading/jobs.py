"""What crosses to a worker and back, to another process or another machine.

A job holds plain data of the course and the bytes of a submission, which the worker parses. What
comes back was made by the worker: nothing that a student's process made is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nbformat import NotebookNode

from course_lib.checks.judge.report import Report


@dataclass(frozen=True)
class Job:
    """One submission to grade.

    Args:
        student: only for messages.
        lesson: slug.
        key: names what is graded: submission, release, seed and limits.
        data: the submitted notebook.
        release: the lesson's release notebook as text.
        seed: from which the inputs of its checks are drawn, its own.
        name: of the submitted file, for messages.
        tests: ordinary tests with what the release hides of them.
        earlier: check cells of the same submission as they were graded before.
        same: exercises whose check is the same as then; they are not judged again.
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
    earlier: tuple[NotebookNode, ...] = ()
    same: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


@dataclass
class Result:
    """What grading one submission gave.

    Attributes:
        notebook: the executed notebook; the checks that `reports` holds have no outputs yet.
        reports: by exercise, of all that were judged.
        fault: why the submission could not be graded; None if it was.
        notices: what a person should know of the submission.
        same_as_course: exercises whose answer is the course's own solution.
        flagged: exercises for a person to look at, with the reason.
        seconds: wall time by step: "start" (of guests), "cells", "observe", "judge", "total"; and
            "cpu", the processor time of worker and guests.
        attempts: how many workers died with it.
        log: what happened, a line each, for a person who looks into one submission.
    """

    student: str
    lesson: str
    key: str
    notebook: NotebookNode | None = None
    reports: dict[str, Report] = field(default_factory=dict)
    fault: str | None = None
    notices: tuple[str, ...] = ()
    same_as_course: tuple[str, ...] = ()
    flagged: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    attempts: int = 0
    log: list[str] = field(default_factory=list)
