"""Make `.venv` in the clone, install the tested set into it and hand over to `course`.

Standard library only. A stamp, written last, records what a finished environment was made from.
Without it, pip installs again.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from course_lib import __version__
from course_lib.workspace.errors import SetupError
from course_lib.workspace.locks import only_one

ROOT = Path(__file__).resolve().parents[2]
DISK_NEEDED_GB = 3.0
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
NEEDED_MODULES = ("torch", "typer", "rich", "nbgrader", "jupyterlab")
USAGE = """Usage: python -m course_lib VERB [OPTIONS]

  lab      Open the first lesson in JupyterLab.
  doctor   Check the installation.

The first verb installs the course into .venv, which takes a few minutes. After that, --help lists
all verbs, and VERB --help describes the options of one.
"""
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def main(argv: Sequence[str], run: Callable[[list[str]], int], root: Path = ROOT) -> int:
    """Run one verb of the course in an environment that is complete, and return its exit code.

    Without that environment, `--help` and `--version` are answered here and install nothing.

    Args:
        argv: the verb and its arguments.
        run: runs the verb in this process if it already uses that environment.
        root: the clone.
    """
    try:
        if runs_complete(root):
            return run(list(argv))
        asked = {"-h", "--help", "--version"}.intersection(argv)
        if (asked or not argv) and not is_ready(root):  # these need no installation
            print(__version__ if asked == {"--version"} else USAGE)
            return 0
        python = ensure(root)
    except SetupError as error:
        say(str(error))
        return 1
    except OSError as error:
        say(f"{error}; check the free disk space and your permissions in {root}, and call again")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next call goes on from here")
        return 130
    return hand_over([str(python), "-m", "course_lib.cli", *argv])


def runs_complete(root: Path) -> bool:
    """Return whether the running Python already has the course and its dependencies."""
    if (root / "pyproject.toml").is_file() and runs_in(root / ".venv"):
        return is_ready(root)
    try:
        importlib.metadata.distribution("attention-course")
    except importlib.metadata.PackageNotFoundError:
        return False
    return all(importlib.util.find_spec(name) is not None for name in NEEDED_MODULES)


def ensure(root: Path) -> Path:
    """Return the Python of the `.venv` in `root`, after making or repairing it if needed."""
    for name in ("pyproject.toml", "constraints.txt"):
        if not (root / name).is_file():
            raise SetupError(
                f"no {name} in {root}; clone the course, or unzip all of its file, and call this "
                "from that folder"
            )
    if not is_ready(root):
        check_can_install(root)
        said = "another set-up of this clone is running; waiting for it"
        with only_one(root / ".venv.lock", waiting=lambda: say(said)):
            if not is_ready(root):  # another set-up may have finished while this one waited
                install(root)
    return python_of(root / ".venv")


def python_of(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def runs_in(venv: Path) -> bool:
    """Return whether this Python is that of a virtual environment."""
    return Path(sys.prefix).resolve() == venv.resolve()


def _pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def fingerprint(root: Path) -> str:
    """Hash what determines the environment's contents: dependencies, constraints and location."""
    project = _pyproject(root)
    parts = [
        json.dumps([project.get("project"), project.get("build-system")], sort_keys=True),
        (root / "constraints.txt").read_text(encoding="utf-8"),
        str(root.resolve()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_ready(root: Path) -> bool:
    """Return whether `.venv` was finished from the same dependencies and its Python still works."""
    venv = root / ".venv"
    try:
        stamp = json.loads((venv / "course-stamp.json").read_text(encoding="utf-8"))
        made_from, made_with = stamp["fingerprint"], stamp["python"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if made_from != fingerprint(root) or not python_of(venv).exists():
        return False
    return made_with == _PYTHON or made_with == _python_version(venv)


def _python_version(venv: Path) -> str:
    """Return the version of the Python in `venv`, or "" if it is too old, broken or without pip."""
    code = "import sys, pip; print('%d.%d' % sys.version_info[:2] * (sys.version_info >= (3, 11)))"
    try:
        done = subprocess.run([python_of(venv), "-c", code], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


def check_can_install(root: Path) -> None:
    """Raise a SetupError for a problem that is visible before anything is written."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"this Python ({sys.executable}) lacks the module {missing[0]}; on Debian or Ubuntu: "
            f"sudo apt install python{_PYTHON}-venv"
        )
    if not os.access(root, os.W_OK):
        raise SetupError(f"{root} is read-only for you; clone the course into a folder of your own")
    free = shutil.disk_usage(root).free / 1e9
    if not (root / ".venv").exists() and free < DISK_NEEDED_GB:
        raise SetupError(
            f"{free:.1f} GB are free in {root} and the set-up needs {DISK_NEEDED_GB:.0f} GB; "
            "make room and call again"
        )


def install(root: Path) -> None:
    """Bring `.venv` up to the pinned set, from whatever state it is in."""
    venv = root / ".venv"
    real = venv.resolve()
    if real != root.resolve() / ".venv":
        raise SetupError(
            f"{venv} is a link to {real}, where another clone may have its own environment, so "
            "nothing is installed there; delete the link and call again"
        )
    if venv.exists() and not (venv / "pyvenv.cfg").is_file() and any(venv.iterdir()):
        raise SetupError(
            f"{venv} exists and is not a virtual environment; move it away and try again"
        )
    stamp = venv / "course-stamp.json"
    stamp.unlink(missing_ok=True)
    say("installing PyTorch, Jupyter and the course into .venv (takes a few minutes)")
    # An environment cannot be replaced while its own Python runs this.
    if not runs_in(venv) and not _python_version(venv):
        _run([sys.executable, "-m", "venv", "--clear", str(venv)], f"{venv} was not made")
    named = os.environ.get("COURSE_TORCH_INDEX")
    has_gpu = not sys.platform.startswith("linux") or shutil.which("nvidia-smi")
    index = named if named is not None or has_gpu else CPU_INDEX
    constraints = ["--constraint", str(root / "constraints.txt")]
    say(f"PyTorch comes from {index or 'the default index'}; set COURSE_TORCH_INDEX to use another")
    project = _pyproject(root)["project"]
    if index:  # in a step of its own, because pip would ask this index about every other package
        torch = next(line for line in project["dependencies"] if line.startswith("torch"))
        try:
            pip_install(
                venv, "--no-deps", "--retries", "2", "--index-url", index, *constraints, torch
            )
        except SetupError:
            if named:
                raise
            say("PyTorch comes from the default index instead, perhaps with CUDA (several GB)")
    pip_install(venv, *constraints, "--editable", str(root))
    made = {"fingerprint": fingerprint(root), "python": _python_version(venv)}
    stamp.write_text(json.dumps(made), encoding="utf-8")


def pip_install(venv: Path, *arguments: str) -> None:
    """Install into a virtual environment; raise SetupError if that fails."""
    command = [str(python_of(venv)), "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*command, "--no-input", *arguments], "pip did not install everything")


def _run(command: list[str], problem: str) -> None:
    """Run a command that prints its own progress and errors, on stderr.

    Raises:
        SetupError: it failed.
    """
    # These pip settings of the user would install outside .venv.
    elsewhere = {"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": "", "PIP_ROOT": ""}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # subprocess.run then ends pip, too
    if subprocess.run(command, stdout=sys.stderr, env=os.environ | elsewhere).returncode:
        raise SetupError(
            f"{problem}, for the reason above; check the network connection and the free disk "
            "space, and call again"
        )


def hand_over(command: Sequence[str]) -> int:
    """Replace this process by `command`; where the system cannot, run it and return its exit code.

    Ctrl-C reaches the command directly, and Jupyter asks before it stops. So this process waits.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execv(command[0], list(command))
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def say(text: str) -> None:
    """Print a line on stderr."""
    print(f"course: {text}", file=sys.stderr, flush=True)
