"""`course test`: style, unit tests, notebooks against their stored outputs, and drift.

Each part says its name first; the last line counts everything. Arguments given after `--` go to
pytest, and then the unit tests run alone. Where the variable CI is set, notebooks and numeric tests
run once more as on another processor.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CELL_TIMEOUT = 600  # seconds; no cell takes more than a few, but other work may run beside it
NO_TESTS_COLLECTED = 5
AS_BUILT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}  # the notebooks' stored outputs were made so
OTHER_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",  # torch's own kernels without AVX2 and AVX-512
    "MKL_CBWR": "COMPATIBLE",  # matrix products by the instructions every processor has
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_NUM_THREADS": "2",
    "OMP_NUM_THREADS": "2",  # sums are cut in other places
    "OMP_WAIT_POLICY": "PASSIVE",  # a thread that waits leaves its core to the other worker
}
COMPARES_NUMBERS = re.compile(r"\b(assert_close|assert_allclose|allclose|assert_rounded)\(")
WORKERS = ["-n", "2", "--dist", "loadscope"]
PICTURES = "tests/pictures.cfg"  # what a figure says is compared, not how it is drawn
STYLE = {  # each command, as .pre-commit-config.yaml has it, and what to do about what it finds
    "ruff check .": "fix with: ruff check --fix .",
    "ruff format --check .": "fix with: ruff format .",
    "lint-imports": "import only from rooms below: the contracts are in pyproject.toml",
    "basedpyright": "give each line the type that it says; the rules are in pyproject.toml",
}
NBVAL = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
NBVAL += [f"--nbval-sanitize-with={PICTURES}"]


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
        "style: ruff, lint-imports, basedpyright": style,
        "unit tests: pytest tests": unit_tests,
        "notebooks against their stored outputs: nbval": notebooks,
        "notebooks against their lesson text: course build --check": drift,
    }
    if os.environ.get("CI"):
        parts["notebooks and numeric tests as on another processor"] = other_processor
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
    """Lint, compare with the formatter's layout, look at imports and types: four checks."""
    failed = [command for command in STYLE if _tool(root, command)]
    for command in failed:
        print(f"{command} failed; {STYLE[command]}", flush=True)
    return Count(passed=len(STYLE) - len(failed), failed=len(failed))


def _tool(root: Path, command: str) -> int:
    """Run a command of this environment in `root`, as in a shell where it is activated."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    name, *arguments = command.split()
    program = shutil.which(name, path=path)
    if program is None:
        print(f"{name} is not installed; install with: pip install -e '.[dev]'", flush=True)
        return 1
    environ = {**os.environ, "PATH": path}  # there basedpyright finds this environment's Python
    return subprocess.run([program, *arguments], cwd=root, env=environ).returncode


def unit_tests(root: Path, arguments: Sequence[str] = ()) -> Count:
    """Run tests/ with pytest, on two workers unless it gets arguments of its own."""
    slow_ones_first = "--no-loadscope-reorder"
    return _pytest(root, arguments or ["-q", *WORKERS, slow_ones_first, "tests"])


def notebooks(root: Path) -> Count:
    """Execute every solution notebook and compare each cell with its stored output."""
    found = _files(root, "solutions/*/*.ipynb")
    if not found:
        print("there is no solution notebook; make them with: course build", flush=True)
        return Count(failed=1)
    workers = WORKERS if len(found) > 1 else []
    return _pytest(root, ["-q", *NBVAL, *workers, *found])


def other_processor(root: Path) -> Count:
    """Run notebooks and numeric tests with the processor's newer instructions held down.

    Sums come out in another order then, and so with other last digits: what passes here and as
    built says nothing that only one processor can say.
    """
    settings = " ".join(f"{name}={value}" for name, value in OTHER_PROCESSOR.items())
    print(f"with {settings}", flush=True)
    found = [*numeric_tests(root), *_files(root, "solutions/*/*.ipynb")]
    return _pytest(root, ["-q", *NBVAL, *WORKERS, *found], OTHER_PROCESSOR)


def numeric_tests(root: Path) -> list[str]:
    """The test files that compare numbers up to a tolerance."""
    tests = _files(root, "tests/test_*.py")
    return [name for name in tests if COMPARES_NUMBERS.search((root / name).read_text("utf-8"))]


def _files(root: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob(pattern))


def drift(root: Path) -> Count:
    """Compare the notebooks with the lesson texts they are built from: one check."""
    code = _run(root, ["course_lib.cli", "build", "--check"])
    return Count(failed=1) if code else Count(passed=1)


def _pytest(root: Path, arguments: Sequence[str], settings: Mapping[str, str] = AS_BUILT) -> Count:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.xml"
        code = _run(root, ["pytest", f"--junitxml={result}", *arguments], settings)
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


def _run(root: Path, module: Sequence[str], settings: Mapping[str, str] = AS_BUILT) -> int:
    """Run `python -m MODULE ...` in `root`, with `settings` in its environment."""
    environ = {**os.environ, "PYTHONHASHSEED": "0", **settings}
    return subprocess.run([sys.executable, "-m", *module], cwd=root, env=environ).returncode
