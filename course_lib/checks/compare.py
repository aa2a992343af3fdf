"""Comparisons: given what was expected and what was recorded, what is wrong, if anything?

A comparison gets the probe, the expected result and the record of the outputs, all of the right
type and shape already, and returns a `Problem` or None. A catalogue module may bring its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.checks.probe import Probe
from course_lib.checks.record import Recorded


@dataclass(frozen=True)
class Problem:
    """What is wrong: an id for tests and class reports, a fact, and one question or pointer."""

    id: str
    message: str
    hint: str = ""


def tolerance_for(probe: Probe, recorded: Recorded) -> float:
    """1e-7 in float64, 1e-4 in float32, and what the format holds in half precision."""
    if probe.tolerance is not None:
        return probe.tolerance
    return {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}.get(recorded.dtype, 1e-7)


def arrays_agree(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Equal shapes and equal numbers within the tolerance; NaN equals NaN, inf equals inf."""
    if ours.shape != theirs.shape:
        return False
    if ours.dtype.kind == "b" and theirs.dtype.kind == "b":
        return bool(np.array_equal(ours, theirs))
    with np.errstate(all="ignore"):
        return bool(
            np.allclose(
                theirs.astype(complex) if theirs.dtype.kind == "c" else theirs.astype(float),
                ours.astype(float),
                rtol=tolerance,
                atol=tolerance,
                equal_nan=True,
            )
        )


def close(probe: Probe, expected: Any, recorded: Recorded) -> Problem | None:
    """The recorded numbers are the expected ones, within the usual tolerance."""
    if isinstance(expected, dict | tuple):
        items = expected.items() if isinstance(expected, dict) else enumerate(expected)
        problems = (close(probe, part, recorded.items[key]) for key, part in items)
        return next((problem for problem in problems if problem), None)
    if expected is None:
        return None
    expected = np.asarray(expected)
    if arrays_agree(expected, recorded.data, tolerance_for(probe, recorded)):
        return None
    if recorded.data.dtype.kind in "fc" and np.isnan(recorded.data).any():
        return Problem("not_a_number", "Your result contains NaN.", _WHERE_NAN)
    return Problem("wrong_values", probe.says)


_WHERE_NAN = "Which step divides 0 by 0, or subtracts inf from inf?"

COMPARISONS: dict[str, Callable] = {"close": close}
