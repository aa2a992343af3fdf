"""What a file of an LMS is made of, whichever LMS it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from course_lib.grading.exports.sheet import Sheet, parse_number
from course_lib.grading.exports.shown import listed, shown
from course_lib.workspace.errors import ExportError


def key(text: str) -> str:
    """Text as it is compared: NFC, without case and outer blanks."""
    return unicodedata.normalize("NFC", text.strip().casefold())


def words(text: str) -> tuple[str, ...]:
    """The words and numbers of a name, as they are compared."""
    return tuple(re.findall(r"[^\W_]+", key(text)))


@dataclass(frozen=True)
class Gradable:
    """A column for the scores of one assignment.

    `name` is the header, `title` the part of it that the instructor wrote. `points` is what the
    LMS says it is worth, None where it does not say. `closed` maps rows that the LMS will not
    change to the reason.
    """

    column: int
    name: str
    title: str
    points: float | None = None
    closed: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """Where things are in a file of an LMS.

    `ids` are columns that may hold a student's id, the first ones unique to a student; `label`
    names a student for people. `only` says that the file belongs to a single assignment.
    `unfillable` maps columns that look like an assignment to the reason why they are not filled.
    Of what is in a `numbered` column the number alone is an id, too.
    """

    students: Sequence[int]
    ids: Sequence[int]
    unique: Sequence[int]
    label: Sequence[int]
    gradables: Sequence[Gradable]
    numbers: Sequence[int]
    unfillable: Mapping[int, str] = field(default_factory=dict)
    only: bool = False
    numbered: Sequence[int] = ()


def columns_named(header: Sequence[str], *names: str) -> list[int]:
    """The columns with these names, in the order of the names."""
    keys = [key(name) for name in header]
    return [at for name in names for at, found in enumerate(keys) if found == key(name)]


def one_number(sheet: Sheet, rows: Sequence[int], column: int) -> float | None:
    """The number that a column repeats in every row; None where it has none.

    Raises:
        ExportError: the rows disagree, or it is no number.
    """
    texts = {sheet.value(row, column) for row in rows} - {"", "-"}
    numbers = {parse_number(text) for text in texts}
    if None in numbers or len(numbers) > 1:
        raise ExportError(
            f"{sheet.path}: column {shown(sheet.header[column])!r} must hold one number of points; "
            f"got {listed(sorted(texts), 3)}"
        )
    return numbers.pop() if numbers else None


def student_label(sheet: Sheet, layout: Layout, row: int) -> str:
    """A student as a person would look for them: name, then the first id."""
    name = " ".join(filter(None, (sheet.value(row, column) for column in layout.label)))
    one_id = next(filter(None, (sheet.value(row, column) for column in layout.ids)), "")
    return name if not one_id or one_id == name else f"{name} ({one_id})".strip()
