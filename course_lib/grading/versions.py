"""What a result depends on, as digests: change any of it and what depends on it is graded again."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from types import MappingProxyType

from course_lib.checks import lessons
from course_lib.checks.exercise import Exercise
from course_lib.grading.kernels.sandbox import Limits

_PACKAGE = Path(__file__).resolve().parents[1]
_ENGINE = (
    "checks/remote.py",
    "checks/verdict.py",
    "checks/report.py",
    "grading/runner.py",
    "grading/check_outputs.py",
)
VERSION = "1"  # of the rules by which points are given; a new one regrades everybody


@functools.cache
def checks_digests(lesson: str, package: Path = _PACKAGE) -> MappingProxyType[str, str]:
    """For each exercise of a lesson a digest of the sources that decide its points.

    These are the engine, the exercise's own module of the catalogue, the oracle, and what they
    import. The integration stands under the lesson's slug; it depends on the whole catalogue.

    Args:
        lesson: slug.
        package: the folder of `course_lib` whose files are read.
    """
    home = package / f"checks/catalogue/{lesson.partition('_')[2]}.py"
    engine = _closure(package / name for name in _ENGINE)
    about = lessons()[lesson]
    found = {name: _own_file(name, home) for name in about.exercises}
    if about.integration is not None:
        found[lesson] = home
    return MappingProxyType(
        {name: _digest(engine | _closure([path])) for name, path in found.items()}
    )


def key_of(data: bytes, release: str, seed: str, limits: Limits) -> str:
    """What a result is kept under: all that it depends on but for the checks."""
    digest = hashlib.sha256()
    for part in (data, release.encode(), seed.encode(), repr(astuple(limits)).encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def work_of(data: bytes) -> str:
    """The submission itself, whatever it is graded with."""
    return hashlib.sha256(data).hexdigest()


def _own_file(exercise: str, home: Path) -> Path:
    """The file from which a lesson's module imports an exercise; the module itself if it has it."""
    module = importlib.import_module(f"course_lib.checks.catalogue.{home.stem}")
    for node in ast.parse(home.read_text(encoding="utf-8")).body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            value = getattr(module, alias.name, None)
            if isinstance(value, Exercise) and value.name == exercise:
                return home.with_name(f"{node.module.rpartition('.')[2]}.py")
    return home


def _closure(paths: Iterable[Path]) -> set[Path]:
    """These files and all of course_lib.checks and course_lib.reference that they import."""
    seen: set[Path] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path not in seen and path.is_file():
            seen.add(path)
            waiting += _imported(path)
    return seen


def _imported(path: Path) -> list[Path]:
    package = next(parent for parent in path.parents if parent.name == "course_lib")
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith(("course_lib.checks.", "course_lib.reference.")):
                found.append(package.parent / f"{name.replace('.', '/')}.py")
    return found


def _digest(paths: set[Path]) -> str:
    digest = hashlib.sha256(VERSION.encode())
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
