"""Find students and assignments in the files of Canvas, Moodle and Gradescope.

The column names are those of the programs that write the files:

- Canvas: lib/gradebook_exporter.rb and gradebook_importer.rb in github.com/instructure/canvas-lms.
- Moodle: mod/assign/gradingtable.php, mod/assign/feedback/offline (worksheet) and grade/export/txt
  (gradebook) in github.com/moodle/moodle.
- Gradescope publishes no list. These columns are read by github.com/cs161-staff/grades-py and
  github.com/matthigger/gradescope_mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from course_lib.grading.exports.sheet import Sheet, key, listed, parse_number
from course_lib.workspace.errors import ExportError

IDS = (
    *("SIS Login ID", "SIS User ID", "Integration ID", "ID"),  # Canvas
    *("Username", "ID number", "Email address", "Identifier"),  # Moodle
    *("SID", "Email"),  # Gradescope
)
NAMES = (
    "Student",
    "Full name",
    "Name",
    "First name",
    "FirstName",
    "Last name",
    "LastName",
    "Surname",
)


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        lms: canvas, moodle or gradescope.
        needs: the columns by which it is recognized; without any, a column that fits `title`.
        title: the headers of assignments. The group is what the instructor wrote.
        read_only: headers that fit `title` and are computed by the LMS.
        points: the header of the column with the maximum, where {} stands for `title`'s match.
        single: whether the file belongs to a single assignment.
    """

    lms: str
    needs: tuple[str, ...]
    title: str
    read_only: str = "(?!)"  # matches nothing
    points: str = ""
    single: bool = False


KINDS = (
    Kind(
        "canvas",
        ("ID", "Section"),
        r"(.*\S)\s*\(\d+\)",
        read_only=r"(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)",
    ),
    Kind(
        "moodle",
        ("Identifier", "Grade", "Maximum Grade"),
        "(Grade)",
        points="Maximum Grade",
        single=True,
    ),
    Kind(
        "moodle",
        (),
        r"(?:[^:()]+:\s+)?(.*\S)\s+\((?:Real|Percentage|Letter|Feedback)\)",
        read_only=r"^(Course|Category) total\b|\((Percentage|Letter|Feedback)\)$",
    ),
    Kind(
        "gradescope",
        ("SID", "Email", "Total Score", "Max Points"),
        "(Total Score)",
        points="Max Points",
        single=True,
    ),
    Kind("gradescope", ("SID", "Email"), "(.*)", points="{} - Max Points"),
)
_FLAGS = re.IGNORECASE | re.DOTALL
_POSTING = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", _FLAGS)
_CLOSED = {"EX": "excused there", "N/A": "not assigned to this student there"}  # in Canvas


@dataclass(frozen=True)
class Assignment:
    """A column for scores: its position, header, title, and maximum, if the file has one."""

    column: int
    name: str
    title: str
    points: float | None = None


@dataclass(frozen=True)
class Layout:
    """The rows of students, the columns with their ids and names, and the assignments.

    `numbers` are columns that show how the file writes numbers. `single` is as in `Kind`.
    """

    students: Sequence[int]
    ids: Sequence[int]
    names: Sequence[int]
    assignments: Sequence[Assignment]
    numbers: Sequence[int]
    single: bool = False


def read_layout(
    sheet: Sheet, lms: str, *, id_name: str | None, columns: Mapping[str, str]
) -> Layout:
    """Find students and assignments in a file of this LMS.

    `id_name` is the only column in which to look for students' ids; None means all of `IDS`. A file
    with column names in another language needs it, and the instructor's `columns` by lesson.

    Raises:
        ExportError: the file is not from this LMS, or holds no students.
    """
    ids = None if id_name is None else [sheet.column(id_name)]
    kinds = [kind for kind in KINDS if _fits(kind, sheet)]
    kind = next((kind for kind in kinds if kind.lms == lms), None)
    if kind is not None:
        layout = _layout(kind, sheet)
    elif kinds:
        raise ExportError(
            f"{sheet.path} is not from {lms.title()}, it looks like {kinds[0].lms.title()}: "
            f"use --to {kinds[0].lms}"
        )
    elif ids and columns:
        found = [sheet.column(name) for name in columns.values()]
        named = [Assignment(column, sheet.header[column], "") for column in found]
        layout = Layout(range(len(sheet.rows)), ids, [], named, found)
    else:
        raise ExportError(
            f"{sheet.path} does not look like a file from {lms.title()} (its columns: "
            f"{listed(sheet.header, 6)}). Is it in another language? Name the columns: "
            '--match COLUMN --map LESSON="COLUMN"'
        )
    if not layout.students:
        raise ExportError(f"{sheet.path} holds no students: download it again")
    return replace(layout, ids=ids or layout.ids)


def _fits(kind: Kind, sheet: Sheet) -> bool:
    if kind.needs:
        return all(sheet.columns(name) for name in kind.needs)
    return any(re.fullmatch(kind.title, name.strip(), _FLAGS) for name in sheet.header)


def _layout(kind: Kind, sheet: Sheet) -> Layout:
    """Find students and assignments in a file of this kind."""
    # Canvas's rows "Points Possible" and "Manual Posting" belong to no student.
    maxima = next((row for row in sheet.rows if "Points Possible" in row[0]), None)
    students = [
        at
        for at, row in enumerate(sheet.rows)
        if row is not maxima and not all(_POSTING.fullmatch(value) for value in row)
    ]
    assignments, numbers = [], []
    for column, name in enumerate(sheet.header):
        title = re.fullmatch(kind.title, name.strip(), _FLAGS)
        if title is None or re.search(kind.read_only, name.strip()):
            continue
        at = sheet.columns(kind.points.format(title[1])) if kind.points else []
        texts = [row[at[0]] for row in sheet.rows] if at else [maxima[column] if maxima else ""]
        points = max(filter(None, map(parse_number, texts)), default=None)
        read_only = not at and points is None and texts[0].strip()  # Canvas's "(read only)"
        if read_only or (kind.points and not at):
            continue
        assignments.append(Assignment(column, name.strip(), title[1], points))
        numbers += [column, *at]
    return Layout(
        students, sheet.columns(*IDS), sheet.columns(*NAMES), assignments, numbers, kind.single
    )


def closed(sheet: Sheet, row: int, column: int) -> str:
    """Return why the LMS does not change a cell; "" if it does."""
    if any(key(sheet.rows[row][at]) == "no" for at in sheet.columns("Grade can be changed")):
        return "locked there"
    return _CLOSED.get(sheet.rows[row][column].strip().upper(), "")


def student_label(sheet: Sheet, layout: Layout, row: int) -> str:
    """Return a student's name in the file, with the first id in parentheses."""
    values = [value.strip() for value in sheet.rows[row]]
    name = " ".join(values[column] for column in layout.names if values[column])
    one_id = next((values[column] for column in layout.ids if values[column]), "")
    return name if one_id in ("", name) else f"{name} ({one_id})".strip()
