"""Match the gradebook's students with a file's rows, and lessons with its columns."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.grading.exports.lms import Assignment, Layout, student_label
from course_lib.grading.exports.sheet import Sheet, key, listed, read_sheet
from course_lib.grading.graded import GradedLesson
from course_lib.workspace.errors import ExportError


@dataclass(frozen=True)
class Matching:
    """Rows by student, and who has none.

    `ambiguous` has the rows or students that a student could be. `unmatched` are students without
    a row, `left_over` labels of rows without a student, and `unknown` students of the --students
    file that are not in the gradebook.
    """

    rows: dict[str, int]
    ambiguous: dict[str, str]
    unmatched: tuple[str, ...]
    left_over: tuple[str, ...]
    unknown: tuple[str, ...]


def match_students(
    students: Sequence[str], sheet: Sheet, layout: Layout, mapping: Mapping[str, str]
) -> Matching:
    """Find the row of each id of the gradebook.

    An id has to be found in exactly one row, and a row by exactly one student. If no row has the
    whole id, the part of an e-mail address before the @ counts. Names are not compared. `mapping`
    has ids of the LMS by id of the gradebook, and overrides the other ids.
    """
    found = _candidates(students, sheet, layout, mapping)
    claims = defaultdict(list)
    for student, rows in found.items():
        for row in rows:
            claims[row].append(student)
    ambiguous = {}
    for student, rows in found.items():
        rivals = sorted({rival for row in rows for rival in claims[row]} - {student})
        if len(rows) > 1:
            labels = (student_label(sheet, layout, row) for row in sorted(rows))
            ambiguous[student] = f"could be {listed(labels)}"
        elif rivals:
            ambiguous[student] = f"same row as {listed(rivals)}"
    known = {key(student) for student in students}
    return Matching(
        {one: min(rows) for one, rows in found.items() if rows and one not in ambiguous},
        ambiguous,
        tuple(student for student, rows in found.items() if not rows),
        tuple(student_label(sheet, layout, row) for row in layout.students if row not in claims),
        tuple(student for student in mapping if key(student) not in known),
    )


def _candidates(
    students: Sequence[str], sheet: Sheet, layout: Layout, mapping: Mapping[str, str]
) -> dict[str, set[int]]:
    """Return all rows that could be a student's, by student."""
    whole, local = defaultdict(set), defaultdict(set)
    for row in layout.students:
        for column in layout.ids:
            value = key(sheet.rows[row][column])
            whole[value].add(row)
            local[value.rpartition("@")[0]].add(row)
            # Moodle: a downloaded submission's folder has the number of "Participant 12".
            if numbered := re.fullmatch(r"\D+\s(\d+)", value):
                whole[numbered[1]].add(row)
    by_key = {key(student): lms_id for student, lms_id in mapping.items()}
    given = {one: mapping.get(one) or by_key[key(one)] for one in students if key(one) in by_key}
    taken = set().union(*(whole[key(lms_id)] for lms_id in given.values()))
    return {
        student: whole[key(given[student])]
        if student in given
        else (whole[key(student)] or local[key(student)]) - taken
        for student in students
    }


def read_mapping(path: Path) -> dict[str, str]:
    """Read a CSV file with the columns nbgrader_id and lms_id."""
    sheet = read_sheet(path)
    student_column, id_column = sheet.column("nbgrader_id"), sheet.column("lms_id")
    mapping: dict[str, str] = {}
    for row in sheet.rows:
        student, lms_id = row[student_column].strip(), row[id_column].strip()
        if student and lms_id and mapping.setdefault(student, lms_id) != lms_id:
            raise ExportError(f"{path} has a second lms_id for {student!r}: remove one")
    return mapping


def match_lessons(
    lessons: Sequence[GradedLesson],
    sheet: Sheet,
    layout: Layout,
    columns: Mapping[str, str],
    *,
    skip_absent: bool,
) -> list[tuple[GradedLesson, Assignment]]:
    """Find the column of each lesson: the one that `columns` names, or one with its name.

    With `skip_absent`, lessons without a column are left out, as long as one has a column.

    Raises:
        ExportError: a lesson has no column, several columns, or another lesson's column.
    """
    found = {one.lesson: _columns_of(one, layout, columns.get(one.lesson)) for one in lessons}
    if skip_absent and any(found.values()):
        lessons = [one for one in lessons if found[one.lesson] or one.lesson in columns]
    pairs = []
    owners: dict[int, str] = {}
    for one in lessons:
        lesson, candidates = one.lesson, found[one.lesson]
        if len(candidates) != 1:
            matches = "several columns match" if candidates else "no column matches"
            names = listed(repr(found.name) for found in candidates or layout.assignments)
            raise ExportError(
                f"{sheet.path}: {matches} {columns.get(lesson, lesson)!r}. Name an assignment with "
                f'--map {lesson.partition("_")[0]}="COLUMN": {names or "there are none"}'
            )
        owner = owners.setdefault(candidates[0].column, lesson)
        if owner != lesson:
            raise ExportError(
                f"{sheet.path}: {owner} and {lesson} would both fill {candidates[0].name!r}: "
                "name one lesson, or give each its column with --map"
            )
        pairs.append((one, candidates[0]))
    return pairs


def _columns_of(lesson: GradedLesson, layout: Layout, named: str | None) -> list[Assignment]:
    """Return the assignments that could be a lesson."""
    if named is not None:
        by_header = [one for one in layout.assignments if key(one.name) == key(named)]
        return by_header or [one for one in layout.assignments if key(one.title) == key(named)]
    if layout.single:
        return list(layout.assignments)
    return [one for one in layout.assignments if is_about(one.title, lesson.lesson, lesson.title)]


def is_about(title: str, lesson: str, heading: str = "") -> bool:
    """Return whether an assignment's title names a lesson; a part of the name is not enough.

    "Lesson" and the number are optional: 02_masked_softmax, Lesson 2: Masked softmax, Lesson 2.
    The heading of the lesson's notebook counts with and without a subtitle.
    """
    number = lesson.partition("_")[0].lstrip("0")
    number = f"0*{number}" if number.isdecimal() else "(?!)"  # matches nothing
    kind = "(?:lesson|assignment|notebook)"

    def words(text: str) -> str:
        return " ".join(re.findall(r"[^\W_]+", key(text)))

    def bare(text: str) -> str:
        return re.sub(rf"^(?:{kind}\b ?)?(?:{number}\b ?)?", "", words(text))

    names = {bare(lesson), bare(heading), bare(heading.partition(":")[0])} - {""}
    return bare(title) in names or bool(re.fullmatch(rf"{kind} {number}", words(title)))
