"""Moodle: an assignment's offline grading worksheet, or the gradebook's plain text export.

Worksheet, from mod/assign/gradingtable.php and mod/assign/feedback/offline in
github.com/moodle/moodle: "Identifier" ("Participant 12"), "Full name", further fields such as
"ID number" and "Email address", "Status", "Grade", "Maximum Grade", "Grade can be changed", dates.
Export, from grade/export/lib.php and txt/: profile fields, "Assignment: NAME (Real)", time; it does
not say what an assignment is worth. Comma, tab, semicolon or colon; decimals as in the language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from course_lib.grading.exports.layout import Gradable, Layout, columns_named, key, one_number
from course_lib.grading.exports.sheet import Sheet

NAME = "Moodle"
_IDS = ("Username", "ID number", "Email address", "Identifier")
_NAMES = ("Full name", "First name", "Surname", "Last name")
_ITEM = re.compile(r"(?:[^:()]+:\s+)?(.*\S)\s+\((Real|Percentage|Letter|Feedback)\)", re.DOTALL)
_TOTALS = ("Course total", "Category total")


def recognises(header: Sequence[str]) -> bool:
    """Whether a first row is that of this LMS."""
    return _is_worksheet(header) or _is_export(header)


def _is_worksheet(header: Sequence[str]) -> bool:
    return all(columns_named(header, name) for name in ("Identifier", "Grade", "Maximum Grade"))


def _is_export(header: Sequence[str]) -> bool:
    named = any(columns_named(header, name) for name in _NAMES)
    return named and any(_ITEM.fullmatch(name) for name in header)


def layout(sheet: Sheet) -> Layout:
    """Where things are in either file."""
    students = [row for row in range(1, len(sheet.rows)) if not sheet.rows[row].blank]
    fill = _worksheet if _is_worksheet(sheet.header) else _export
    return fill(sheet, students)


def _worksheet(sheet: Sheet, students: list[int]) -> Layout:
    header = sheet.header
    (grade, *_), (most, *_) = columns_named(header, "Grade"), columns_named(header, "Maximum Grade")
    closed = {}
    for column in columns_named(header, "Grade can be changed"):
        no = [row for row in students if key(sheet.value(row, column)) == "no"]
        closed |= dict.fromkeys(no, "Moodle has this grade locked")
    gradable = Gradable(grade, header[grade], "", one_number(sheet, students, most), closed)
    return Layout(
        students=students,
        ids=columns_named(header, *_IDS),
        unique=columns_named(header, "Identifier"),
        label=columns_named(header, *_NAMES),
        gradables=[gradable],
        numbers=[grade, most],
        only=True,
        numbered=columns_named(header, "Identifier"),  # the folders of a download have the number
    )


def _export(sheet: Sheet, students: list[int]) -> Layout:
    header = sheet.header
    gradables, unfillable = [], {}
    for column, name in enumerate(header):
        found = _ITEM.fullmatch(name)
        if found is None:
            continue
        title, kind = found.groups()
        if title in _TOTALS:
            unfillable[column] = "Moodle works it out itself"
        elif kind != "Real":
            unfillable[column] = "it holds no points; export with the grade display type Real"
        else:
            gradables.append(Gradable(column, name, title))
    return Layout(
        students=students,
        ids=columns_named(header, *_IDS),
        unique=columns_named(header, "Username", "ID number", "Email address"),
        label=columns_named(header, *_NAMES),
        gradables=gradables,
        numbers=[gradable.column for gradable in gradables],
        unfillable=unfillable,
    )
