"""Errors whose message is one sentence that names the place and the remedy.

The command line prints the message of a `CourseError`, without a traceback, and ends with its exit
code. Standard library only: the set-up raises them before anything is installed.
"""

import os
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path

_LONGEST_TMPDIR = 70  # a socket's path has at most 107 bytes on Linux and 103 on macOS


def of_pythonpath(error: BaseException) -> str | None:
    """Return the remedy for an import that failed in a folder of PYTHONPATH, or None for others."""
    if isinstance(error, ImportError):
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if folder := pythonpath_of(frame.filename):
                return f"PYTHONPATH brings in packages of another Python from {folder}: unset it"
    return None


def long_tmpdir() -> str | None:
    """Return what is wrong with a TMPDIR in which no socket can be made, or None."""
    folder = tempfile.gettempdir()
    if sys.platform == "win32" or len(os.fsencode(folder)) <= _LONGEST_TMPDIR:
        return None
    return (
        f"the folder for temporary files, {folder}, has too long a name for sockets: set TMPDIR "
        f"to one of at most {_LONGEST_TMPDIR} characters"
    )


def pythonpath_of(file: str) -> str | None:
    """Return the folder of PYTHONPATH from which Python imported a file, or None.

    A folder that Python searches anyway replaces nothing, and neither does one that merely contains
    the environment.
    """
    named = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("purelib", "platlib", "stdlib")}
    real = Path(os.path.realpath(file))
    within = [path for path in map(os.path.realpath, sys.path) if real.is_relative_to(path)]
    nearest = max(within, key=len, default="")
    return next((f for f in named if os.path.realpath(f) == nearest not in own), None)


class CourseError(Exception):
    """A problem that the user has to fix. `exit_code` is the exit code of the command."""

    exit_code = 1


class UsageError(CourseError):
    """A command, or a file named in it, is wrong and nothing was done."""

    exit_code = 2


class BuildError(CourseError):
    """A problem that an author has to fix before a lesson can be built.

    Args:
        path: the file to open, relative to the course root where possible.
        line: its line, counted from 1; None where the whole file is meant.
        what: what is wrong, without a closing full stop.
        remedy: what to do about it, a sentence.
    """

    def __init__(self, path: object, line: int | None, what: str, remedy: str):
        self.path, self.line, self.what, self.remedy = str(path), line, what, remedy
        where = f"{path}:{line}" if line else f"{path}"
        super().__init__(f"{where}: {what}. {remedy}")


class GradingError(CourseError):
    """Grading cannot start."""


class ExportError(GradingError):
    """The options of an export are wrong, or its file is not the right one."""

    exit_code = 2


class SetupError(CourseError):
    """The environment cannot be set up."""
