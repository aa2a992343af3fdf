"""Print the table of a class, the results of a demo and the summary of an export."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from course_lib.grading.graded import (
    OUTCOMES,
    WAITING,
    GradedExercise,
    GradedLesson,
    GradedSubmission,
    outcome_of,
)
from course_lib.plotting.words import counted
from course_lib.workspace.sheet import listed
from course_lib.workspace.text import one_line

if TYPE_CHECKING:
    from course_lib.demo.demo_course import Demo
    from course_lib.grading.exports import Outcome

MOST_LINES = 12
COUNTED = ("matched", "written", "same")  # groups without a list of names
CAPTIONS = {
    "matched": "matched",
    "left_over": "unmatched in this file",
    "unmatched": "unmatched in the gradebook",
    "ambiguous": "ambiguous",
    "unknown": "in --students, not in the gradebook",
    "written": "scores written",
    "same": "already there",
    "kept": "different, kept (see --overwrite)",
    "closed": "closed to changes",
    "unplaced": "graded, without a row",
    "not_graded": "not graded, left blank",
    "above": "above the maximum",
    "zero": "0, since no notebook was handed in",
}
_STYLES = {"correct": "green", "not_attempted": "dim", "not_graded": "yellow"}  # others: red
_SIGNS = [f"{symbol} {word}" for symbol, word in OUTCOMES.values()] + ["⧗ late"]
LEGEND = (
    f"{'  '.join(_SIGNS[:4])}\n{'  '.join(_SIGNS[4:])}\n"
    "text: the answer for a person is graded, still to grade, or left out (–)\n"
    "★: optional, earns no points"
)
_WRITTEN = {"waiting": "to grade", "left blank": "–", "graded": "graded"}


def show(summary: GradedLesson, *, quiet: bool = False) -> None:
    """Print the class to the terminal, or only what is not graded if `quiet`."""
    shown = Group(*_blanks(summary)) if quiet else summary_table(summary)
    if not quiet or summary.blanks:
        Console().print(shown)


def show_demo(demo: Demo, *, quiet: bool = False) -> None:
    """Print the tables of a demo, unless `quiet`, a line per lesson, and where the results are."""
    console = Console()
    for summary in demo.summaries:
        show(summary, quiet=quiet)
    console.print("\nGraded")
    for summary in demo.summaries:
        console.print(f"  {summary.lesson:<18} {_in_a_line(summary)}", soft_wrap=True)
    console.print("\nResults")
    for what, where in places(demo).items():
        console.print(f"  {what:<17} {where}", soft_wrap=True, highlight=False, markup=False)


def _in_a_line(summary: GradedLesson) -> str:
    """Return how many students a lesson has, their points, and how many answers wait."""
    points = [round(s.points, 1) for s in summary.students if s.points is not None]
    waiting = sum(map(len, summary.waiting.values()))
    said = [counted(len(summary.students), "student", "students")]
    if points:
        said.append(f"{min(points):g} to {max(points):g} of {summary.max_points:g} points")
    if waiting:
        said.append(f"{counted(waiting, 'answer', 'answers')} to grade")
    return ", ".join(said)


def demo_as_dict(demo: Demo) -> dict:
    """Return a demo as data for JSON."""
    lessons = [summary.as_dict() for summary in demo.summaries]
    return {"folder": str(demo.folder), "lessons": lessons, "places": places(demo)}


def places(demo: Demo) -> dict[str, str]:
    """Return where to find each result of a demo, as paths relative to the current folder."""
    near = Path(os.path.relpath(demo.folder))
    course = Path(sys.executable).with_name("course")
    return {
        "class report": str(near / "report.html"),
        "feedback": str(near / "feedback" / "STUDENT" / "LESSON" / "LESSON.html"),
        "graded notebooks": str(near / "autograded"),
        "submitted": str(near / "submitted"),
        "gradebook": str(near / "gradebook.db"),
        "formgrader": f"cd {near} && {course} lab, then Nbgrader > Formgrader",
    }


def summary_table(summary: GradedLesson) -> Group:
    """Return a table with a row for each student, followed by what needs attention."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("student", overflow="fold")  # the only column that may wrap
    names = []
    for number, name in enumerate(summary.exercises, start=1):
        star = summary.star(name).strip()
        names.append(f"{number}:{'all together' if name == summary.lesson else name}{star}")
        table.add_column(f"{number}{star}", justify="right", no_wrap=True)
    table.add_column(f"of {summary.max_points:g}", justify="right", no_wrap=True)
    if any(student.late_penalty for student in summary.students):
        table.add_column("late", justify="right", no_wrap=True)
    table.add_column("text", no_wrap=True)
    for student in summary.students:
        table.add_row(*_cells(student, summary))
    students = counted(len(summary.students), "student", "students")
    title = Text(f"\n{summary.lesson}: {students}\n", style="bold")
    legend = Text("\n" + "  ".join(names) + f"\n{LEGEND}", style="dim")
    return Group(title, table, legend, *_notes(summary))


