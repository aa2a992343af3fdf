"""A CSV file that can be changed in one cell and is else written back byte for byte.

Every cell keeps the text it had in the file. Dialect, byte order mark, encoding, line ends and
quoting are found out, never chosen. Plain tables of ours are written here too (RFC 4180).
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from course_lib.grading.exports.shown import listed
from course_lib.workspace.errors import ExportError

MAX_BYTES = 100_000_000
DELIMITERS = ",;\t:"
# What spreadsheets take for the beginning of a formula: OWASP, "CSV Injection",
# https://owasp.org/www-community/attacks/CSV_Injection
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_LINE_END = re.compile(r"\r\n|\n|\r")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)")
_BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


@dataclass
class Row:
    """One record: the cells as they are in the file, their values, and the line end."""

    line: int
    raw: list[str]
    values: list[str]
    end: str

    @property
    def blank(self) -> bool:
        """Whether all cells are empty."""
        return not any(value.strip() for value in self.values)


@dataclass
class Sheet:
    """A CSV file as it was read."""

    path: Path
    rows: list[Row]
    delimiter: str = ","
    encoding: str = "utf-8"
    bom: bytes = field(default=b"")

    @property
    def header(self) -> list[str]:
        """The values of the first row, without the blanks around them."""
        return [value.strip() for value in self.rows[0].values]

    def value(self, row: int, column: int) -> str:
        """A cell's value without the blanks around it; "" where the row is too short."""
        values = self.rows[row].values
        return values[column].strip() if column < len(values) else ""

    def put(self, row: int, column: int, text: str) -> None:
        """Change one cell; it stays quoted if it was.

        Raises:
            ExportError: the row has no such cell.
        """
        target = self.rows[row]
        if column >= len(target.raw):
            raise ExportError(
                f"{self.path}, line {target.line}: {len(target.raw)} cells, the header has "
                f"{len(self.rows[0].raw)}: download the file again and do not edit it"
            )
        special = (self.delimiter, '"', "\r", "\n")
        quoted = target.raw[column].startswith('"') or any(mark in text for mark in special)
        target.raw[column] = '"' + text.replace('"', '""') + '"' if quoted else text
        target.values[column] = text

    def as_bytes(self) -> bytes:
        """The file's contents."""
        text = "".join(self.delimiter.join(row.raw) + row.end for row in self.rows)
        return self.bom + text.encode(self.encoding)

    def decimal_mark(self, columns: Iterable[int]) -> str:
        """ "," if the numbers of these columns are written with a comma, else "."."""
        texts = [self.value(row, column) for row in range(1, len(self.rows)) for column in columns]
        numbers = [text for text in texts if _NUMBER.fullmatch(text)]
        commas = any("," in text for text in numbers)
        return "," if commas and not any("." in text for text in numbers) else "."


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file.

    Raises:
        ExportError: there is none, it is empty, or it is something else; the message says what.
    """
    bom, encoding, text = _decode(path, _read_bytes(path))
    delimiter = _delimiter(path, text)
    sheet = Sheet(path, list(_records(path, text, delimiter)), delimiter, encoding, bom)
    if len(sheet.rows[0].raw) < 2:
        raise ExportError(f"{path} is not a CSV file: its first line has one column only")
    return sheet


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise ExportError(f"{path} is a folder: name the file in it")
        if path.stat().st_size > MAX_BYTES:
            raise ExportError(f"{path} has over {MAX_BYTES / 1e6:.0f} MB: that is no gradebook")
        return path.read_bytes()
    except FileNotFoundError:
        folder = path.parent
        there = sorted(p.name for p in folder.glob("*.csv")) if folder.is_dir() else []
        has = f" ({folder} holds {listed(there, 5)})" if there else ""
        raise ExportError(f"{path}: no such file{has}") from None
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}") from error


def _decode(path: Path, data: bytes) -> tuple[bytes, str, str]:
    """The byte order mark, the encoding and the text of a file."""
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise ExportError(f"{path} is a workbook, not CSV: download it as CSV")
    bom, encoding = next(((b, e) for b, e in _BOMS.items() if data.startswith(b)), (b"", "utf-8"))
    body = data[len(bom) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252" if not bom else "latin-1"
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError:
            encoding, text = "latin-1", body.decode("latin-1")
    if not text.strip():
        raise ExportError(f"{path} is empty: download it again")
    if "\0" in text:
        raise ExportError(f"{path} is not a CSV file: download it again")
    if text.lstrip()[:20].casefold().startswith(("<!doctype", "<html", "<?xml")):
        raise ExportError(f"{path} is a web page, not CSV: sign in and download it again")
    return bom, encoding, text


def _delimiter(path: Path, text: str) -> str:
    """The delimiter that gives the first rows the same number of cells, and the most."""

    def score(delimiter: str) -> tuple[bool, int]:
        try:
            rows = [row for row in islice(_records(path, text, delimiter), 5) if not row.blank]
        except ExportError:
            return False, 0
        sizes = [len(row.raw) for row in rows] or [1]
        return len(set(sizes)) == 1 and sizes[0] > 1, sizes[0]

    return max(DELIMITERS, key=score)


def _records(path: Path, text: str, delimiter: str) -> Iterator[Row]:
    """The records of a file; joining what they hold gives the text again."""
    mark = re.escape(delimiter)
    plain = re.compile(rf"[^{mark}\r\n]*")
    quoted = re.compile(rf'"([^"]*(?:""[^"]*)*)"([^{mark}\r\n]*)')
    at, line, row = 0, 1, Row(1, [], [], "")
    while True:
        is_quoted = text.startswith('"', at)
        found = (quoted if is_quoted else plain).match(text, at)
        if found is None:  # a plain one may be empty, so it is always found
            raise ExportError(f"{path}, line {line}: a quotation mark is never closed")
        row.raw.append(found[0])
        row.values.append(found[1].replace('""', '"') + found[2] if is_quoted else found[0])
        at = found.end()
        if text.startswith(delimiter, at):
            at += 1
            continue
        if end := _LINE_END.match(text, at):
            row.end, at = end[0], end.end()
        line += len(_LINE_END.findall(found[0])) + bool(row.end)
        yield row
        if at >= len(text):
            return
        row = Row(line, [], [], "")


def parse_number(text: str) -> float | None:
    """A number with a decimal point or comma, or None."""
    text = text.strip()
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None


def neutral(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe goes before such a beginning."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def table_bytes(rows: Iterable[Sequence[str | float | None]]) -> bytes:
    """A table as RFC 4180 has it, in UTF-8: numbers stay numbers, texts are made neutral."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow([_written(cell) for cell in row])
    return out.getvalue().encode("utf-8", "replace")


def _written(cell: str | float | None) -> str:
    if cell is None:
        return ""
    return neutral(cell) if isinstance(cell, str) else format(cell, ".10g")


def write_new(path: Path, data: bytes, *, force: bool = False) -> None:
    """Write a file completely or not at all.

    Raises:
        ExportError: it exists and `force` is not set, or it cannot be written.
    """
    if path.is_dir():
        raise ExportError(f"{path} is a folder: name a file with --output")
    if path.exists() and not force:
        raise ExportError(
            f"{path} exists: name another with --output, or overwrite it with --force"
        )
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise ExportError(f"{path} cannot be written: {error.strerror}") from error
