"""Read the time of a submission, and the files that nbgrader's exchange needs beside it."""

import contextlib
import re
import secrets
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dateutil import parser

from course_lib.grading.intake.ordinary_files import IntakeError, one_line, read_ordinary

STAMP, SECRET = "timestamp.txt", "submission_secret.txt"
_MOST_STAMP, _MOST_SECRET = 100, 1_000  # bytes; a date has about 30


class Stamp(NamedTuple):
    """The timestamp.txt of a submission."""

    text: str = ""  # the contents, if they may be a date
    time: datetime | None = None  # in UTC but without a zone; None if unknown
    problem: str = ""  # why the time is unknown although there is a file


def read_stamp(folder: Path) -> Stamp:
    """Read when a submission was handed in. An ambiguous time counts as unknown."""
    path = folder / STAMP
    if not path.exists() and not path.is_symlink():
        return Stamp()
    text = ""
    try:
        text = read_ordinary(path, _MOST_STAMP).decode("utf-8").strip()
        return Stamp(text, parse_time(text))
    except UnclearTimeError as error:
        return Stamp(text, None, f"{STAMP} {error}: taken as handed in on time")
    except Exception:  # dateutil raises errors of several types
        return Stamp(problem=f"{STAMP} holds no date: taken as handed in on time")


class UnclearTimeError(Exception):
    """A date that can be read in more than one way."""


def parse_time(text: str) -> datetime:
    """Parse a date in ISO 8601 or as people and mail programs write one.

    dateutil alone would take an unknown zone for UTC, an ambiguous number for a month, and today's
    date for missing parts.
    """
    text = re.sub(r"\b(?:UTC|GMT) ?(?=[+-]\d)", "", text)  # UTC+3 means +3, unlike in POSIX
    text = re.sub(r"([+-]\d\d:?\d\d) \(?[A-Za-z ]+\)?$", r"\1", text)  # +0900 (JST)
    head, _, last = text.rpartition(" ")
    zone = _zone(last)

    def zone_of(name: str | None, offset: int | None) -> tzinfo | None:
        if not name:
            return zone if offset is None else timezone(timedelta(seconds=offset))
        if offset or not (found := _zone(name)):
            advice = "which is not certain; write an offset such as +01:00"
            raise UnclearTimeError(f"names the time zone {one_line(name)}, {advice}")
        return found

    written = head if zone else text
    default, day_first = datetime(2000, 1, 1), not re.match(r"\d{4}\D", written)
    found = parser.parse(written, default=default, tzinfos=zone_of)
    default = datetime(2001, 2, 2)
    again = parser.parse(written, default=default, tzinfos=zone_of, dayfirst=day_first)
    if found != again:
        raise UnclearTimeError("is an ambiguous date; write YYYY-MM-DD")
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _zone(name: str) -> ZoneInfo | None:
    """Return a zone by its name in the IANA database, the same on every machine."""
    with contextlib.suppress(KeyError, ValueError, OSError):
        if re.fullmatch(r"[A-Za-z][\w+/-]*", name):
            return ZoneInfo(name)
    return None


def exchange_files(folder: Path) -> dict[str, str]:
    """Return the files that nbgrader's exchange needs beside a feedback page, by name.

    Work that did not arrive through the exchange gets a random secret. Its page is released with
    the others, to a place that nobody can find.
    """
    try:
        secret = read_ordinary(folder / SECRET, _MOST_SECRET).decode("utf-8")
    except (IntakeError, UnicodeDecodeError):
        secret = secrets.token_hex(32)
    return {STAMP: f"{read_stamp(folder).text}\n", SECRET: secret}
