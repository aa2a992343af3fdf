"""The outcomes of an exercise, as the table in the terminal and the class report show them."""

from __future__ import annotations

from course_lib.grading.graded import GradedExercise

OUTCOMES = {
    "correct": ("✓", "right"),
    "incorrect": ("✗", "wrong"),
    "raised": ("!", "raised an error"),
    "stopped": ("∞", "stopped"),
    "not_attempted": ("–", "not attempted"),
    "not_graded": ("?", "not graded"),
}
STOPPED = {"timed_out": "out of time", "out_of_memory": "out of memory", "crashed": "crashed"}


def outcome_of(row: GradedExercise) -> str:
    """Return the key of `OUTCOMES` that a row counts under."""
    outcome = "stopped" if row.outcome in STOPPED else row.outcome
    return outcome if outcome in OUTCOMES else "not_graded"
