"""`course test`: style, unit tests, notebooks against their stored outputs, and drift.

Each part says its name first; the last line counts everything. Arguments given after `--` go to
pytest, and then the unit tests run alone.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

CELL_TIMEOUT = 120
NO_TESTS_COLLECTED = 5


class Count(NamedTuple):
    """How many checks of a part passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def run(root: Path, pytest_args: Sequence[str] = ()) -> int:
    """Run all parts, or only the unit tests when they get arguments; return the exit code."""
    parts: dict[str, Callable[[Path], Count]] = {
        "style: ruff": style,
        "unit tests: pytest tests": unit_tests,
        "notebooks against their stored outputs: nbval": notebooks,
        "notebooks against their lesson text: course build --check": drift,
    }
    if pytest_args:
        parts = {"unit tests": lambda folder: unit_tests(folder, pytest_args)}
    counts = {}
    for number, (title, part) in enumerate(parts.items(), 1):
        print(f"\n[{number}/{len(parts)}] {title}", flush=True)
        started = time.monotonic()
        counts[title] = part(root)
        print(f"{title}: {counts[title]} in {time.monotonic() - started:.0f} s", flush=True)
    total = Count(*(sum(column) for column in zip(*counts.values(), strict=True)))
    print(f"\n{total}", flush=True)
    return 1 if total.failed or not total.passed else 0


def style(root: Path) -> Count:
    """Lint and compare with the formatter's layout: two checks."""
    commands = (["check", "--quiet"], ["format", "--check", "--quiet"])
    codes = [_run(root, ["ruff", *command, "."]) for command in commands]
    if any(codes):
        print("mend with: ruff check --fix . && ruff format .", flush=True)
    return Count(passed=codes.count(0), failed=len(codes) - codes.count(0))


def unit_tests(root: Path, arguments: Sequence[str] = ()) -> Count:
    """Run tests/ with pytest, on two workers unless it gets arguments of its own."""
    workers = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]  # slow ones first
    return _pytest(root, arguments or ["-q", *workers, "tests"])


def notebooks(root: Path) -> Count:
    """Execute every solution notebook and compare each cell with its stored output."""
    found = sorted(str(path.relative_to(root)) for path in root.glob("solutions/*/*.ipynb"))
    if not found:
        print("there is no solution notebook; make them with: course build", flush=True)
        return Count(failed=1)
    arguments = ["-q", "--nbval", "--nbval-current-env", "--nbval-cell-timeout", str(CELL_TIMEOUT)]
    workers = ["-n", "2", "--dist", "loadscope"] if len(found) > 1 else []
    return _pytest(root, [*arguments, *workers, *found])


def drift(root: Path) -> Count:
    """Compare the notebooks with the lesson texts they are built from: one check."""
    code = _run(root, ["course_lib.cli", "build", "--check"])
    return Count(failed=1) if code else Count(passed=1)


def _pytest(root: Path, arguments: Sequence[str]) -> Count:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.xml"
        code = _run(root, ["pytest", f"--junitxml={result}", *arguments])
        count = read_junit(result)
    if code == NO_TESTS_COLLECTED:
        print("no test was found", flush=True)
    if code and not count.failed:  # pytest itself failed: that must not pass for a success
        return count._replace(failed=1)
    return count


def read_junit(path: Path) -> Count:
    """Count the tests of a JUnit file; a missing or broken file counts as one failure."""
    try:
        suites = ElementTree.parse(path).getroot().iter("testsuite")
        numbers = [{key: int(suite.get(key, 0)) for key in KEYS} for suite in suites]
    except (OSError, ElementTree.ParseError, ValueError):
        return Count(failed=1)
    total = {key: sum(number[key] for number in numbers) for key in KEYS}
    failed = total["failures"] + total["errors"]
    return Count(total["tests"] - failed - total["skipped"], failed, total["skipped"])


KEYS = ("tests", "failures", "errors", "skipped")


def _run(root: Path, module: Sequence[str]) -> int:
    """Run `python -m MODULE ...` in `root` the way the notebooks were built: on one thread."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    return subprocess.run([sys.executable, "-m", *module], cwd=root, env=environ).returncode
