"""Read ordinary files of bounded size."""

import os
import stat
from pathlib import Path

from course_lib.workspace.text import one_line

_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_OPEN |= getattr(os, "O_BINARY", 0)


MAX_BYTES = 100_000_000  # of a notebook


class IntakeError(Exception):
    """A submission cannot be read; the message is the reason shown to the instructor."""

    is_final = True  # a retry would fail again, so it needs --force


def read_ordinary(path: Path, most: int, remedy: str = "ask for a smaller one") -> bytes:
    """Return the bytes of a file, or raise IntakeError if it is special or exceeds `most` bytes."""
    name = one_line(path.name)
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise IntakeError(f"{name} is not an ordinary file: ask for the file itself")
        if about.st_size > most:
            size = f"{about.st_size / 1e6:.0f} MB" if most > 1e6 else f"{about.st_size:,} bytes"
            raise IntakeError(f"{name} has {size}: {remedy}")
        with os.fdopen(os.open(path, _OPEN), "rb") as file:  # the path may lead elsewhere by now
            return file.read(most)
    except OSError as error:
        raise IntakeError(f"{name} cannot be read: {error.strerror}") from error


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a submitted notebook, or raise an IntakeError."""
    return read_ordinary(path, MAX_BYTES, "ask for it with its outputs cleared")
