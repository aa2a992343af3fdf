"""How a class is graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from course_lib.grading.sandbox.confinement import Limits
from course_lib.workspace.progress import Step

Progress = Callable[[Step], None]


@dataclass(frozen=True)
class Settings:
    """How a class is graded.

    Args:
        executor: "processes", "serial" or "dask://HOST:PORT".
        sandbox: "strict" or "off"; the stronger one that this machine has if None.
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
