"""What an executed check cell is worth, and why it may be worth nothing yet.

The only place that turns a cell's outputs into points; nbgrader's rule (any stderr is 0,
anything that is not a number is full marks) does not reach the gradebook.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

REPORT = "application/vnd.course.report+json"
TIMEOUT = "CellTimeoutError"


@dataclass(frozen=True)
class Verdict:
    """Points for one exercise, or None and the reason why there are none."""

    exercise: str
    points: float | None
    max_points: float
    outcome: str
    reason: str | None = None
    mistake: str | None = None
    findings: tuple[str, ...] = ()


def is_check(cell: Mapping) -> bool:
    """Whether a cell is graded by machine: code, graded, not an answer."""
    about = cell["metadata"].get("nbgrader", {})
    return cell["cell_type"] == "code" and bool(about.get("grade")) and not about.get("solution")


def judge_cell(cell: Mapping) -> Verdict:
    """Judge one executed check cell by the report and the points that it put out.

    A time-out costs the exercise its points; every other fault leaves it ungraded.
    """
    about = cell["metadata"]["nbgrader"]
    exercise, most = about["grade_id"], float(about["points"])
    outputs = cell.get("outputs", [])
    if not cell.get("execution_count") and not outputs:
        return _ungraded(exercise, most, "the check was not run")
    if errors := [o.get("ename") for o in outputs if o["output_type"] == "error"]:
        return _judge_errors(exercise, most, errors)
    reports = [r for o in outputs if isinstance(r := o.get("data", {}).get(REPORT), Mapping)]
    report = reports[-1] if reports else {}
    if report.get("exercise") != exercise:
        return _ungraded(exercise, most, "the check left no report")
    mistake = report.get("mistake")
    known = {
        "mistake": mistake if isinstance(mistake, str) else None,
        "findings": tuple(_messages(report.get("findings"))),
    }
    outcome = str(report.get("outcome"))
    if outcome == "checker_failed":
        reason = "the check itself failed, not the student's code: report it to the course"
        return Verdict(exercise, None, most, outcome, reason, **known)
    points = _number([o for o in outputs if o["output_type"] == "execute_result"])
    if points is None or not 0 <= points <= most + 1e-9:
        return _ungraded(exercise, most, "the check's last value is not a number of points")
    if not _agree(points, report.get("points")):
        return _ungraded(exercise, most, "the check's value and its report disagree")
    return Verdict(exercise, min(points, most), most, outcome, None, **known)


def _judge_errors(exercise: str, most: float, names: list) -> Verdict:
    if TIMEOUT in names:
        reason = "stopped: the check did not end in time (an endless loop?)"
        return Verdict(exercise, 0.0, most, "timed_out", reason)
    what = str(names[0])[:80]
    return _ungraded(exercise, most, f"the check cell ended with {what}: look at the notebook")


def _ungraded(exercise: str, most: float, reason: str) -> Verdict:
    return Verdict(exercise, None, most, "not_graded", reason)


def _number(results: list[Mapping]) -> float | None:
    """The finite number that a check cell's single result shows, or None."""
    if len(results) != 1:
        return None
    text = results[0].get("data", {}).get("text/plain", "")
    try:
        value = float("".join(text) if isinstance(text, list) else text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _agree(points: float, reported: object) -> bool:
    return isinstance(reported, int | float) and math.isclose(points, reported, abs_tol=1e-6)


def _messages(findings: object) -> list[str]:
    if not isinstance(findings, list):
        return []
    return [str(f.get("message", "")) for f in findings if isinstance(f, Mapping)]
