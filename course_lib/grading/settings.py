"""How a class is graded, and how far a run has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from course_lib.grading.kernels.sandbox import Limits


@dataclass(frozen=True)
class Step:
    """How far a run has come; as text, the line that a terminal shows.

    Args:
        lesson: slug.
        student: whose submission was settled last; "" at the beginning.
        done: submissions settled so far, of `total`.
        counts: of submissions: "graded", "unchanged", "not gradable".
        outcomes: of exercises in the submissions graded by this run: "correct", "incorrect", ...
        seconds_left: an estimate, in seconds.
    """

    lesson: str
    student: str
    done: int
    total: int
    counts: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    seconds_left: float = 0.0

    def __str__(self) -> str:
        if not self.student:
            return f"{self.lesson}: {self.total} submissions"
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        return (
            f"{self.lesson}: {self.done} of {self.total} ({counts}), "
            f"about {self.seconds_left:.0f} s left, {self.student}"
        )


Progress = Callable[[Step], None]


@dataclass(frozen=True)
class Settings:
    """How a class is graded.

    Args:
        executor: "processes", "serial" or "dask://HOST:PORT".
        sandbox: "strict", "basic" or "off"; the strongest that this machine has if None.
        workers: processes; one for each core if 0.
        shard: "k/n", this machine's share of the class; everything if None.
        limits: what each submission may use.
        force: grade what has not changed since the last run, too.
    """

    executor: str = "processes"
    sandbox: str | None = "strict"
    workers: int = 0
    shard: str | None = None
    limits: Limits = field(default_factory=Limits)
    force: bool = False
