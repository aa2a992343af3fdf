"""Export grades: read the gradebook, fill an LMS's file or make a table, and write it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.exports import lms
from course_lib.grading.exports.request import ExportRequest, Groups, Outcome
from course_lib.grading.graded import GradedLesson, GradedSubmission
from course_lib.grading.intake.timestamps import parse_time
from course_lib.grading.read_grades import read_lesson
from course_lib.workspace.errors import ExportError, GradingError
from course_lib.workspace.sheet import Sheet, key, parse_number, read_sheet

# Spreadsheets take these for the beginning of a formula: OWASP, "CSV Injection",
# https://owasp.org/www-community/attacks/CSV_Injection
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
CLOSED = {"EX": "excused there", "N/A": "not assigned to this student there"}  # Canvas's marks
PER_LESSON = ("written", "total", "max", "late_seconds", "late_penalty", "state", "reason")


def export(root: Path, request: ExportRequest) -> Outcome:
    """Write the grades of a course as a table or for an LMS.

    Args:
        root: the course folder. The table is written to grades.csv there if no output is named.
        request: what to export. FILE.csv from an LMS becomes FILE_filled.csv beside it.

    Raises:
        GradingError: nothing was written. The message names the remedy.
    """
    if request.to != "csv" and request.into is None:
        raise ExportError(
            f"{request.to.title()} takes its own file back: download its gradebook as CSV and "
            "name it with --into FILE"
        )
    if request.to == "csv" and (request.into or request.match or request.columns):
        raise ExportError("--into, --match and --map need --to canvas or moodle")
    course = ClassFolder(root)
    with quiet_nbgrader():
        people, lessons = _read_gradebook(course, request)
    if request.into is not None:
        return _fill_file(request.into, request, [student for student, *_ in people], lessons)
    output = request.output or course.root / "grades.csv"
    if not request.dry_run:
        table = grades_table(people, lessons, partial=request.partial)
        table.write(output, force=request.force)
    outcomes = []
    for lesson in lessons:
        groups: Groups = {"written": {}, "not_graded": {}}
        for student, *_ in people:
            grade = lesson.of(student)
            missing = grade.score(request.partial) is None
            name = "not_graded" if missing else "zero" if grade.zero else "written"
            groups.setdefault(name, {})[student] = "" if grade.zero else grade.reason
        about = {"lesson": lesson.lesson, "column": "", "points": lesson.all_points}
        outcomes.append({**about, "late": lesson.late, **groups})
    return Outcome(output, request.dry_run, outcomes)


def _read_gradebook(
    course: ClassFolder, request: ExportRequest
) -> tuple[list[tuple[str, ...]], list[GradedLesson]]:
    """Return each student's id, names and address, and the lessons with their headings."""
    if not course.has_gradebook:
        raise ExportError(
            f"there is no gradebook {course.database} yet; grade first: course grade LESSON"
        )
    with course.gradebook() as gradebook:
        people = [
            (one.id, one.last_name or "", one.first_name or "", one.email or "")
            for one in gradebook.students
        ]
        dues = {one.name: one.duedate for one in gradebook.assignments if one.num_submissions}
    names = request.lessons or sorted(dues) or ["LESSON"]
    for name in names:
        if name not in dues:
            has = ", ".join(sorted(dues)) or "no lesson"
            raise ExportError(f"{name} is not graded yet (graded: {has}): course grade {name}")
    if stray := sorted(set(request.columns) - set(names)):
        raise ExportError(f"--map names {stray[0]}, which is not exported: add it to the lessons")
    lessons = []
    for name in names:
        first = ""
        with suppress(GradingError, LookupError):
            first = course.read_release(name)[1].cells[0].source
        title = first.partition("\n")[0].strip("# ") if first.startswith("#") else ""
        lesson = replace(read_lesson(course, name, brief=True), title=title)
        now = datetime.now(UTC).replace(tzinfo=None)
        if request.zero_missing and (dues[name] or now) <= now:
            kept = {one for one, due in lesson.extensions.items() if parse_time(due) > now}
            gone = [one for one, *_ in people if lesson.of(one).absent and one not in kept]
            zeros = (GradedSubmission(one, absent=True, zero=True) for one in gone)
            lesson = replace(lesson, students=(*lesson.students, *zeros))
        lessons.append(lesson)
    known = {one for one, *_ in people}
    strangers = {one.student for lesson in lessons for one in lesson.students} - known
    return sorted([*people, *((one, "", "", "") for one in strangers)]), lessons


