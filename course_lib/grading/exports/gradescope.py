"""Gradescope: "Download Grades" of a course, or of one assignment, as CSV.

Gradescope publishes no list of the columns. These are what programs that read its files expect
(github.com/cs161-staff/grades-py, github.com/matthigger/gradescope_mean): "First Name", "Last Name"
(or "Name"), "SID", "Email", "Sections", then for each assignment "X", "X - Max Points",
"X - Submission Time", "X - Lateness (H:M:S)"; of one assignment "Total Score", "Max Points",
"Status", "Submission ID" and a column for each question. Its guides describe no import of scores.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.grading.exports.layout import Gradable, Layout, columns_named, one_number
from course_lib.grading.exports.sheet import Sheet

NAME = "Gradescope"
_IDS = ("SID", "Email")
_NAMES = ("Name", "First Name", "Last Name")
_MOST = " - Max Points"


def recognises(header: Sequence[str]) -> bool:
    """Whether a first row is that of this LMS."""
    return bool(columns_named(header, "SID") and columns_named(header, "Email"))


def layout(sheet: Sheet) -> Layout:
    """Where things are in either file."""
    header = sheet.header
    students = [row for row in range(1, len(sheet.rows)) if not sheet.rows[row].blank]
    total, most = columns_named(header, "Total Score"), columns_named(header, "Max Points")
    pairs = (
        [(total[0], most[0], "")]
        if total and most
        else [
            (column, header.index(name + _MOST), name)
            for column, name in enumerate(header)
            if name + _MOST in header
        ]
    )
    gradables = [
        Gradable(column, header[column], title, one_number(sheet, students, worth))
        for column, worth, title in pairs
    ]
    return Layout(
        students=students,
        ids=columns_named(header, *_IDS),
        unique=columns_named(header, "Email", "SID"),
        label=columns_named(header, *_NAMES),
        gradables=gradables,
        numbers=[column for column, worth, _ in pairs for column in (column, worth)],
        only=bool(total and most),
    )
