"""What a result depends on, as digests: change any of it and what depends on it is graded again."""

from __future__ import annotations

import functools
import hashlib
import hmac
from dataclasses import astuple
from pathlib import Path
from types import MappingProxyType

from course_lib.checks import lessons
from course_lib.grading.sandbox.confinement import Limits
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
def checks_digests(lesson: str, package: Path = _PACKAGE) -> MappingProxyType[str, str]:
    """For each exercise of a lesson a digest of the sources that decide its points.

    These are the engine, the exercise's own file, the oracle, and what they import; comments and
    messages are left out. The integration is there under the lesson's slug.

    Args:
        lesson: slug.
        package: the folder of `course_lib` whose files are read.
    """
    if lesson not in lessons():  # an ordinary nbgrader assignment
        return MappingProxyType({})
    home, about = package / "exercises" / lesson[3:], lessons()[lesson]
    starts = {name: [home / f"{name}.py"] for name in about.exercises}
    if about.integration is not None:
        judged = about.integration.judged_as or about.integration.chain[-1]
        starts[lesson] = [home / "__init__.py", home / f"{judged}.py"]

    def decides(path: Path) -> bool:  # of grading only the files of the engine can change points
        name = path.relative_to(package).as_posix()
        return name in _ENGINE or name.startswith(("checks/", "exercises/", "reference/"))

    def digest(files: list[Path]) -> str:
        files = [*(package / name for name in _ENGINE), *files]
        decisive = reached(files, package, skip=lambda path: not decides(path))
        return hashlib.sha256(f"{VERSION}/{digest_of(decisive, package)}".encode()).hexdigest()

    return MappingProxyType({name: digest(files) for name, files in starts.items()})


def key_of(data: bytes, release: str, seed: str, limits: Limits) -> str:
    """What a result is kept under: all that it depends on but for the checks."""
    digest = hashlib.sha256()
    for part in (data, release.encode(), seed.encode(), repr(astuple(limits)).encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def work_of(data: bytes) -> str:
    """The submission itself, whatever it is graded with."""
    return hashlib.sha256(data).hexdigest()


def seed_of(secret: str, student: str, work: str) -> str:
    """What the inputs for one submission are drawn from: what it prints helps nobody else.

    The same work of the same student meets the same inputs again.
    """
    parts = (part.encode("utf-8", "surrogatepass") for part in (student, work))
    return hmac.new(secret.encode(), b"\0".join(parts), "sha256").hexdigest()
