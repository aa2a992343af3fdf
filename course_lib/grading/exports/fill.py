"""Put scores into the file that an instructor downloaded from an LMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from course_lib.grading.exports import canvas, gradescope, moodle
from course_lib.grading.exports.layout import Gradable, Layout
from course_lib.grading.exports.lessons import column_for, has_column
from course_lib.grading.exports.outcome import LessonOutcome
from course_lib.grading.exports.sheet import Sheet, parse_number
from course_lib.grading.exports.shown import listed
from course_lib.grading.exports.students import Matching, id_column
from course_lib.grading.graded import GradedLesson
from course_lib.workspace.errors import ExportError

LMS: dict[str, ModuleType] = {"canvas": canvas, "moodle": moodle, "gradescope": gradescope}
_EMPTY = ("", "-")  # both mean no score, in Canvas and in Moodle


@dataclass(frozen=True)
class Rules:
    """How to fill: what counts as graded, and what may change."""

    partial: bool = False
    scale: bool = False
    overwrite: bool = False


def read_layout(
    sheet: Sheet, lms: str, *, id_name: str | None, columns: Mapping[str, str]
) -> Layout:
    """Find out where things are, for the LMS that the file is said to come from.

    Args:
        sheet: the file.
        lms: a key of `LMS`.
        id_name: the only column in which to look for students' ids; None for all that are known.
        columns: columns by lesson, as the instructor named them.

    Raises:
        ExportError: the file is from elsewhere, or holds no students.
    """
    ids = None if id_name is None else id_column(sheet, id_name)
    if LMS[lms].recognises(sheet.header):
        layout = LMS[lms].layout(sheet)
    else:
        layout = _layout_by_names(sheet, lms, ids, columns)
    if not layout.students:
        raise ExportError(f"{sheet.path} holds no students: download it again")
    return layout if ids is None else replace(layout, ids=[ids], unique=[ids])


def _layout_by_names(sheet: Sheet, lms: str, ids: int | None, columns: Mapping[str, str]) -> Layout:
    """A file with headers in another language: the instructor has to name what is needed."""
    name = LMS[lms].NAME
    for other, module in LMS.items():
        if module.recognises(sheet.header):
            raise ExportError(
                f"{sheet.path} is not from {name}, it looks like {module.NAME}: use --to {other}"
            )
    if ids is None or not columns:
        raise ExportError(
            f"{sheet.path} does not look like a file from {name} (its columns: "
            f"{listed(sheet.header, 6)}). Is it in another language? Name the columns: "
            '--match COLUMN --map LESSON="COLUMN"'
        )
    found = [id_column(sheet, column) for column in columns.values()]
    students = [row for row in range(1, len(sheet.rows)) if not sheet.rows[row].blank]
    gradables = [Gradable(column, sheet.header[column], "") for column in found]
    return Layout(students, [ids], [ids], [], gradables, found)


def fill(
    sheet: Sheet,
    layout: Layout,
    matching: Matching,
    lessons: Sequence[GradedLesson],
    columns: Mapping[str, str],
    rules: Rules,
    *,
    skip_absent: bool = False,
) -> list[LessonOutcome]:
    """Fill the columns of some lessons.

    Args:
        sheet: the file, changed in place.
        layout: where things are in it.
        matching: rows by student.
        lessons: the scores.
        columns: columns by lesson, where the instructor named one.
        rules: how to fill.
        skip_absent: leave lessons out that have no column, as long as one has.

    Raises:
        ExportError: a lesson has no column, or is worth other points than its column.
    """
    if skip_absent:
        having = [g for g in lessons if g.lesson in columns or has_column(layout, g)]
        lessons = having or lessons
    chosen = [(column_for(sheet, layout, g, columns.get(g.lesson)), g) for g in lessons]
    _refuse_shared(sheet, chosen)
    mark = sheet.decimal_mark(layout.numbers)
    return [_fill_one(sheet, gradable, matching, g, rules, mark) for gradable, g in chosen]


def _refuse_shared(sheet: Sheet, chosen: Sequence[tuple[Gradable, GradedLesson]]) -> None:
    owners: dict[int, str] = {}
    for gradable, grades in chosen:
        if owners.setdefault(gradable.column, grades.lesson) != grades.lesson:
            raise ExportError(
                f"{sheet.path}: {owners[gradable.column]} and {grades.lesson} would both fill "
                f"{gradable.name!r}: name one lesson, or give each its column with --map"
            )


def _fill_one(
    sheet: Sheet,
    gradable: Gradable,
    matching: Matching,
    grades: GradedLesson,
    rules: Rules,
    mark: str,
) -> LessonOutcome:
    factor = _factor(sheet, gradable, grades, rules.scale)
    outcome = LessonOutcome(grades.lesson, gradable.name, gradable.points)
    everyone = dict.fromkeys([*matching.rows, *(grade.student for grade in grades.students)])
    for student in everyone:
        grade, row = grades.of(student), matching.rows.get(student)
        score = grade.score(rules.partial)
        if score is None:
            outcome.not_graded[student] = grade.reason
        elif row is None:
            outcome.unplaced.append(student)
        else:
            score = round(score * factor, 2)
            if gradable.points is not None and score > gradable.points:
                outcome.above.append(student)
            _place(sheet, gradable, row, student, score, rules.overwrite, mark, outcome)
    return outcome


def _place(sheet, gradable, row, student, score, overwrite, mark, outcome) -> None:
    there, here = sheet.value(row, gradable.column), format(score, ".10g").replace(".", mark)
    number = parse_number(there)
    if row in gradable.closed:
        outcome.closed[student] = gradable.closed[row]
    elif number is not None and abs(number - score) < 0.005:
        outcome.same.append(student)
    elif there not in _EMPTY and not overwrite:
        outcome.kept[student] = f"{there} there, {here} here"
    else:
        sheet.put(row, gradable.column, here)
        outcome.written.append(student)


def _factor(sheet: Sheet, gradable: Gradable, grades: GradedLesson, scale: bool) -> float:
    """What a score is multiplied by.

    Raises:
        ExportError: the lesson and its column are worth different points.
    """
    worth, most = gradable.points, grades.all_points
    if worth is None:
        if scale:
            raise ExportError(
                f"{sheet.path} does not say how many points {gradable.name!r} is worth: "
                "leave --scale out"
            )
        return 1.0
    if abs(worth - most) < 0.005:
        return 1.0
    if not scale or not most:
        raise ExportError(
            f"{sheet.path}: {gradable.name!r} is worth {worth:g} points there and "
            f"{grades.lesson} {most:g} here: set {most:g} in the LMS and download again, "
            "or convert the scores with --scale"
        )
    return worth / most
