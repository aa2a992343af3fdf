"""What crosses to a worker and back: plain data, for another process or another machine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Job:
    """One submission to grade.

    Args:
        student: only for messages.
        lesson: slug.
        key: names what is graded: submission, release, seed and limits.
        notebook: the rebuilt notebook as JSON text.
        seed: the secret from which the inputs of the checks are drawn.
        settled: exercises whose check cells hold their outputs already and are not judged again.
    """

    student: str
    lesson: str
    key: str
    notebook: str
    seed: str
    settled: tuple[str, ...] = ()


@dataclass
class Result:
    """What grading one submission gave.

    Attributes:
        notebook: the executed notebook as JSON text, with reports and points in its checks.
        fault: why the machine could not grade it, where that is not the student's doing.
        flagged: exercises for a person to look at, with the reason.
        seconds: wall time by step: "kernel" (waiting for it), "cells", "observe", "judge", "total",
            and of making kernels, most of it ahead of need, "fork", "sandbox", "start".
        attempts: how many workers tried.
        log: what happened, a line each, for a person who looks into one submission.
    """

    student: str
    lesson: str
    key: str
    notebook: str = ""
    fault: str | None = None
    attempts: int = 1
    flagged: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