def grades_table(
    people: Sequence[Sequence[str]], lessons: Sequence[GradedLesson], *, partial: bool = False
) -> Sheet:
    """Return a table with a row for each student, the columns of each lesson, and totals.

    Cells of ungraded work are blank. Optional exercises have no column. The totals cover the
    lessons in which the student has a score.
    """
    header = ["student", "last_name", "first_name", "email"]
    rows: list[list[str | float | None]] = [[*person] for person in people]
    for lesson in lessons:
        counted = [name for name, most in lesson.points_by_exercise.items() if most]
        header += [f"{lesson.lesson}/{name}" for name in (*counted, *PER_LESSON)]
        for row, (student, *_) in zip(rows, people, strict=True):
            grade = lesson.of(student)
            scores = {one.exercise: one.score for one in grade.rows}
            written = [one.score for one in grade.answers if one.score is not None]
            is_known = grade.rows or grade.answers  # to the gradebook
            row += [scores.get(name) for name in counted]
            row += [
                sum(written) if written and len(written) == len(grade.answers) else None,
                grade.score(partial),
                lesson.all_points,
                grade.late_seconds if is_known else None,
                grade.late_penalty if is_known else None,
                grade.state,
                "" if grade.reason == grade.state else grade.reason,
            ]
    header += ["total", "max", "lessons"]
    for row, (student, *_) in zip(rows, people, strict=True):
        scores = [(lesson.of(student).score(partial), lesson.all_points) for lesson in lessons]
        graded = [(score, most) for score, most in scores if score is not None]
        row += [*map(sum, zip(*graded, strict=True)), len(graded)] if graded else [None, None, 0]
    return Sheet(Path(), header, [[plain_cell(cell) for cell in row] for row in rows])


def plain_cell(cell: str | float | None) -> str:
    """Return a cell of the table, with an apostrophe before text that looks like a formula."""
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell
    return "" if cell is None else format(cell, ".10g")


def _fill_file(
    into: Path, request: ExportRequest, students: Sequence[str], lessons: Sequence[GradedLesson]
) -> Outcome:
    """Write the LMS's file with the scores of some lessons."""
    output = request.output or into.with_name(f"{into.stem}_filled{into.suffix or '.csv'}")
    if output.exists() and into.exists() and output.samefile(into):
        raise ExportError(f"{output} is the download itself, which is kept: name another --output")
    sheet = read_sheet(into)
    layout = lms.read_layout(sheet, request)
    rows, matching = lms.match_students(students, layout, request)
    pairs = lms.match_lessons(lessons, layout, request)
    outcomes = [_fill(layout, one, rows, lesson, request) for one, lesson in pairs.items()]
    if not request.dry_run:
        sheet.write(output, force=request.force)
    return Outcome(output, request.dry_run, outcomes, into, matching)


def _fill(
    layout: lms.Layout,
    assignment: lms.Assignment,
    rows: Mapping[str, int],
    lesson: GradedLesson,
    request: ExportRequest,
) -> dict[str, Any]:
    """Put a lesson's scores into its column."""
    worth, most = assignment.points, lesson.all_points
    if request.scale and not (worth and most):
        raise ExportError(
            f"{layout.sheet.path} does not say how many points {assignment.name!r} is worth: "
            "leave --scale out"
        )
    if worth is not None and abs(worth - most) > 0.005 and not request.scale:
        raise ExportError(
            f"{layout.sheet.path}: {assignment.name!r} is worth {worth:g} points there and "
            f"{lesson.lesson} {most:g} here: set {most:g} in the LMS and download again, "
            "or convert the scores with --scale"
        )
    factor = worth / most if request.scale and worth else 1.0
    mark, locks = layout.sheet.decimal_mark, layout.sheet.columns("Grade can be changed")
    groups: Groups = {
        name: {} for name in ["written", "same", "kept", "closed", "unplaced", "not_graded"]
    }
    for student in dict.fromkeys([*rows, *(one.student for one in lesson.students)]):
        grade = lesson.of(student)
        score = grade.score(request.partial)
        if score is None or (grade.zero and student not in rows):
            groups["not_graded"][student] = grade.reason
            continue
        if student not in rows:
            groups["unplaced"][student] = ""
            continue
        score = round(score * factor, 2)
        if worth is not None and score > worth:
            groups.setdefault("above", {})[student] = ""
        cells = layout.sheet.rows[rows[student]]
        there, here = cells[assignment.column].strip(), f"{score:.10g}".replace(".", mark)
        number = parse_number(there)
        if any(key(cells[at]) == "no" for at in locks):
            groups["closed"][student] = "locked there"
        elif there.upper() in CLOSED:
            groups["closed"][student] = CLOSED[there.upper()]
        elif number is not None and round(number, 2) == score:
            groups["same"][student] = ""
        elif there not in ("", "-") and not request.overwrite:  # "-" is Moodle's blank
            groups["kept"][student] = f"{there} there, {here} here"
        else:
            cells[assignment.column] = here
            groups.setdefault("zero" if grade.zero else "written", {})[student] = ""
    about = {"lesson": lesson.lesson, "column": assignment.name, "points": worth}
    return {**about, "late": lesson.late, **groups}
