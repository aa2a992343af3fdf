"""Read the gradebook, the graded notebooks and the notes of a run back as plain rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from nbformat import from_dict
from nbgrader.api import MissingEntry

from course_lib.grading.course import Course
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.verdict import Verdict, is_check, judge_cell

COMPLETE, INCOMPLETE = 0, 3


@dataclass(frozen=True)
class Row:
    """One student's result in one exercise; points None means not graded."""

    student: str
    exercise: str
    points: float | None
    max_points: float
    outcome: str
    mistake: str | None = None
    reason: str | None = None
    by_hand: bool = False
    message: str | None = None


@dataclass(frozen=True)
class StudentRecord:
    """One student's lesson as a whole."""

    student: str
    rows: tuple[Row, ...]
    written: dict[str, str]  # grade_id -> "waiting", "left blank" or "graded"
    written_points: float
    late_seconds: float
    problem: str | None = None
    notices: tuple[str, ...] = ()
    seconds: float = 0.0
    same_as_course: tuple[str, ...] = ()  # exercises; for the record, not for a look

    @property
    def points(self) -> float | None:
        """Points of the machine-graded exercises; None where none of them is graded."""
        graded = [row.points for row in self.rows if row.points is not None]
        return sum(graded) if graded else None

    @property
    def blanks(self) -> dict[str, str]:
        """Exercises that are not graded, with the reason; "" for the whole submission."""
        if self.problem:
            return {"": self.problem}
        return {row.exercise: row.reason or "" for row in self.rows if row.points is None}


@dataclass(frozen=True)
class GradeSummary:
    """A graded lesson: rows of student and exercise, what is blank, what waits for a person."""

    lesson: str
    students: tuple[StudentRecord, ...]
    exercises: tuple[str, ...]
    max_points: float
    written_points: float = 0.0
    seconds: float = 0.0

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, student by student."""
        return tuple(row for student in self.students for row in student.rows)

    @property
    def waiting(self) -> dict[str, list[str]]:
        """Written answers that a person has yet to grade, by student."""
        found = {
            s.student: [name for name, state in s.written.items() if state == "waiting"]
            for s in self.students
        }
        return {student: names for student, names in found.items() if names}

    @property
    def blanks(self) -> dict[str, dict[str, str]]:
        """What is not graded although a machine should: student -> exercise -> reason."""
        return {s.student: s.blanks for s in self.students if s.blanks}

    @property
    def exit_code(self) -> int:
        """0 if everything a machine can grade is graded, else 3."""
        return INCOMPLETE if self.blanks else COMPLETE

    def as_dict(self) -> dict:
        """JSON-able: everything the table shows, and the reasons."""
        return {
            **asdict(self),
            "rows": [asdict(row) for row in self.rows],
            "waiting": self.waiting,
            "blanks": self.blanks,
            "exit_code": self.exit_code,
        }


def read_records(course: Course, lesson: str) -> GradeSummary:
    """Everything known about a lesson, from gradebook, graded notebooks and notes."""
    entries = {e.student: e for e in Ledger(course.ledger_path(lesson)).entries()}
    with course.gradebook() as gradebook:
        try:
            notebook = gradebook.find_notebook(lesson, lesson)
        except MissingEntry:
            return GradeSummary(lesson, (), (), 0.0)
        cells = {cell.name: cell for cell in notebook.grade_cells}
        order = [cell.name for cell in notebook.source_cells if cell.name in cells]
        written = {name for name in order if cells[name].cell_type == "markdown"}
        exercises = tuple(name for name in order if name not in written)
        submissions = gradebook.assignment_submissions(lesson)
        students = [
            _student(course, lesson, submission, exercises, entries)
            for submission in sorted(submissions, key=lambda s: s.student.id)
        ]
        points = {name: cells[name].max_score for name in order}
    return GradeSummary(
        lesson,
        tuple(students),
        exercises,
        sum(points[name] for name in exercises),
        sum(points[name] for name in written),
    )


def _student(course, lesson, submission, exercises, entries) -> StudentRecord:
    student = submission.student.id
    entry = entries.get(student, Entry(student))
    notebook = course.read_graded(student, lesson)
    verdicts, marked = _read_graded(notebook)
    grades = {g.cell.name: g for nb in submission.notebooks for g in nb.grades}
    rows = [_row(student, grades[name], verdicts.get(name)) for name in exercises if name in grades]
    written = {n: _written_state(g) for n, g in grades.items() if n not in exercises}
    problem = entry.problem
    if problem is None and notebook is None:
        problem = "not graded yet"
    flags = [f"{name}: {reason}" for name, reason in entry.flagged.items()]
    return StudentRecord(
        student,
        tuple(rows),
        {} if problem else written,
        sum(g.score for name, g in grades.items() if name in written),
        submission.total_seconds_late,
        problem,
        tuple(dict.fromkeys([*entry.notices, *marked, *flags])),
        entry.seconds.get("total", 0.0),
        entry.same,
    )


def _row(student: str, grade, verdict: Verdict | None) -> Row:
    by_hand = grade.manual_score is not None
    points = grade.manual_score if by_hand else grade.auto_score
    if verdict is None:
        reason = None if points is not None else "no graded notebook"
        return Row(
            student, grade.cell.name, points, grade.max_score, "not_graded", None, reason, by_hand
        )
    return Row(
        student,
        verdict.exercise,
        points,
        grade.max_score,
        verdict.outcome,
        verdict.mistake,
        verdict.reason,
        by_hand,
        verdict.findings[0] if verdict.findings else None,
    )


def _written_state(grade) -> str:
    if grade.manual_score is not None:
        return "graded"
    return "waiting" if grade.needs_manual_grade else "left blank"


def _read_graded(notebook: dict | None) -> tuple[dict[str, Verdict], list[str]]:
    """Verdicts of a graded notebook by exercise, and the notices kept in its metadata."""
    if notebook is None:
        return {}, []
    verdicts = [judge_cell(from_dict(cell)) for cell in notebook["cells"] if is_check(cell)]
    notices = notebook["metadata"].get("course", {}).get("notices", [])
    return {verdict.exercise: verdict for verdict in verdicts}, list(notices)
