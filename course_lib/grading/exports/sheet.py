"""CSV files: read one from an LMS, change some cells, and write it in the same dialect."""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.grading.course import write_atomically
from course_lib.grading.intake.gate import one_line
from course_lib.workspace.errors import ExportError

DELIMITERS = ",;\t:"
# What spreadsheets take for the beginning of a formula: OWASP, "CSV Injection",
# https://owasp.org/www-community/attacks/CSV_Injection
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)")


@dataclass
class Sheet:
    """A CSV file: its header, its rows as long as the header, and its dialect."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    delimiter: str
    line_end: str
    encoding: str

    def columns(self, *names: str) -> list[int]:
        """Return the columns with these names, in the order of the names."""
        keys = [key(name) for name in self.header]
        return [at for name in names for at, found in enumerate(keys) if found == key(name)]

    def column(self, name: str) -> int:
        """Return the only column with this name.

        Raises:
            ExportError: there is none, or there are several.
        """
        found = self.columns(name)
        if len(found) != 1:
            has = f"{self.path} has {len(found) or 'no'} columns {name!r}"
            raise ExportError(f"{has}; its columns: {listed(self.header)}")
        return found[0]

    def decimal_mark(self, columns: Iterable[int]) -> str:
        """Return "," if the numbers of these columns are written with a comma, else "."."""
        texts = (row[column].strip() for row in self.rows for column in columns)
        numbers = "".join(text for text in texts if _NUMBER.fullmatch(text))
        return "," if "," in numbers and "." not in numbers else "."

    def text(self) -> str:
        """Return the file's text."""
        rows = [self.header, *self.rows]
        return as_csv(rows, delimiter=self.delimiter, line_end=self.line_end)


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file. Blank rows are left out, and short ones filled up.

    Raises:
        ExportError: the file does not exist, is empty, or is not CSV.
    """
    encoding, text = _decode(path)
    if not text.strip():
        raise ExportError(f"{path} is empty: download it again")
    if text.lstrip()[:20].casefold().startswith(("<!doctype", "<html", "<?xml")):
        raise ExportError(f"{path} is a web page, not CSV: sign in and download it again")
    delimiter, (header, *rows) = _split(path, text)
    rows = [row + [""] * (len(header) - len(row)) for row in rows]
    line_end = next((end for end in ("\r\n", "\n", "\r") if end in text), "\n")
    return Sheet(path, header, rows, delimiter, line_end, encoding)


def _decode(path: Path) -> tuple[str, str]:
    """Return the encoding and the text of a file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise ExportError(f"{path} is a workbook, not CSV: download it as CSV")
    marked = "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        marked = "utf-16"
    for encoding in (marked, "cp1252"):
        try:
            return encoding, data.decode(encoding)
        except UnicodeDecodeError:
            pass
    raise ExportError(f"{path} is not a CSV file: download it again")


def _split(path: Path, text: str) -> tuple[str, list[list[str]]]:
    """Return the delimiter that gives the first rows the same number of cells, and the rows."""
    found: dict[str, list[list[str]]] = {}
    problem = ""
    for delimiter in DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            found[delimiter] = [row for row in reader if "".join(row).strip()]
        except csv.Error as error:
            problem = problem or f"line {reader.line_num}: {error}"

    def fit(delimiter: str) -> tuple[bool, int]:
        sizes = [len(row) for row in found[delimiter][:5]] or [1]
        return len(set(sizes)) == 1 and sizes[0] > 1, sizes[0]

    best = max(found, key=fit, default=None)
    if best is None or fit(best)[1] == 1:
        problem = problem or "its first line has one column only"
        raise ExportError(f"{path} is not a CSV file ({problem}): download it again")
    return best, found[best]


def as_csv(rows: Iterable[Sequence[str]], *, delimiter: str = ",", line_end: str = "\r\n") -> str:
    """Return rows as CSV; by default as RFC 4180 describes it."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=line_end).writerows(rows)
    return out.getvalue()


def plain_cell(cell: str | float | None) -> str:
    """Return a cell of the course's own table. An apostrophe goes before text like a formula."""
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell
    return "" if cell is None else number_text(cell)


def number_text(number: float, mark: str = ".") -> str:
    """Return a number as text, with this decimal mark."""
    return format(number, ".10g").replace(".", mark)


def parse_number(text: str) -> float | None:
    """Return a number written with a decimal point or comma; None for any other text."""
    text = text.strip()
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None


def key(text: str) -> str:
    """Return text for comparisons: in Unicode's form NFC, stripped, without case."""
    return unicodedata.normalize("NFC", text.strip().casefold())


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names for a message in one line."""
    names = [one_line(name) for name in names if name]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def write_new(path: Path, text: str, *, encoding: str = "utf-8", force: bool = False) -> None:
    """Write a file completely or not at all.

    Raises:
        ExportError: the file exists and `force` is not set, or it cannot be written.
    """
    if path.is_dir():
        raise ExportError(f"{path} is a folder: name a file with --output")
    if path.exists() and not force:
        raise ExportError(
            f"{path} exists: name another with --output, or overwrite it with --force"
        )
    try:
        write_atomically(path, text, encoding=encoding)
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error.strerror}") from error
