"""The steps of an export: read the gradebook, fill an LMS's file or make a table, write it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from course_lib.grading.adapters.nbgrader import assignments_of, students_of
from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.exports.lms import Assignment, closed, read_layout
from course_lib.grading.exports.matching import match_lessons, match_students, read_mapping
from course_lib.grading.exports.outcome import LessonOutcome, Outcome
from course_lib.grading.exports.sheet import (
    Sheet,
    as_csv,
    number_text,
    parse_number,
    plain_cell,
    read_sheet,
    write_new,
)
from course_lib.grading.graded import ABSENT, GradedLesson
from course_lib.grading.report.read_grades import read_lesson
from course_lib.workspace.errors import ExportError

ABOUT = ("student", "last_name", "first_name", "email")
PER_LESSON = ("written", "total", "max", "late_seconds", "state", "reason")


@dataclass(frozen=True)
class ExportRequest:
    """What to export: the options of `course export`, whose help explains them.

    `lessons` None means every graded lesson. `columns` are the columns of --map by lesson.
    """

    to: str = "csv"
    lessons: Sequence[str] | None = None
    into: Path | None = None
    match: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    students: Path | None = None
    scale: bool = False
    overwrite: bool = False
    output: Path | None = None
    partial: bool = False
    force: bool = False
    dry_run: bool = False


def export(root: Path, request: ExportRequest) -> Outcome:
    """Write the grades of a course for people or for an LMS.

    Args:
        root: the course folder. The table is written to grades.csv there if no output is named.
        request: what to export. FILE.csv from an LMS becomes FILE_filled.csv beside it.

    Returns:
        What was written, and who got no score and why.

    Raises:
        GradingError: nothing was written. The message names the remedy.
    """
    if request.to != "csv" and request.into is None:
        raise ExportError(
            f"{request.to.title()} takes its own file back: download its gradebook as CSV and "
            "name it with --into FILE"
        )
    if request.to == "csv" and (request.into or request.match or request.columns):
        raise ExportError("--into, --match and --map need --to canvas, moodle or gradescope")
    course = Course(root)
    with quiet_nbgrader():
        people, lessons = _read_gradebook(course, request)
    if request.into is not None:
        return _fill_file(request.into, request, [student for student, *_ in people], lessons)
    output = request.output or course.root / "grades.csv"
    if not request.dry_run:
        table = grades_table(people, lessons, partial=request.partial)
        write_new(output, table, force=request.force)
    outcomes = tuple(LessonOutcome(one.lesson, points=one.all_points) for one in lessons)
    for outcome, lesson in zip(outcomes, lessons, strict=True):
        for student, *_ in people:
            grade = lesson.of(student)
            if grade.score(request.partial) is None:
                outcome.not_graded[student] = grade.reason
            else:
                outcome.written.append(student)
    return Outcome(output, request.dry_run, outcomes)


def _read_gradebook(
    course: Course, request: ExportRequest
) -> tuple[list[tuple[str, ...]], list[GradedLesson]]:
    """Return everyone, with the columns of `ABOUT`, and the lessons."""
    kind, _, path = course.coursedir("").db_url.partition(":///")
    if kind == "sqlite" and not Path(path).is_file():  # opening it would make an empty one
        raise ExportError(f"there is no gradebook {path}; grade first: course grade LESSON")
    with course.gradebook() as gradebook:
        people = [
            (one.id, one.last_name or "", one.first_name or "", one.email or "")
            for one in students_of(gradebook)
        ]
        graded = sorted(one.name for one in assignments_of(gradebook) if one.num_submissions)
    names = request.lessons or graded or ["LESSON"]
    for name in names:
        if name not in graded:
            has = ", ".join(graded) or "no lesson"
            raise ExportError(f"{name} is not graded yet (graded: {has}): course grade {name}")
    if stray := sorted(set(request.columns) - set(names)):
        raise ExportError(f"--map names {stray[0]}, which is not exported: add it to the lessons")
    lessons = [read_lesson(course, name, brief=True) for name in names]
    return sorted(people), [replace(one, title=_heading(course, one.lesson)) for one in lessons]


def _heading(course: Course, lesson: str) -> str:
    """Return the heading of the released notebook; "" where it cannot be read."""
    try:
        path = course.step("release") / lesson / f"{lesson}.ipynb"
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
        heading = "".join(first).splitlines()[0]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return heading.lstrip("# ").strip() if heading.startswith("#") else ""


def grades_table(
    people: Sequence[Sequence[str]], lessons: Sequence[GradedLesson], *, partial: bool = False
) -> str:
    """Return the table as CSV: a row for each student, and the columns of each lesson.

    What is not graded is blank. Optional exercises have no column.
    """
    header = [*ABOUT]
    for lesson in lessons:
        header += [f"{lesson.lesson}/{name}" for name in (*_counted(lesson), *PER_LESSON)]
    rows = [header]
    for person in people:
        cells = [cell for lesson in lessons for cell in _cells(lesson, person[0], partial)]
        rows.append([plain_cell(cell) for cell in (*person, *cells)])
    return as_csv(rows)


def _counted(lesson: GradedLesson) -> list[str]:
    """Return the exercises that are worth points."""
    return [name for name, most in lesson.points_by_exercise.items() if most]


def _cells(lesson: GradedLesson, student: str, partial: bool) -> list[str | float | None]:
    grade = lesson.of(student)
    scores = {row.exercise: row.score for row in grade.rows}
    points = [scores.get(name) for name in _counted(lesson)]
    written = [answer.score for answer in grade.answers if answer.score is not None]
    by_hand = sum(written) if written and len(written) == len(grade.answers) else None
    late = None if grade.state == ABSENT else grade.late_seconds
    reason = "" if grade.reason == grade.state else grade.reason
    score = grade.score(partial)
    return [*points, by_hand, score, lesson.all_points, late, grade.state, reason]


def _fill_file(
    into: Path, request: ExportRequest, students: Sequence[str], lessons: Sequence[GradedLesson]
) -> Outcome:
    """Write the LMS's file with the scores of some lessons."""
    output = request.output or into.with_name(f"{into.stem}_filled{into.suffix or '.csv'}")
    if output.exists() and into.exists() and output.samefile(into):
        raise ExportError(f"{output} is the download itself, which is kept: name another --output")
    sheet = read_sheet(into)
    layout = read_layout(sheet, request.to, id_name=request.match, columns=request.columns)
    mapping = read_mapping(request.students) if request.students else {}
    matching = match_students(students, sheet, layout, mapping)
    skip_absent = request.lessons is None
    pairs = match_lessons(lessons, sheet, layout, request.columns, skip_absent=skip_absent)
    mark = sheet.decimal_mark(layout.numbers)
    outcomes = [_fill(sheet, one, matching.rows, lesson, request, mark) for lesson, one in pairs]
    if not request.dry_run:
        write_new(output, sheet.text(), encoding=sheet.encoding, force=request.force)
    return Outcome(output, request.dry_run, tuple(outcomes), into, matching)