def _cells(student: GradedSubmission, summary: GradedLesson) -> list[Text]:
    name = Text(one_line(student.student) + (" ⧗" if student.late_seconds > 0 else ""))
    if student.problem:
        rest = [Text("?", style="yellow") for _ in summary.exercises]
        return [name, *rest, Text("blank", style="yellow")]
    total = "?" if student.points is None else f"{round(student.points, 1):g}"
    written = [_WRITTEN[state] for state in sorted(set(student.written.values()))]
    cells = [name, *map(_points, student.rows), Text(total)]
    if any(one.late_penalty for one in summary.students):
        lost = f"−{round(student.late_penalty, 1):g}" if student.late_penalty else ""
        cells.append(Text(lost, style="red"))
    return [*cells, Text(", ".join(written))]


def _points(row: GradedExercise) -> Text:
    outcome = outcome_of(row)
    symbol = "✎" if row.by_hand else OUTCOMES[outcome][0]
    points = "" if row.shown is None else f"{round(row.shown, 1):g}"
    points = "?" if row.outcome == WAITING else points
    return Text(f"{symbol} {points}", style=_STYLES.get(outcome, "red"))


def _blanks(summary: GradedLesson) -> Iterator[Text]:
    """Yield the reasons for blanks, each with the students it concerns."""
    blanks = defaultdict(list)
    for student, reasons in summary.blanks.items():
        for exercise, reason in reasons.items():
            blanks[f"{exercise}: {reason}" if exercise else reason].append(student)
    for what, who in blanks.items():
        yield Text(f"blank: {what}: {listed(who)}", style="yellow")


def _notes(summary: GradedLesson) -> list[Text]:
    """Return the reasons for blanks and the notices, each with the students it concerns."""
    notices = defaultdict(list)
    for student in summary.students:
        for notice in student.notices:
            notices[notice].append(student.student)
    lines = [*_blanks(summary)]
    lines += [Text(f"note: {what}: {listed(who)}", style="dim") for what, who in notices.items()]
    if summary.waiting:
        number = sum(map(len, summary.waiting.values()))
        answers = counted(number, "answer", "answers")
        lines.append(
            Text(f"{answers} to grade: open formgrader, or course answers {summary.lesson}")
        )
    if summary.seconds:
        lines.append(Text(f"graded in {summary.seconds:.0f} s", style="dim"))
    return lines


def export_text(outcome: Outcome) -> str:
    """Return what an export wrote or would write."""
    lines = [f"students of {outcome.into}", *_lines(outcome.matching)] if outcome.into else []
    for one in outcome.lessons:
        into = f" into {one_line(one['column'])!r}" if one["column"] else ""
        worth = "" if one["points"] is None else f", {one['points']:g} points"
        lines += [f"{one['lesson']}{into}{worth}", *_lines(one)]
    lines.append(f"would write {outcome.output}" if outcome.dry_run else f"wrote {outcome.output}")
    if outcome.matching.get("unmatched") or outcome.matching.get("ambiguous"):
        lines.append("to match the others, use --students FILE (columns nbgrader_id, lms_id)")
    return "\n".join([*lines, *(one["late"] for one in outcome.lessons if one["late"])])


def _lines(groups: Mapping[str, Any]) -> Iterator[str]:
    """Yield the size of each group, and its names by reason."""
    for group, caption in CAPTIONS.items():
        if group not in groups:
            continue
        yield f"  {caption:<40}{len(groups[group]):>5}"
        by_reason = defaultdict(list)
        for name, reason in ({} if group in COUNTED else groups[group]).items():
            by_reason[reason].append(name)
        for reason, names in list(by_reason.items())[:MOST_LINES]:
            yield "      " + (f"{one_line(reason, 200)}: " if reason else "") + listed(names)
        if len(by_reason) > MOST_LINES:
            yield f"      and {len(by_reason) - MOST_LINES} more; --json lists all"
