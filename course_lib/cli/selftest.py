"""`course test`: style, tests and drift; with `--all` also slow tests and notebooks."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

STYLE = {  # the commands of .pre-commit-config.yaml, and how to fix their findings
    "ruff check .": "fix with: ruff check --fix .",
    "ruff format --check .": "fix with: ruff format .",
    "deptry course_lib": "declare the library in pyproject.toml, or remove it there",
    "lint-imports": "import only from layers below; pyproject.toml lists the contracts",
    "basedpyright": "correct the type annotations; pyproject.toml lists the rules",
}
DRIFT = [sys.executable, "-m", "course_lib.cli", "build", "--check"]
PYTEST = [sys.executable, "-m", "pytest"]
# With loadscope, the tests of a module or of a notebook share one worker and its fixtures.
WORKERS = ["-q", "--dist", "loadscope", "--no-loadscope-reorder", "-n"]
OTHER_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",  # torch's own kernels without AVX2 and AVX-512
    "MKL_CBWR": "AVX",  # no fused multiply-add, so products round differently
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_NUM_THREADS": "2",
    "OMP_NUM_THREADS": "2",  # other sums than with one thread
    "OMP_WAIT_POLICY": "PASSIVE",
}


def run(root: Path, pytest_args: Sequence[str] = (), *, everything: bool = False) -> int:
    """Run the parts, print the time of each and the totals, and return the exit code.

    Args:
        root: the clone.
        pytest_args: run only pytest, with these arguments.
        everything: include slow tests and notebooks. The variable CI has the same effect.
    """
    everything = everything or bool(os.environ.get("CI"))
    quick = ["-m", "not slow"]
    # Slow tests often wait for other processes, so three workers and the notebooks keep two cores
    # busy. A fourth worker raised the CPU time of the tests of the checks from 131 to 157 s.
    tests = [*WORKERS, "3", "tests"] if everything else [*WORKERS, "2", "tests", *quick]
    numeric = sorted(map(str, root.glob("tests/test_attention_*.py")))
    notebooks = sorted(map(str, root.glob("solutions/*/*.ipynb")))
    if everything and not pytest_args and not os.environ.get("CI"):  # CI downloads the models
        notebooks = [path for path in notebooks if _has_its_models(Path(path))]
    parts = {
        "style": lambda: _style(root),
        "tests": lambda: _pytest(root, "tests", tests),
        "drift": lambda: _drift(root),
    }
    if pytest_args:
        parts = {"tests": lambda: _pytest(root, "tests", pytest_args)}
    passed = failed = 0
    with ExitStack() as stack:
        if everything and not pytest_args:
            # The tests leave much of two cores idle, because they wait for browsers and guests.
            name, settings = "notebooks", {}
            arguments = [*WORKERS, "1", "--nbval", *notebooks]
            if not os.environ.get("CI"):  # test.yml runs them on other processors
                name += " and numeric tests, as on another processor"
                settings = OTHER_PROCESSOR
                arguments += [*numeric, *quick]
            beside = stack.enter_context(ThreadPoolExecutor(1))
            for title, part in {
                "style": lambda log: _style(root, log),
                "drift": lambda log: _drift(root, log),
                name: lambda log: _pytest(root, "notebooks", arguments, settings, log),
            }.items():
                log = stack.enter_context(tempfile.TemporaryFile("w+"))
                parts.pop(title, None)
                parts[title] = functools.partial(_printed, beside.submit(part, log), log)
        for number, (title, part) in enumerate(parts.items(), 1):
            print(f"\n[{number}/{len(parts)}] {title}", flush=True)
            began = time.monotonic()
            good, bad = part()
            passed, failed = passed + good, failed + bad
            print(f"{title}: {good} passed, {bad} failed in {time.monotonic() - began:.0f} s")
    if not everything and not pytest_args:
        print("\nnot run: slow tests and notebooks; run them with: course test --all")
    print(f"\nCPU time {sum(os.times()[:4]):.0f} s\n{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


def _has_its_models(notebook: Path) -> bool:
    """Return whether the models that a notebook loads are here; say what to do if not."""
    from course_lib.models.downloads import MODELS, problem

    text = notebook.read_text(encoding="utf-8")
    needed = [one for one in MODELS.values() if f" {one.name}" in text or f".{one.name}(" in text]
    for model in needed if "models.pretrained" in text or "import pretrained" in text else ():
        if problem(model, thoroughly=False):
            print(f"{notebook.stem} is left out, because it needs {model.title}: {model.remedy}")
            return False
    return True


def _printed(part: Future[tuple[int, int]], log: IO[str]) -> tuple[int, int]:
    """Wait for a part that ran beside the tests, and print its output."""
    counts = part.result()
    log.seek(0)
    print(log.read())
    return counts


def _style(root: Path, log: IO[str] | None = None) -> tuple[int, int]:
    failed = [command for command in STYLE if _run(root, command.split(), log=log)]
    for command in failed:
        print(f"{command} failed; {STYLE[command]}", file=log, flush=True)
    return len(STYLE) - len(failed), len(failed)


def _drift(root: Path, log: IO[str] | None = None) -> tuple[int, int]:
    return (0, 1) if _run(root, DRIFT, log=log) else (1, 0)


def _pytest(
    root: Path,
    name: str,
    arguments: Sequence[str],
    settings: dict[str, str] | None = None,
    log: IO[str] | None = None,
) -> tuple[int, int]:
    result = root / ".course" / f"{name}.xml"
    result.unlink(missing_ok=True)
    code = _run(root, [*PYTEST, *arguments, f"--junitxml={result}"], settings, log)
    passed = failed = 0
    if result.is_file():
        for suite in ElementTree.parse(result).getroot().iter("testsuite"):
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            passed += int(suite.get("tests", 0)) - bad - int(suite.get("skipped", 0))
            failed += bad
    return passed, max(failed, 1) if code else failed


def _run(
    root: Path,
    command: Sequence[str],
    settings: dict[str, str] | None = None,
    log: IO[str] | None = None,
) -> int:
    """Run a program of this environment in `root` and return its exit code."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which(command[0], path=path)
    if program is None:
        print(f"{command[0]} is not installed; `course test` installs it in .venv", flush=True)
        return 1
    # basedpyright finds this environment's Python through PATH.
    environ = {**os.environ, "PATH": path, **(settings or {})}
    # Without bytecode files, each of the many processes that tests start compiles the course.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [program, *command[1:]], cwd=root, env=environ, stdout=log, stderr=log
    ).returncode
