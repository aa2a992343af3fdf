"""What a result depends on, as digests: change any of it and the submission is graded again."""

from __future__ import annotations

import functools
import hashlib
import hmac
from pathlib import Path

from course_lib.workspace.sources import digest_of, reached

_PACKAGE = Path(__file__).resolve().parents[1]
_ENGINE = (
    "checks/observe/remote.py",
    "checks/judge/grade.py",
    "checks/judge/report.py",
    "grading/judging/runner.py",
    "grading/judging/session.py",
    "grading/judging/exercise.py",
    "grading/judging/cells.py",
    "grading/publishing/check_outputs.py",
)
VERSION = "1"  # of the rules by which points are given; a new one regrades everyone


@functools.cache
def checks_digest(lesson: str, package: Path = _PACKAGE) -> str:
    """Return a digest of the sources that decide the points of a lesson.

    These are the engine, the exercises, the oracle, and what they import; comments are left out.
    """

    def decides(path: Path) -> bool:  # of grading only the files of the engine can change points
        name = path.relative_to(package).as_posix()
        return name in _ENGINE or name.startswith(("checks/", "exercises/", "reference/"))

    files = [package / name for name in _ENGINE]
    files += (package / "exercises" / lesson[3:]).glob("*.py")
    return digest_of(reached(files, package, skip=lambda path: not decides(path)), package)


def key_of(data: bytes, *conditions: object) -> str:
    """Return what a result is kept under: digests of the submission, and of all it depends on."""
    known = hashlib.sha256(repr((VERSION, *conditions)).encode("utf-8", "surrogatepass"))
    return f"{work_of(data)}/{known.hexdigest()}"


def same_work(key: str, other: str) -> bool:
    """Return whether two keys are of the same submission, whatever it is graded with."""
    return key.partition("/")[0] == other.partition("/")[0]


def work_of(data: bytes) -> str:
    """The submission itself, whatever it is graded with."""
    return hashlib.sha256(data).hexdigest()


def seed_of(secret: str, student: str, work: str) -> str:
    """What the inputs for one submission are drawn from: what it prints helps nobody else.

    The same work of the same student meets the same inputs again.
    """
    parts = (part.encode("utf-8", "surrogatepass") for part in (student, work))
    return hmac.new(secret.encode(), b"\0".join(parts), "sha256").hexdigest()