def _fill(
    sheet: Sheet,
    assignment: Assignment,
    rows: Mapping[str, int],
    lesson: GradedLesson,
    request: ExportRequest,
    mark: str,
) -> LessonOutcome:
    """Put a lesson's scores into its column."""
    worth, most = assignment.points, lesson.all_points
    if request.scale and not (worth and most):
        raise ExportError(
            f"{sheet.path} does not say how many points {assignment.name!r} is worth: "
            "leave --scale out"
        )
    if worth is not None and abs(worth - most) > 0.005 and not request.scale:
        raise ExportError(
            f"{sheet.path}: {assignment.name!r} is worth {worth:g} points there and "
            f"{lesson.lesson} {most:g} here: set {most:g} in the LMS and download again, "
            "or convert the scores with --scale"
        )
    factor = worth / most if request.scale and worth else 1.0
    outcome = LessonOutcome(lesson.lesson, assignment.name, worth)
    for student in dict.fromkeys([*rows, *(one.student for one in lesson.students)]):
        grade, row = lesson.of(student), rows.get(student)
        score = grade.score(request.partial)
        if score is None:
            outcome.not_graded[student] = grade.reason
            continue
        if row is None:
            outcome.unplaced.append(student)
            continue
        score = round(score * factor, 2)
        if worth is not None and score > worth:
            outcome.above.append(student)
        there, here = sheet.rows[row][assignment.column].strip(), number_text(score, mark)
        number = parse_number(there)
        if reason := closed(sheet, row, assignment.column):
            outcome.closed[student] = reason
        elif number is not None and round(number, 2) == score:
            outcome.same.append(student)
        elif (
            there not in ("", "-") and not request.overwrite
        ):  # either means that there is no score
            outcome.kept[student] = f"{there} there, {here} here"
        else:
            sheet.rows[row][assignment.column] = here
            outcome.written.append(student)
    return outcome
