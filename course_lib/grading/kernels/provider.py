"""Where kernels come from: forked from a zygote in a sandbox, or started as ordinary processes."""

from __future__ import annotations

import sys
from pathlib import Path

from course_lib.grading.kernels import sandbox
from course_lib.grading.kernels.forked import ForkedKernels
from course_lib.grading.kernels.running_kernel import KernelFault, Provider
from course_lib.grading.kernels.sandbox import LEVELS, Limits, Reached
from course_lib.grading.kernels.spawned import SpawnedKernels


def provider(
    level: str | None = None,
    limits: Limits | None = None,
    joins: Path | None = None,
    lesson: str = "",
) -> Provider:
    """Start what kernels come from.

    Args:
        level: the sandbox that is asked for; the best there is if None.
        limits: what each kernel may use.
        joins: folder of a shared zygote, at the level "strict"; used if it serves us.
        lesson: that is graded: its kernels see the solutions of those before it, none if "".

    Raises:
        GradingError: the machine does not reach the level; the message says why and the remedy.
    """
    limits = limits or Limits()
    reasons = dict(sandbox.obstacles())
    for candidate in LEVELS if level is None else (level,):
        if candidate in reasons:
            continue
        try:
            if sys.platform != "linux":  # forks there, too, but not after importing what we import
                return SpawnedKernels(Reached("off", reasons))
            return ForkedKernels(candidate, limits, reasons, joins, lesson)
        except KernelFault as error:
            reasons[candidate] = str(error)
    raise sandbox.refuse(level or "off", reasons)
