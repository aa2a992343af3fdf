"""What crosses to a worker and back, to another process or another machine.

A job is made here, of plain data. A result carries its notebook as text: that text is what the
ledger keeps and what is published, and nothing that a student's process made is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbformat import NotebookNode


@dataclass(frozen=True)
class Job:
    """One submission to grade.

    Args:
        student: only for messages.
        lesson: slug.
        key: names what is graded: submission, release, seed and limits.
        notebook: the rebuilt one; its runner works on a copy.
        seed: from which the inputs of its checks are drawn, its own.
        settled: exercises whose check cells hold their outputs already and are not judged again.
        earlier: check cells of the same work as they were graded before; their points may not fall.
    """

    student: str
    lesson: str
    key: str
    notebook: NotebookNode
    seed: str
    settled: tuple[str, ...] = ()
    earlier: tuple[NotebookNode, ...] = ()


@dataclass
class Result:
    """What grading one submission gave.

    Attributes:
        notebook: the executed notebook as JSON text, with reports and points in its checks.
        fault: why the machine could not grade it, where that is not the student's doing.
        flagged: exercises for a person to look at, with the reason.
        seconds: wall time by step: "kernel" (waiting for it), "cells", "observe", "judge", "total",
            and of making kernels, most of it ahead of need, "fork", "sandbox", "start".
        attempts: how many workers it took with it.
        log: what happened, a line each, for a person who looks into one submission.
    """

    student: str
    lesson: str
    key: str
    notebook: str = ""
    fault: str | None = None
    attempts: int = 0
    flagged: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
