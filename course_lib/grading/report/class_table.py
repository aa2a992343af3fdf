"""The class as a table in the terminal."""

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from course_lib.grading.graded import GradedExercise, GradedLesson, GradedSubmission
from course_lib.grading.intake.gate import one_line
from course_lib.plotting.words import counted

OUTCOMES = {
    "correct": ("✓", "right"),
    "incorrect": ("✗", "wrong"),
    "raised": ("!", "raised an error"),
    "stopped": ("∞", "stopped"),
    "not_attempted": ("–", "not attempted"),
    "not_graded": ("?", "not graded"),
}
STOPPED = {"timed_out": "out of time", "out_of_memory": "out of memory", "crashed": "crashed"}
_STYLES = {"correct": "green", "not_attempted": "dim", "not_graded": "yellow"}  # red if none
LEGEND = (
    "✓ right  ✗ wrong  ! error  ∞ stopped  – not attempted  ? not graded  ⧗ late\n"
    "text: the written answer waits for a person, is graded, or was left out (–)"
    "\n★: optional, counts no points"
)
_WRITTEN = {"waiting": "waits", "left blank": "–", "graded": "graded"}


def outcome_of(row: GradedExercise) -> str:
    """Return the key of `OUTCOMES` that a row counts under."""
    outcome = "stopped" if row.outcome in STOPPED else row.outcome
    return outcome if outcome in OUTCOMES else "not_graded"


def show(summary: GradedLesson) -> None:
    """Print the class to the terminal."""
    Console().print(summary_table(summary))


def summary_table(summary: GradedLesson) -> Group:
    """Return a table with a row for each student, followed by what needs a person."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("student", no_wrap=True, overflow="ellipsis")
    for name in summary.exercises:
        title = name.replace("_", "\n") + summary.star(name)
        table.add_column(title, justify="right", vertical="bottom")
    table.add_column(f"of {summary.max_points:g}", justify="right")
    table.add_column("text")
    for student in summary.students:
        table.add_row(*_cells(student, summary))
    students = counted(len(summary.students), "student", "students")
    title = Text(f"\n{summary.lesson}: {students}\n", style="bold")
    return Group(title, table, Text(f"\n{LEGEND}", style="dim"), *_notes(summary))


def _cells(student: GradedSubmission, summary: GradedLesson) -> list[Text]:
    name = Text(one_line(student.student) + (" ⧗" if student.late_seconds > 0 else ""))
    if student.problem:
        rest = [Text("?", style="yellow") for _ in summary.exercises]
        return [name, *rest, Text("blank", style="yellow"), Text("")]
    total = "?" if student.points is None else f"{student.points:g}"
    written = [_WRITTEN[state] for state in sorted(set(student.written.values()))]
    return [name, *map(_points, student.rows), Text(total), Text(", ".join(written))]


def _points(row: GradedExercise) -> Text:
    outcome = outcome_of(row)
    symbol = "✎" if row.by_hand else OUTCOMES[outcome][0]
    points = "" if row.shown is None else f"{row.shown:.3g}"
    return Text(f"{symbol} {points}", style=_STYLES.get(outcome, "red"))


def _notes(summary: GradedLesson) -> list[Text]:
    lines = []
    for student in summary.students:
        name = one_line(student.student)
        for exercise, reason in student.blanks.items():
            where = f"{name}, {exercise}" if exercise else name
            lines.append(Text(f"blank: {where}: {reason}", style="yellow"))
        lines += [Text(f"note: {name}: {n}", style="dim") for n in student.notices]
    if summary.waiting:
        answers = sum(map(len, summary.waiting.values()))
        lines.append(Text(f"{answers} written answer(s) wait for a person: open formgrader"))
    if summary.seconds:
        lines.append(Text(f"graded in {summary.seconds:.0f} s", style="dim"))
    return lines
