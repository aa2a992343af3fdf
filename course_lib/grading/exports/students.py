"""Who is who: the gradebook's students and the rows of a file from an LMS.

An id must be found in exactly one row, and a row by exactly one student; what is ambiguous is
listed and never guessed. Names are not compared at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.grading.exports.layout import Layout, columns_named, key, student_label
from course_lib.grading.exports.sheet import Sheet, read_sheet
from course_lib.grading.exports.shown import listed, nearest, shown
from course_lib.workspace.errors import ExportError

_COLUMNS = ("nbgrader_id", "lms_id")


@dataclass(frozen=True)
class Matching:
    """Rows by student, who could be several, who could be nobody.

    `left_over` are rows without a student, `strangers` mapped ids that the gradebook has not.
    """

    rows: dict[str, int]
    ambiguous: dict[str, str]
    unmatched: tuple[str, ...]
    left_over: tuple[int, ...]
    strangers: tuple[str, ...] = ()


def refuse_duplicates(sheet: Sheet, layout: Layout) -> None:
    """Make sure that each student has one row.

    Raises:
        ExportError: two rows have the same id.
    """
    for column in layout.unique:
        seen: dict[str, int] = {}
        for row in layout.students:
            value = sheet.value(row, column)
            before = seen.setdefault(key(value), row) if value else row
            if before != row:
                lines = f"{sheet.rows[before].line} and {sheet.rows[row].line}"
                raise ExportError(
                    f"{sheet.path}: lines {lines} are the same student "
                    f"({shown(sheet.header[column])} {shown(value)!r}): remove one of them"
                )


def id_column(sheet: Sheet, name: str) -> int:
    """The column that holds the students' ids, by its name.

    Raises:
        ExportError: there is none, or several.
    """
    found = columns_named(sheet.header, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise ExportError(f"{sheet.path} has {len(found)} columns {name!r}: rename all but one")
    raise ExportError(
        f"{sheet.path} has no column {name!r}. {nearest(name, sheet.header)}"
        f"Its columns: {listed(filter(None, sheet.header))}"
    )


def read_mapping(path: Path) -> dict[str, str]:
    """Read a CSV file with the columns nbgrader_id and lms_id.

    Raises:
        ExportError: it has other columns, or gives a student two ids or an id to two students.
    """
    sheet = read_sheet(path)
    mine, theirs = (columns_named(sheet.header, name) for name in _COLUMNS)
    if len(mine) != 1 or len(theirs) != 1:
        raise ExportError(
            f"{path} must have the columns {' and '.join(_COLUMNS)}; got {listed(sheet.header)}"
        )
    mapping: dict[str, str] = {}
    owners: dict[str, str] = {}
    for at in range(1, len(sheet.rows)):
        student, lms_id = sheet.value(at, mine[0]), sheet.value(at, theirs[0])
        if not student or not lms_id:
            continue
        line = sheet.rows[at].line
        if key(mapping.setdefault(student, lms_id)) != key(lms_id):
            raise ExportError(f"{path}, line {line}: a second lms_id for {shown(student)!r}")
        if owners.setdefault(key(lms_id), student) != student:
            raise ExportError(f"{path}, line {line}: {shown(lms_id)!r} is already another's lms_id")
        mapping[student] = lms_id
    return mapping


def match(
    students: Sequence[str],
    sheet: Sheet,
    layout: Layout,
    *,
    mapping: Mapping[str, str] | None = None,
) -> Matching:
    """Find each student's row.

    Args:
        students: ids of the gradebook.
        sheet: the file.
        layout: where its ids are; an id counts in any of these columns, and the part of an
            e-mail address before the @ where no column has all of it.
        mapping: ids of the LMS by id of the gradebook; wins over what the columns say.
    """
    found = _candidates(students, sheet, layout, mapping or {})
    claims = defaultdict(list)
    for student, rows in found.items():
        for row in rows:
            claims[row].append(student)
    rows, ambiguous = {}, {}
    for student in students:
        several = sorted(found[student])
        rivals = sorted({r for row in several for r in claims[row]} - {student})
        if len(several) > 1:
            who = (student_label(sheet, layout, row) for row in several)
            ambiguous[student] = f"could be {listed(who)}"
        elif rivals:
            ambiguous[student] = f"same row as {listed(rivals)}"
        elif several:
            rows[student] = several[0]
    unmatched = tuple(student for student in students if not found[student])
    left_over = tuple(row for row in layout.students if row not in claims)
    known = {key(student) for student in students}
    strangers = tuple(name for name in mapping or () if key(name) not in known)
    return Matching(rows, ambiguous, unmatched, left_over, strangers)


def _candidates(
    students: Sequence[str], sheet: Sheet, layout: Layout, mapping: Mapping[str, str]
) -> dict[str, set[int]]:
    """All rows that could be a student's."""
    full = _index(sheet, layout.ids, layout, str)
    local = _index(sheet, layout.ids, layout, _local_part)
    numbers = _index(sheet, layout.numbered, layout, _last_number)
    given = _given(mapping, students)
    found = {student: full.get(key(given[student]), set()) for student in given}
    taken = set().union(*found.values())
    for student in students:
        if student not in given:
            name = key(student)
            rows = full.get(name, set()) | numbers.get(name, set()) or local.get(name, set())
            found[student] = rows - taken
    return found


def _index(
    sheet: Sheet, columns: Sequence[int], layout: Layout, part: Callable[[str], str]
) -> dict[str, set[int]]:
    """Rows by each id in some columns."""
    found = defaultdict(set)
    for row in layout.students:
        for column in columns:
            if name := part(sheet.value(row, column)):
                found[key(name)].add(row)
    return found


def _local_part(value: str) -> str:
    name, at, _ = value.rpartition("@")
    return name if at else ""


def _last_number(value: str) -> str:
    found = re.fullmatch(r"\D+(\d+)", value.strip(), re.ASCII)
    return found[1] if found else ""


def _given(mapping: Mapping[str, str], students: Iterable[str]) -> dict[str, str]:
    """Mapped ids by the gradebook's own spelling: as it is, or the only one that compares equal."""
    spelled = defaultdict(list)
    for student in students:
        spelled[key(student)].append(student)
    given = {}
    for name, lms_id in mapping.items():
        same = spelled[key(name)]
        if name in same or len(same) == 1:
            given[name if name in same else same[0]] = lms_id
    return given
