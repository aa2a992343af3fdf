"""`course test`: what a contributor needs, in four to seven minutes; with `--all` and in CI all.

| part | always | with `--all`, or where the variable CI is set |
|---|---|---|
| style | ruff, import contracts, types | |
| unit tests | those not marked slow; answers with one seed, more where it changed | all |
| drift | the notebooks against the lesson texts | |
| notebooks | | executed, against their stored outputs |
| another processor | | notebooks and numeric tests with its instructions held down |

Each part says its name first; the last line counts everything. Arguments given after `--` go to
pytest, and then the unit tests run alone.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from datetime import date
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
ALL_TESTS = ["-q", *WORKERS, "--no-loadscope-reorder", "tests"]  # the slow ones come first
RESULTS, DURATIONS = ".course/tests", "docs/test_durations.md"
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


def run(
    root: Path,
    pytest_args: Sequence[str] = (),
    *,
    everything: bool = False,
    durations: bool = False,
) -> int:
    """Run the parts, or only the unit tests when they get arguments; return the exit code.

    Args:
        root: the clone.
        pytest_args: for pytest.
        everything: run what takes longer, too; always so where the variable CI is set.
        durations: write what took how long into `DURATIONS`.
    """
    everything = everything or bool(os.environ.get("CI"))
    parts: dict[str, Callable[[Path], Count]] = {"style": style}
    if everything:
        parts |= {
            "unit tests": unit_tests,
            "drift": drift,
            "notebooks": notebooks,
            "another processor": other_processor,
        }
    else:
        parts |= {"unit tests": quick_tests, "drift": drift}
    if pytest_args:
        parts = {"unit tests": lambda folder: unit_tests(folder, pytest_args)}
    shutil.rmtree(root / RESULTS, ignore_errors=True)
    counts, seconds = {}, {}
    for number, (title, part) in enumerate(parts.items(), 1):
        print(f"\n[{number}/{len(parts)}] {title}", flush=True)
        started = time.monotonic()
        counts[title] = part(root)
        seconds[title] = time.monotonic() - started
        print(f"{title}: {counts[title]} in {seconds[title]:.0f} s", flush=True)
    total = Count(*(sum(column) for column in zip(*counts.values(), strict=True)))
    if durations:
        (root / DURATIONS).write_text(durations_table(root, seconds), encoding="utf-8")
        print(f"\nwhat took how long: {DURATIONS}", flush=True)
    if not everything and not pytest_args:
        print("\nleft out: slow tests, notebooks, another processor; `course test --all` runs them")
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
    settings = AS_BUILT if arguments else AS_BUILT | {"COURSE_TEST_ALL": "1"}
    return _pytest(root, arguments or ALL_TESTS, settings, "unit_tests")


def quick_tests(root: Path) -> Count:
    """Run the tests that are not marked slow; tests/test_matrix.py chooses its seeds by itself."""
    return _pytest(root, [*ALL_TESTS, "-m", "not slow"], AS_BUILT, "unit_tests")


def notebooks(root: Path) -> Count:
    """Execute every solution notebook and compare each cell with its stored output."""
    found = _files(root, "solutions/*/*.ipynb")
    if not found:
        print("there is no solution notebook; make them with: course build", flush=True)
        return Count(failed=1)
    workers = WORKERS if len(found) > 1 else []
    return _pytest(root, ["-q", *NBVAL, *workers, *found], AS_BUILT, "notebooks")


def other_processor(root: Path) -> Count:
    """Run notebooks and numeric tests with the processor's newer instructions held down.

    Sums come out in another order then, and so with other last digits: what passes here and as
    built says nothing that only one processor can say.
    """
    settings = " ".join(f"{name}={value}" for name, value in OTHER_PROCESSOR.items())
    print(f"with {settings}", flush=True)
    found = [*numeric_tests(root), *_files(root, "solutions/*/*.ipynb")]
    return _pytest(root, ["-q", *NBVAL, *WORKERS, *found], OTHER_PROCESSOR, "another_processor")


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


def _pytest(root: Path, arguments: Sequence[str], settings: Mapping[str, str], part: str) -> Count:
    result = root / RESULTS / f"{part}.xml"
    result.parent.mkdir(parents=True, exist_ok=True)
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


def durations_table(root: Path, parts: Mapping[str, float]) -> str:
    """What took how long in the last run, as a page of the documentation.

    Args:
        root: the clone, with the results of that run.
        parts: wall seconds by part.
    """
    lines = [
        "# How long the tests take",
        "",
        f"Written by `course test --durations` on {date.today()}; {os.cpu_count()} cores, "
        f"Python {platform.python_version()}.",
        "",
        "| Part | Seconds by the clock |",
        "| --- | ---: |",
        *(f"| {part} | {seconds:.0f} |" for part, seconds in parts.items()),
    ]
    for result in sorted((root / RESULTS).glob("*.xml")):
        part = result.stem.replace("_", " ")
        lines += ["", f"## {part.capitalize()}", "", "| File | Tests | Seconds of its workers |"]
        lines += ["| --- | ---: | ---: |"]
        rows = sorted(_seconds_by_file(result).items(), key=lambda row: -sum(row[1]))
        lines += [f"| `{file}` | {len(each)} | {sum(each):.1f} |" for file, each in rows]
    return "\n".join([*lines, ""])


def _seconds_by_file(result: Path) -> dict[str, list[float]]:
    """The seconds of each test in a JUnit file, by the file it is in."""
    found: dict[str, list[float]] = {}
    for case in ElementTree.parse(result).getroot().iter("testcase"):
        words = case.get("classname", "").split(".")
        module = [word for word in words if not word.startswith("Test")]
        found.setdefault("/".join(module), []).append(float(case.get("time", 0)))
    return found


def _run(root: Path, module: Sequence[str], settings: Mapping[str, str] = AS_BUILT) -> int:
    """Run `python -m MODULE ...` in `root`, with `settings` in its environment."""
    environ = {**os.environ, "PYTHONHASHSEED": "0", **settings}
    return subprocess.run([sys.executable, "-m", *module], cwd=root, env=environ).returncode
