"""Canvas: the gradebook as "Export Entire Gradebook" writes it and "Import" reads it.

Taken from lib/gradebook_exporter.rb, gradebook_importer.rb and csv_with_i18n.rb in
github.com/instructure/canvas-lms: "Student" (or "LastName", "FirstName"), "ID", "SIS User ID",
"SIS Login ID", "Section", then "Title (id)"; a row "Manual Posting" may and a row "Points
Possible" does follow; totals are "(read only)"; "EX" is excused, "N/A" not assigned; comma or
semicolon, with or without a byte order mark, a decimal comma in some languages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from course_lib.grading.exports.layout import Gradable, Layout, columns_named
from course_lib.grading.exports.sheet import Sheet, parse_number

NAME = "Canvas"
_IDS = ("SIS Login ID", "SIS User ID", "Integration ID", "ID")
_ABOUT = ("Student", "LastName", "FirstName", *_IDS, "Root Account", "Section")
_TITLE = re.compile(r"(.*\S)\s*\(\d+\)", re.DOTALL)
_TOTAL = re.compile(r"(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)")
_POSTING = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", re.IGNORECASE | re.DOTALL)
_FIXED = {"EX": "excused in Canvas", "N/A": "not assigned to this student in Canvas"}


def recognises(header: Sequence[str]) -> bool:
    """Whether a first row is that of this LMS."""
    named = columns_named(header, "Student") or columns_named(header, "LastName")
    return bool(named and columns_named(header, "ID") and columns_named(header, "Section"))


def layout(sheet: Sheet) -> Layout:
    """Where things are in a Canvas gradebook."""
    header = sheet.header
    about = set(columns_named(header, *_ABOUT))
    points_row = next((r for r in range(1, len(sheet.rows)) if _is_points(sheet, r)), None)
    students = [r for r in range(1, len(sheet.rows)) if not _is_extra(sheet, r)]
    gradables, unfillable = [], {}
    for column, name in enumerate(header):
        if column in about or not name:
            continue
        points = "" if points_row is None else sheet.value(points_row, column)
        title = _TITLE.fullmatch(name)
        if _TOTAL.search(name) or (points and parse_number(points) is None):
            unfillable[column] = "Canvas works it out itself, or has it read only"
        elif title is None:
            unfillable[column] = "it is not an assignment of Canvas, whose names end in (number)"
        else:
            closed = {
                row: _FIXED[value.upper()]
                for row in students
                if (value := sheet.value(row, column)).upper() in _FIXED
            }
            gradables.append(Gradable(column, name, title[1], parse_number(points), closed))
    return Layout(
        students=students,
        ids=columns_named(header, *_IDS),
        unique=columns_named(header, "ID"),
        label=columns_named(header, "Student", "FirstName", "LastName"),
        gradables=gradables,
        numbers=[gradable.column for gradable in gradables],
        unfillable=unfillable,
    )


def _is_points(sheet: Sheet, row: int) -> bool:
    return "Points Possible" in sheet.value(row, 0)


def _is_extra(sheet: Sheet, row: int) -> bool:
    """Whether a row is about the assignments, or empty, and not a student's."""
    return _is_points(sheet, row) or all(_POSTING.fullmatch(v) for v in sheet.rows[row].values)
