"""Read the result of a check from its cell, as `write_checks` wrote it.

Only this module turns a cell's outputs into points. It replaces nbgrader's rule, by which any
stderr gives 0 points and any result that is not a number gives full marks.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from nbformat import NotebookNode
from nbformat.v4 import to_notebook

from course_lib.grading.cell_kinds import check_cells, grade_id, is_check, is_plain_test, is_used
from course_lib.grading.graded import GradedExercise, GradedSubmission

REPORT = "application/vnd.course.report+json"
TIMEOUT = "CellTimeoutError"
AN_EARLIER_VERSION = "an earlier version"  # without a date


def read_notebook(notebook: NotebookNode) -> GradedSubmission:
    """Read the checks of a graded notebook, the notices in its metadata, and how setup ended."""
    notices = notebook["metadata"].get("course", {}).get("notices", [])
    stopped = (
        f"the cell `{grade_id(cell)}` stopped: {o.get('ename')}: {o.get('evalue')}"[:300]
        for cell in notebook["cells"]
        if is_used(cell) and cell["metadata"].get("nbgrader", {}).get("locked")
        for o in ([] if is_check(cell) else cell.get("outputs", []))
        if o["output_type"] == "error"
    )
    rows = tuple(read_check(cell) for cell in check_cells(notebook))
    return GradedSubmission("", rows, notices=(*notices, *stopped))


def earlier_versions(notebook: NotebookNode | None) -> dict[str, list[str]]:
    """Return, by cell, the version that a person gave points or a comment, and the comment.

    Only cells whose answers have changed since then are listed.
    """
    return notebook["metadata"].get("course", {}).get("earlier", {}) if notebook else {}


def read_check(cell: Mapping) -> GradedExercise:
    """Read the report and the points from the output of an executed check cell.

    A time-out costs the exercise its points. Every other fault leaves it ungraded. An optional
    exercise always counts 0 of 0 points.
    """
    about = cell["metadata"]["nbgrader"]
    blank = GradedExercise(about["grade_id"], None, float(about["points"]), "not_graded")
    read = _read(cell, blank)
    return replace(read, points=0.0) if read.optional else read


def _read(cell: Mapping, blank: GradedExercise) -> GradedExercise:
    outputs, most = cell.get("outputs", []), blank.max_points
    if not cell.get("execution_count") and not outputs:
        return replace(blank, reason="the check was not run")
    errors = [o for o in outputs if o["output_type"] == "error"]
    if is_plain_test(cell):
        return _as_nbgrader_grades(cell, blank, errors)
    if any(error.get("ename") == TIMEOUT for error in errors):
        reason = "stopped: the check did not end in time (an endless loop?)"
        return replace(blank, points=0.0, outcome="timed_out", reason=reason)
    if errors:
        what = str(errors[0].get("ename"))[:80]
        return replace(blank, reason=f"the check cell ended with {what}: look at the notebook")
    reports = [r for o in outputs if isinstance(r := o.get("data", {}).get(REPORT), Mapping)]
    report = reports[-1] if reports else {}
    if report.get("exercise") != blank.exercise:
        return replace(blank, reason="the check left no report")
    outcome, mistake, findings = map(report.get, ("outcome", "mistake", "findings"))
    findings = findings if isinstance(findings, list) else []
    read = replace(
        blank,
        outcome=str(outcome),
        mistake=mistake if isinstance(mistake, str) else None,
        message=next((str(f.get("message", "")) for f in findings if isinstance(f, Mapping)), None),
    )
    if outcome == "checker_failed":
        reason = "the check itself failed, not the student's code: report it to the course"
        return replace(read, reason=reason)
    results = [o for o in outputs if o["output_type"] == "execute_result"]
    shown = [result.get("data", {}).get("text/plain", "") for result in results]
    try:
        points = float("".join(shown[0])) if len(shown) == 1 else math.nan
    except (TypeError, ValueError):
        points = math.nan
    if not 0 <= points <= most + 1e-9:
        return replace(blank, reason="the check's last value is not a number of points")
    told = report.get("points")
    if most and not (isinstance(told, int | float) and math.isclose(points, told, abs_tol=1e-6)):
        return replace(blank, reason="the check's value and its report disagree")
    return replace(read, points=min(points, most))


def _as_nbgrader_grades(cell: Mapping, blank: GradedExercise, errors: list) -> GradedExercise:
    """Grade an ordinary test as nbgrader does: 0 after an error, else its result or full marks."""
    from nbgrader.utils import determine_grade

    (whole,) = to_notebook({"cells": [cell], "metadata": {}}).cells  # with lines joined
    points, most = determine_grade(whole)
    outcome = "correct" if points is not None and points >= most else "incorrect"
    message = None
    if errors:
        message = f"{errors[0].get('ename')}: {errors[0].get('evalue')}"[:300]
        outcome = "timed_out" if errors[0].get("ename") == TIMEOUT else outcome
    return replace(blank, points=points, outcome=outcome, message=message)
