"""Read outside text that is not a notebook: folder and file names, and timestamps.

What comes through is valid UTF-8 of bounded size from an ordinary file. What does not is refused
with a sentence, before anything waits for it or keeps it.
"""

import contextlib
import os
import re
import secrets
import stat
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dateutil import parser

from course_lib.grading.clean_outputs import plain_text

STAMP, SECRET = "timestamp.txt", "submission_secret.txt"
MOST_STAMP = 100  # bytes of a timestamp.txt: a date has some thirty
MOST_SEED = 1_000
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_OPEN |= getattr(os, "O_BINARY", 0)


class IntakeError(Exception):
    """A submission cannot be read; the message is the reason shown to the instructor."""


def utf8(name: str) -> str:
    r"""Return a name as valid text, in which bytes that are not UTF-8 become `\xf6`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def one_line(name: str, most: int = 80) -> str:
    """Return a name without characters that would disturb a line of text."""
    return plain_text(utf8(name)).replace("\n", " ")[:most]


def read_ordinary(path: Path, most: int, remedy: str = "ask for a smaller one") -> bytes:
    """Return the bytes of a file; IntakeError if it is not ordinary or has more than `most`."""
    name = one_line(path.name)
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise IntakeError(f"{name} is not an ordinary file: ask for the file itself")
        if about.st_size > most:
            size = f"{about.st_size / 1e6:.0f} MB" if most > 1e6 else f"{about.st_size:,} bytes"
            raise IntakeError(f"{name} has {size}: {remedy}")
        with os.fdopen(os.open(path, _OPEN), "rb") as file:  # not what was put there since
            return file.read(most)
    except OSError as error:
        raise IntakeError(f"{name} cannot be read: {error.strerror}") from error


class Stamp(NamedTuple):
    """The timestamp.txt of a submission."""

    text: str = ""  # what the file holds, if that may be a date
    time: datetime | None = None  # in UTC and without a zone; None if it is not known
    problem: str = ""  # why the time is not known although there is a file


def read_stamp(folder: Path) -> Stamp:
    """Read when a submission was handed in. What cannot be read for certain is not guessed."""
    path = folder / STAMP
    if not path.exists() and not path.is_symlink():
        return Stamp()
    text = ""
    try:
        text = read_ordinary(path, MOST_STAMP).decode("utf-8").strip()
        return Stamp(text, parse_time(text))
    except UnclearTimeError as error:
        return Stamp(text, None, f"{STAMP} {error}: taken as handed in on time")
    except Exception:  # dateutil fails in several ways on garbage
        return Stamp(problem=f"{STAMP} holds no date: taken as handed in on time")


class UnclearTimeError(Exception):
    """A date that can be read in more than one way."""


def parse_time(text: str) -> datetime:
    """Parse a date in ISO 8601 or as people and mail programs write one.

    dateutil by itself takes an unknown zone for UTC, a number that may be a month for one, and
    today's date for what is left out.
    """
    text = re.sub(r"\b(?:UTC|GMT) ?(?=[+-]\d)", "", text)  # UTC+3 is +3, whatever POSIX says
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
        raise UnclearTimeError("does not say for certain which day it means; write YYYY-MM-DD")
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _zone(name: str) -> ZoneInfo | None:
    """Return a zone by its name in the IANA database, the same on every machine."""
    with contextlib.suppress(KeyError, ValueError, OSError):
        if re.fullmatch(r"[A-Za-z][\w+/-]*", name):
            return ZoneInfo(name)
    return None


def exchange_files(folder: Path) -> dict[str, str]:
    """Return what nbgrader's exchange wants beside a feedback page, by name.

    Work that did not come by the exchange gets a secret that nobody knows: its page is released
    with the others, to a place where nobody looks.
    """
    try:
        secret = read_ordinary(folder / SECRET, MOST_SEED).decode("utf-8")
    except (IntakeError, UnicodeDecodeError):
        secret = secrets.token_hex(32)
    return {STAMP: f"{read_stamp(folder).text}\n", SECRET: secret}
