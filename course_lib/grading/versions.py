"""What a result depends on, as digests: change any of it and the submission is graded again."""

from __future__ import annotations

import ast
import functools
import hashlib
from dataclasses import astuple
from pathlib import Path

from course_lib.grading.kernels.sandbox import Limits

_PACKAGE = Path(__file__).resolve().parents[1]
_ENGINE = ("checks/remote.py", "checks/verdict.py", "checks/report.py", "grading/runner.py")
VERSION = "1"  # of the rules by which points are given; a new one regrades everybody


@functools.cache
def checks_digest(lesson: str) -> str:
    """A digest of the sources that decide a lesson's points: its catalogue, oracle, the engine.

    Another lesson's catalogue is not among them, so changing that one regrades nobody here.
    """
    slug = lesson.partition("_")[2]
    seen: set[Path] = set()
    waiting = [_PACKAGE / f"checks/catalogue/{slug}.py", *(_PACKAGE / name for name in _ENGINE)]
    while waiting:
        path = waiting.pop()
        if path not in seen and path.is_file():
            seen.add(path)
            waiting += _imported(path)
    digest = hashlib.sha256(VERSION.encode())
    for path in sorted(seen):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key_of(data: bytes, release: str, checks: str, seed: str, limits: Limits) -> str:
    """What a result is kept under."""
    digest = hashlib.sha256()
    for part in (
        data,
        release.encode(),
        checks.encode(),
        seed.encode(),
        repr(astuple(limits)).encode(),
    ):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _imported(path: Path) -> list[Path]:
    """The files of course_lib.checks and course_lib.reference that a file imports."""
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
                found.append(_PACKAGE.parent / f"{name.replace('.', '/')}.py")
    return found
