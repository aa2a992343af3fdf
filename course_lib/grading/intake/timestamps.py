"""Read the time of a submission, and the files that nbgrader's exchange needs beside it."""

import contextlib
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from course_lib.grading.intake.ordinary_files import IntakeError, read_ordinary
from course_lib.workspace.text import one_line

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
    except (IntakeError, ValueError):
        return Stamp(problem=f"{STAMP} holds no date: taken as handed in on time")


class UnclearTimeError(ValueError):
    """The time zone of a date can be read in more than one way."""


def parse_time(text: str) -> datetime:
    """Parse a date in ISO 8601, which an offset such as UTC+3 or the name of a zone may follow.

    Raises:
        UnclearTimeError: the zone is not certain.
        ValueError: the text is not such a date.
    """
    text = re.sub(r" ?(?:UTC|GMT)? ?([+-]\d\d(?::?\d\d)?|Z)$", r"\1", text)
    text = re.sub(r" ?(?:UTC|GMT) ?([+-])(\d)$", r"\g<1>0\2:00", text)  # +3, unlike in POSIX
    head, _, last = text.rpartition(" ")
    zone, is_named = None, last[:1].isalpha()
    with contextlib.suppress(KeyError, ValueError, OSError):
        if re.fullmatch(r"[A-Za-z][\w+/-]*", last):
            zone = ZoneInfo(last)  # by its name in the IANA database, the same on every machine
    found = datetime.fromisoformat(head if is_named else text)
    if is_named and not zone:
        advice = "which is not certain; write an offset such as +01:00"
        raise UnclearTimeError(f"names the time zone {one_line(last)}, {advice}")
    found = found.replace(tzinfo=found.tzinfo or zone)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


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
