"""What a check cell holds after grading: the report as text, page and data, and the points."""

from __future__ import annotations

import html

from nbformat import NotebookNode

from course_lib.checks.judge.html import block, paragraph
from course_lib.checks.judge.points import Points
from course_lib.checks.judge.report import Report
from course_lib.grading.graded_cells import REPORT
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.sanitize import made_output, plain_text, sanitize_tree

# What ended an exercise before it could be judged: the outcome, and what its student reads.
ENDINGS = {
    "time": (
        "timed_out",
        "it did not end within {seconds:.0f} s of processor time (an endless loop?)",
    ),
    "waiting": (
        "timed_out",
        "it did not end within {seconds:.0f} s in which it only slept or waited",
    ),
    "memory": ("out_of_memory", "it used more than {memory:.1f} GB of memory"),
    "processes": ("crashed", "it started more than {processes} processes"),
    "disk": ("crashed", "it wrote more than {disk:.0f} MB or 2,000 files"),
    "output": ("timed_out", "it printed more than {output:.0f} MB"),
    "crash": ("crashed", "it ended the kernel ({how})"),
    "silent": ("crashed", "after it ran, this notebook's kernel gave no readable answer"),
}


def outputs_of_ending(name: str, why: str, points: float, limits: Limits) -> list[NotebookNode]:
    """What the check cell of an exercise shows that ended before it could be judged.

    Args:
        name: of the exercise.
        why: key of `ENDINGS`.
        points: of the exercise; none of them are given.
        limits: what it was held to.
    """
    outcome, words = ENDINGS[why]
    sentence = words.format(
        seconds=limits.cell_seconds,
        memory=limits.memory / 1e9,
        processes=limits.processes,
        disk=limits.disk / 1e6,
        output=limits.output / 1e6,
        how="a crash, or an exit",
    )
    message = f"{name}: stopped, because {sentence}. The other exercises are judged as usual."
    report = {
        "exercise": name,
        "outcome": outcome,
        "score": 0.0,
        "points": 0.0,
        "max_points": float(points),
        "mistake": None,
        "findings": [{"id": outcome, "message": message, "hint": "", "part": "values"}],
    }
    fragment = block("bad", [paragraph(html.escape(message))], announced=True)
    return _outputs(message, fragment, report, 0.0)


def outputs_of(report: Report) -> list[NotebookNode]:
    """What a check cell shows of a report: the report, and the points as its value."""
    points = None if report.outcome == "checker_failed" else report.counted
    return _outputs(report.text(), report.html(), report.as_dict(), points)


def _outputs(text: str, fragment: str, report: dict, points: float | None) -> list[NotebookNode]:
    data = {"text/plain": plain_text(text), "text/html": plain_text(fragment)}
    data[REPORT] = sanitize_tree(report)
    outputs = [made_output("display_data", data=data, metadata={})]
    if points is not None:
        value = Points(points)._repr_mimebundle_()
        result = {"data": value, "metadata": {}, "execution_count": None}
        outputs.append(made_output("execute_result", **result))
    return outputs
