"""The scores of a lesson as nbgrader counts them, and why a student has none.

The score is that of nbgrader's own exporter: manual before automatic points, extra credit, less
the late penalty, never below 0. A part that no machine and no person has graded makes the score
None, where nbgrader would count it as 0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nbgrader.api import MissingEntry

from course_lib.errors import ExportError
from course_lib.grading.course import Course
from course_lib.grading.exports.shown import listed
from course_lib.grading.records import read_records

GRADED, WAITING, BLANK, ABSENT = "graded", "waiting", "not graded", "nothing handed in"
_WAITS = "a written answer waits for a person: grade it in formgrader, or export with --partial"


@dataclass(frozen=True)
class Person:
    """A student of the gradebook."""

    id: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""


@dataclass(frozen=True)
class LessonGrade:
    """One student's lesson.

    `exercises` and `written` hold points, None where not graded; `so_far` is the score with what
    is not graded left out of the sum.
    """

    student: str
    state: str
    exercises: dict[str, float | None] = field(default_factory=dict)
    written: dict[str, float | None] = field(default_factory=dict)
    so_far: float | None = None
    late_seconds: float = 0.0
    reason: str = ""

    def score(self, partial: bool = False) -> float | None:
        """The score, None if not graded; with `partial` written answers may still wait."""
        counts = self.state == GRADED or (partial and self.state == WAITING)
        return self.so_far if counts else None


@dataclass(frozen=True)
class LessonGrades:
    """A lesson of the gradebook: what it is worth, and every student who handed in."""

    lesson: str
    title: str
    max_points: float
    exercises: tuple[str, ...]
    students: tuple[LessonGrade, ...]

    @cached_property
    def by_student(self) -> dict[str, LessonGrade]:
        """Grades by the student's id."""
        return {grade.student: grade for grade in self.students}

    def of(self, student: str) -> LessonGrade:
        """A student's grade, whether or not they handed in."""
        return self.by_student.get(student) or LessonGrade(student, ABSENT, reason=ABSENT)


def read_people(course: Course) -> list[Person]:
    """Everybody in the gradebook, in order of their ids."""
    with course.gradebook() as gradebook:
        people = [
            Person(s.id, s.last_name or "", s.first_name or "", s.email or "")
            for s in gradebook.students
        ]
    return sorted(people, key=lambda person: person.id)


def need_gradebook(course: Course) -> None:
    """Look for the gradebook without making an empty one.

    Raises:
        ExportError: there is none.
    """
    kind, _, path = course.coursedir("").db_url.partition(":///")
    if kind == "sqlite" and not Path(path).is_file():
        raise ExportError(f"there is no gradebook {path}; grade first: course grade LESSON")


def graded_lessons(course: Course) -> list[str]:
    """Lessons for which someone is in the gradebook.

    Raises:
        ExportError: there is none.
    """
    with course.gradebook() as gradebook:
        found = sorted(a.name for a in gradebook.assignments if a.num_submissions)
    if not found:
        raise ExportError(f"{course.root}: no lesson is graded yet: course grade LESSON")
    return found


def read_lesson(course: Course, lesson: str) -> LessonGrades:
    """Read a lesson from the gradebook.

    Raises:
        ExportError: nobody's submission of it is in the gradebook.
    """
    with course.gradebook() as gradebook:
        try:
            cells = _cells(gradebook.find_assignment(lesson))
        except MissingEntry:
            cells = {}
        submissions = gradebook.assignment_submissions(lesson) if cells else []
        if not submissions:
            others = listed(a.name for a in gradebook.assignments if a.num_submissions)
            has = f" (graded: {others})" if others else ""
            raise ExportError(f"{lesson} is not graded yet{has}: course grade {lesson}")
        students = sorted((_read(s, cells) for s in submissions), key=lambda g: g.student)
    if any(grade.state == BLANK for grade in students):
        students = _with_reasons(course, lesson, students)
    exercises = tuple(name for name, (_, is_written) in cells.items() if not is_written)
    points = sum(points for points, _ in cells.values())
    return LessonGrades(lesson, _title(course, lesson), points, exercises, tuple(students))


def _cells(assignment) -> dict[str, tuple[float, bool]]:
    """Points of each graded cell and whether a person grades it, in the notebooks' order."""
    found = {}
    for notebook in sorted(assignment.notebooks, key=lambda nb: nb.name):
        place = {cell.name: n for n, cell in enumerate(notebook.source_cells)}
        graded = [*notebook.grade_cells, *notebook.task_cells]
        for cell in sorted(graded, key=lambda cell: place.get(cell.name, 0)):
            found[cell.name] = (cell.max_score, cell.cell_type != "code")
    return found


def _read(submission, cells: dict[str, tuple[float, bool]]) -> LessonGrade:
    total, points = 0.0, dict.fromkeys(cells)
    for notebook in submission.notebooks:
        for grade in notebook.grades:
            by_hand = grade.manual_score is not None
            waits = cells[grade.cell.name][1] and grade.needs_manual_grade and not by_hand
            if not waits and (by_hand or grade.auto_score is not None):
                points[grade.cell.name] = grade.score
                total += grade.score
        total -= notebook.late_submission_penalty or 0.0
    exercises = {name: points[name] for name in cells if not cells[name][1]}
    written = {name: points[name] for name in cells if cells[name][1]}
    waiting = [name for name, value in written.items() if value is None]
    ungraded = [name for name, value in exercises.items() if value is None]
    state = BLANK if ungraded else WAITING if waiting else GRADED
    reasons = {BLANK: f"not graded: {', '.join(ungraded)}", WAITING: _WAITS, GRADED: ""}
    student, late = submission.student.id, float(submission.total_seconds_late)
    score = None if state == BLANK else max(0.0, total)
    return LessonGrade(student, state, exercises, written, score, late, reasons[state])


def _with_reasons(course: Course, lesson: str, students: list[LessonGrade]) -> list[LessonGrade]:
    """Say why a student is blank, as the table of `course grade` says it."""
    from dataclasses import replace

    blanks = read_records(course, lesson).blanks

    def reason(grade: LessonGrade) -> str:
        known = blanks.get(grade.student, {})
        parts = [f"{name}: {why}" if name else why for name, why in known.items() if why]
        return "; ".join(parts) or grade.reason

    return [replace(g, reason=reason(g)) if g.state == BLANK else g for g in students]


def _title(course: Course, lesson: str) -> str:
    """The heading of the released notebook; "" where it cannot be read."""
    try:
        path = course.step("release") / lesson / f"{lesson}.ipynb"
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
        heading = "".join(first).splitlines()[0]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return heading.lstrip("# ").strip() if heading.startswith("#") else ""
