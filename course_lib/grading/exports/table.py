"""The plain table: one row a student, the columns of each lesson side by side."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.grading.exports.grades import Person
from course_lib.grading.exports.outcome import LessonOutcome
from course_lib.grading.exports.sheet import table_bytes
from course_lib.grading.graded import ABSENT, GradedLesson

ABOUT = ("student", "last_name", "first_name", "email")
PER_LESSON = ("written", "total", "max", "late_seconds", "state", "reason")


def grades_table(
    people: Sequence[Person], lessons: Sequence[GradedLesson], *, partial: bool = False
) -> bytes:
    """The table as a file in UTF-8; what is not graded is blank, what is optional left out.

    Columns of a lesson are called LESSON/EXERCISE and LESSON/written ... LESSON/reason.
    """
    header: list[str | float | None] = [*ABOUT]
    for grades in lessons:
        header += [f"{grades.lesson}/{name}" for name in (*_counted(grades), *PER_LESSON)]
    rows = [header]
    for person in people:
        about = (person.id, person.last_name, person.first_name, person.email)
        rows.append([*about, *(c for g in lessons for c in _cells(g, person.id, partial))])
    return table_bytes(rows)


def _counted(grades: GradedLesson) -> list[str]:
    """The exercises with points; one that is optional has no column."""
    return [name for name, most in grades.points_by_exercise.items() if most]


def _cells(grades: GradedLesson, student: str, partial: bool) -> list[str | float | None]:
    grade = grades.of(student)
    scores = {row.exercise: row.score for row in grade.rows}
    points = [scores.get(name) for name in _counted(grades)]
    written = [answer.score for answer in grade.answers if answer.score is not None]
    by_hand = sum(written) if written and len(written) == len(grade.answers) else None
    late = None if grade.state == ABSENT else grade.late_seconds
    reason = "" if grade.reason == grade.state else grade.reason
    score = grade.score(partial)
    return [*points, by_hand, score, grades.all_points, late, grade.state, reason]


def table_outcomes(
    people: Sequence[Person], lessons: Sequence[GradedLesson], *, partial: bool = False
) -> tuple[LessonOutcome, ...]:
    """Who has a total in the table, and who has none."""
    found = []
    for grades in lessons:
        scored = [p.id for p in people if grades.of(p.id).score(partial) is not None]
        blank = {p.id: grades.of(p.id).reason for p in people if p.id not in set(scored)}
        outcome = LessonOutcome(
            grades.lesson, points=grades.all_points, written=scored, not_graded=blank
        )
        found.append(outcome)
    return tuple(found)
