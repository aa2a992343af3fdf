"""CSV files: read one from an LMS, change some cells, and write it in the same dialect."""

import codecs
import csv
import functools
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib.workspace.errors import ExportError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.text import one_line, visible

_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)")


@dataclass
class Sheet:
    """A CSV file: its header, its rows as long as the header, and its dialect (RFC 4180)."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    delimiter: str = ","
    line_end: str = "\r\n"
    encoding: str = "utf-8"

    def columns(self, *names: str) -> list[int]:
        """Return the columns with these names, in the order of the names."""
        keys = [key(name) for name in self.header]
        return [at for name in names for at, found in enumerate(keys) if found == key(name)]

    def column(self, name: str) -> int:
        """Return the only column with this name."""
        found = self.columns(name)
        if len(found) != 1:
            has = f"{self.path} has {len(found) or 'no'} columns {name!r}"
            raise ExportError(f"{has}; its columns: {listed(self.header)}")
        return found[0]

    @functools.cached_property
    def decimal_mark(self) -> str:
        """Return the decimal mark of most numbers in the file."""
        numbers = [text for row in self.rows for text in row if parse_number(text) is not None]
        commas = sum("," in number for number in numbers)
        return "," if commas > sum("." in number for number in numbers) else "."

    def write(self, path: Path, *, force: bool) -> None:
        """Write the file completely or not at all. `force` replaces an existing one."""
        if path.is_dir():
            raise ExportError(f"{path} is a folder: name a file with --output")
        if not path.parent.is_dir():
            remedy = "make it, or name another file with --output"
            raise ExportError(f"{path.parent} is not a folder: {remedy}")
        if path.exists() and not force:
            raise ExportError(
                f"{path} exists: name another with --output, or overwrite it with --force"
            )
        out, rows = io.StringIO(newline=""), [self.header, *self.rows]
        csv.writer(out, delimiter=self.delimiter, lineterminator=self.line_end).writerows(rows)
        try:
            write_atomically(path, out.getvalue(), encoding=self.encoding)
        except OSError as error:
            raise ExportError(f"{path} cannot be written: {error.strerror}") from error


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file without its blank rows, and pad short rows."""
    encoding, text = _decode(path)
    text = re.sub(r"^sep=.\r?\n", "", text.lstrip("\r\n"))  # a line for Excel
    if not text.strip(' \t\r\n,;:"'):
        raise ExportError(f"{path} is empty: download it again")
    if text.lstrip()[:20].casefold().startswith(("<!doctype", "<html", "<?xml")):
        raise ExportError(
            f"{path} is a web page, not CSV: sign in and download it again, or save its table"
        )
    rows: list[list[str]] = []
    try:
        widths = {each: len(next(_reader(text, each))) for each in ",;\t:"}
        delimiter = max(widths, key=lambda each: widths[each])
        rows.extend(_reader(text, delimiter, strict=True))
    except csv.Error as error:
        problem = f"row {len(rows) + 1}: {error}"
        raise ExportError(f"{path} is not a CSV file ({problem}): download it again") from error
    rows = [row for row in rows if "".join(row).strip()]
    size = len(rows[0])
    for number, row in enumerate(rows, 1):
        if any(cell.strip() for cell in row[size:]):
            raise ExportError(
                f"{path}, row {number}: {len(row)} cells below {size} headers. Is a text or a "
                "number with a comma not in quotes?"
            )
    header, *rows = [row + [""] * (size - len(row)) for row in rows]
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
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    utf = "utf-16" if wide else "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
    for encoding in (utf, "cp1252"):
        try:
            return encoding, data.decode(encoding)
        except UnicodeDecodeError:
            pass
    raise ExportError(f"{path} is not a CSV file: download it again")


def _reader(text: str, delimiter: str, *, strict: bool = False) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)


def parse_number(text: str) -> float | None:
    """Return the number in a text with a decimal point or comma, or None if there is none."""
    text = text.strip()
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None


def key(text: str) -> str:
    """Return text for comparisons: visible, stripped, case-folded and in Unicode form NFC."""
    return unicodedata.normalize("NFC", visible(text).strip().casefold())


def listed(names: Iterable[str]) -> str:
    """Return names for a message in one line."""
    names = [one_line(name) for name in names if name]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
