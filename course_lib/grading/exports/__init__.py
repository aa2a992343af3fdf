"""`course export`: grades as a plain table, or in the file that an LMS takes back.

`sheet` reads and writes CSV without changing what it need not, `canvas`, `moodle` and `gradescope`
know their files, `grades` reads the gradebook, `students` finds who is who, `lessons` which column,
`fill` puts the scores in, `table` makes the plain table, `outcome` says what was done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.exports.fill import LMS, Rules, fill, read_layout
from course_lib.grading.exports.grades import (
    Person,
    graded_lessons,
    need_gradebook,
    read_people,
    read_submitted,
)
from course_lib.grading.exports.layout import student_label
from course_lib.grading.exports.lessons import columns_by_lesson
from course_lib.grading.exports.outcome import Outcome
from course_lib.grading.exports.sheet import read_sheet, write_new
from course_lib.grading.exports.students import match, read_mapping, refuse_duplicates
from course_lib.grading.exports.table import grades_table, table_outcomes
from course_lib.grading.graded import GradedLesson
from course_lib.workspace.errors import ExportError, GradingError

__all__ = ["ExportError", "ExportRequest", "columns_by_lesson", "export"]


@dataclass(frozen=True)
class ExportRequest:
    """What to export, and how; the fields are the command's options.

    `lessons` None means every graded lesson. `columns` are columns of the file by lesson, `match`
    the one that holds the students' ids, `students` a file with the columns nbgrader_id and
    lms_id. Only `output`, `partial`, `force` and `dry_run` go with "csv".
    """

    to: str = "csv"
    lessons: Sequence[str] | None = None
    into: Path | None = None
    output: Path | None = None
    match: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    students: Path | None = None
    partial: bool = False
    scale: bool = False
    overwrite: bool = False
    force: bool = False
    dry_run: bool = False


def export(root: Path, request: ExportRequest) -> Outcome:
    """Write the grades of a course for people or for an LMS.

    Args:
        root: the course folder; the plain table goes to grades.csv there if no output is named.
        request: what to export; into an LMS's file FILE.csv it becomes FILE_filled.csv beside it.

    Returns:
        What was written, and who got no score and why.

    Raises:
        ExportError: nothing was written; the message has the remedy.
    """
    course = Course(root)
    _refuse_mixed(request)
    with quiet_nbgrader():
        need_gradebook(course)
        try:
            people, lessons = _read(course, request)
        except ExportError:
            raise
        except GradingError as error:
            raise ExportError(str(error)) from error
    make = _plain if request.to == "csv" else _filled
    return make(course, request, people, lessons)


def _read(course: Course, request: ExportRequest) -> tuple[list[Person], list[GradedLesson]]:
    names = request.lessons or graded_lessons(course)
    if stray := sorted(set(request.columns) - set(names)):
        raise ExportError(f"--map names {stray[0]}, which is not exported: add it to the lessons")
    return read_people(course), [read_submitted(course, name) for name in names]


def _refuse_mixed(request: ExportRequest) -> None:
    """Refuse options that do not go together."""
    if request.to != "csv" and request.into is None:
        raise ExportError(
            f"{LMS[request.to].NAME} takes its own file back: download its gradebook as CSV and "
            "name it with --into FILE"
        )
    if request.to != "csv":
        return
    given = {
        "--into": request.into,
        "--match": request.match,
        "--map": request.columns,
        "--students": request.students,
        "--scale": request.scale,
        "--overwrite": request.overwrite,
    }
    if wrong := [name for name, value in given.items() if value]:
        raise ExportError(f"{wrong[0]} goes with --to {', '.join(LMS)}; got --to csv")


def _plain(
    course: Course, request: ExportRequest, people: list[Person], lessons: list[GradedLesson]
) -> Outcome:
    output = request.output or course.root / "grades.csv"
    outcomes = table_outcomes(people, lessons, partial=request.partial)
    if not request.dry_run:
        data = grades_table(people, lessons, partial=request.partial)
        write_new(output, data, force=request.force)
    return Outcome("csv", output, request.dry_run, outcomes)


def _filled(
    course: Course, request: ExportRequest, people: list[Person], lessons: list[GradedLesson]
) -> Outcome:
    assert request.into is not None  # `_refuse_mixed` saw to it
    output = _beside(request.into, request.output)
    sheet = read_sheet(request.into)
    layout = read_layout(sheet, request.to, id_name=request.match, columns=request.columns)
    refuse_duplicates(sheet, layout)
    mapping = read_mapping(request.students) if request.students else None
    matching = match([person.id for person in people], sheet, layout, mapping=mapping)
    outcomes = fill(
        sheet,
        layout,
        matching,
        lessons,
        request.columns,
        Rules(request.partial, request.scale, request.overwrite),
        skip_absent=request.lessons is None,
    )
    if not request.dry_run:
        write_new(output, sheet.as_bytes(), force=request.force)
    return Outcome(
        request.to,
        output,
        request.dry_run,
        tuple(outcomes),
        request.into,
        len(matching.rows),
        matching.ambiguous,
        matching.unmatched,
        tuple(student_label(sheet, layout, row) for row in matching.left_over),
        matching.strangers,
    )


def _beside(into: Path, output: Path | None) -> Path:
    """Where the filled file goes; never onto the download."""
    output = output or into.with_name(f"{into.stem}_filled{into.suffix or '.csv'}")
    if output.exists() and into.exists() and output.samefile(into):
        raise ExportError(f"{output} is the download itself, which is kept: name another --output")
    return output
