"""Make `.venv` in the clone, install the tested set into it and hand over to `course`.

Standard library only. A stamp, written last, records what a finished environment was made from. A
marker, written first, records that an install is under way. Without a stamp, pip installs again.
With a marker left behind, `.venv` is made anew.
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
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from course_lib.setup import pip_run
from course_lib.workspace.errors import SetupError
from course_lib.workspace.locks import only_one

ROOT = Path(__file__).resolve().parents[2]
DISK_NEEDED_GB = 3.0
NEEDED_MODULES = ("torch", "typer", "rich", "nbgrader", "jupyterlab")
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def main(argv: Sequence[str], run: Callable[[list[str]], int], root: Path = ROOT) -> int:
    """Run one verb of the course in an environment that is complete, and return its exit code.

    Args:
        argv: the verb and its arguments.
        run: runs them in this process, where it is in that environment already.
        root: the clone.
    """
    try:
        if runs_complete(root):
            return run(list(argv))
        # Ended from outside, pip must end too: SystemExit passes through pip_run, which stops it.
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        python = ensure(root, say=_say)
        signal.signal(signal.SIGTERM, before)
    except SetupError as error:
        _say(f"course: {error}")
        return 1
    except KeyboardInterrupt:
        _say("\ncourse: interrupted; the next call goes on from here")
        return 130
    except OSError as error:
        _say(f"course: {pip_run.explain(str(error), root, 'the set-up failed')}")
        return 1
    return hand_over([str(python), "-m", "course_lib.cli", *argv])


def runs_complete(root: Path) -> bool:
    """Say whether the running Python already holds the course and all it needs."""
    if (root / "pyproject.toml").is_file() and _runs_in(root / ".venv"):
        return is_ready(root)
    try:
        importlib.metadata.distribution("attention-course")
    except importlib.metadata.PackageNotFoundError:
        return False
    return all(importlib.util.find_spec(name) is not None for name in NEEDED_MODULES)


def ensure(root: Path, *, say: Callable[[str], None]) -> Path:
    """Return the Python of a finished `.venv` in `root`, made or fixed first where needed."""
    for name in ("pyproject.toml", "constraints.txt"):
        if not (root / name).is_file():
            raise SetupError(
                f"no {name} in {root}; clone the course, or unzip all of its file, and call this "
                "from that folder"
            )
    if not is_ready(root):
        check_can_install(root)
        said = "course: another set-up of this clone is running; waiting for it"
        with only_one(root / ".venv.lock", waiting=lambda: say(said)):
            if not is_ready(root):  # another set-up may have finished while this one waited
                install(root, say=say)
    return python_of(root / ".venv")


def python_of(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _runs_in(venv: Path) -> bool:
    return Path(sys.prefix).resolve() == venv.resolve()


def _pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def fingerprint(root: Path) -> str:
    """Hash what decides the contents of the environment: dependencies, constraints, place."""
    project = _pyproject(root)
    parts = [
        json.dumps([project.get("project"), project.get("build-system")], sort_keys=True),
        (root / "constraints.txt").read_text(encoding="utf-8"),
        str(root.resolve()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_ready(root: Path) -> bool:
    """Say whether `.venv` was finished from the same dependencies and its Python still works."""
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
    return _output(venv, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


def _output(venv: Path, *arguments: str) -> str:
    """Return what the Python of `venv` prints; an empty text if it does not run."""
    try:
        done = subprocess.run(
            [python_of(venv), *arguments], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def check_can_install(root: Path) -> None:
    """Raise a SetupError for what can be known before anything is written."""
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


def install(root: Path, *, say: Callable[[str], None]) -> None:
    """Bring `.venv` up to the pinned set, from whatever state it is in."""
    venv, marker = root / ".venv", root / ".venv.installing"
    stamp = venv / "course-stamp.json"
    _prepare(venv, marker, say=say)
    stamp.unlink(missing_ok=True)
    started = time.monotonic()
    say("course: installing PyTorch, Jupyter and the course into .venv (some minutes)")
    try:
        torch = _install_torch(root, say=say)
        _install_all(root, torch, say=say)
    except pip_run.NoNetworkError:
        marker.unlink()  # pip downloads before it installs: nothing is half done
        raise
    made = {"fingerprint": fingerprint(root), "python": _python_version(venv)}
    stamp.write_text(json.dumps(made), encoding="utf-8")
    marker.unlink()
    say(f"course: ready after {time.monotonic() - started:.0f} s")


def _prepare(venv: Path, marker: Path, *, say: Callable[[str], None]) -> None:
    """Make `venv` a virtual environment with a working pip."""
    interrupted = marker.exists()
    foreign = venv.exists() and not (venv / "pyvenv.cfg").is_file()
    if foreign and not interrupted and any(venv.iterdir()):
        raise SetupError(
            f"{venv} exists and is no virtual environment; move it away and call again"
        )
    marker.touch()
    if _runs_in(venv):
        return  # called by its own Python, which cannot be replaced while it runs
    if interrupted:
        say("course: an earlier set-up was interrupted; starting it again")
    if interrupted or not _has_pip(venv):
        _create(venv)


def _has_pip(venv: Path) -> bool:
    return _output(venv, "-c", "import sys, pip; print(sys.version_info >= (3, 11))") == "True"


def _create(venv: Path) -> None:
    command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stdout + done.stderr
        if shutil.disk_usage(venv.parent).free < 5e7:  # ensurepip keeps its reason to itself
            said += pip_run.DISK_FULL
        raise SetupError(pip_run.explain(said, venv, "making .venv failed"))


def _install_torch(root: Path, *, say: Callable[[str], None]) -> str:
    """Install PyTorch alone from the index chosen for it; return its whole version (`+cpu`)."""
    venv = root / ".venv"
    index, reason = pip_run.torch_index(os.environ, _output(venv, "-m", "pip", "config", "list"))
    say(f"course: {reason}")
    dependencies = _pyproject(root)["project"]["dependencies"]
    torch = next(line for line in dependencies if line.startswith("torch"))
    source = [] if index is None else ["--index-url", index]
    try:
        _pip(venv, "--no-deps", *source, torch, say=say)
    except pip_run.NoNetworkError:
        if index is None:
            raise
        say(f"course: {index} cannot be reached; PyTorch comes from the default index instead")
        _pip(venv, "--no-deps", torch, say=say)
    version = _output(venv, "-c", "from importlib.metadata import version; print(version('torch'))")
    if not version:
        raise SetupError(f"PyTorch was installed into {venv}, but its version cannot be read")
    return version


def _install_all(root: Path, torch: str, *, say: Callable[[str], None]) -> None:
    """Install the rest with PyTorch pinned, so that no conflict makes pip fetch another build."""
    venv = root / ".venv"
    held = venv / "course-torch.txt"
    held.write_text(f"torch=={torch}\n", encoding="utf-8")
    arguments = ["--constraint", str(held), "--constraint", str(root / "constraints.txt")]
    project = _pyproject(root)["project"]
    extras = ",".join(project.get("optional-dependencies", {}))  # a student's bundle has none
    arguments += ["--editable", f"{root}[{extras}]" if extras else str(root)]
    _pip(venv, *arguments, say=say)


def _pip(venv: Path, *arguments: str, say: Callable[[str], None]) -> None:
    pip_run.install(python_of(venv), arguments, log=venv / "course-install.log", say=say)


def hand_over(command: Sequence[str]) -> int:
    """Replace this process by `command`; where the system cannot, run it and return its exit code.

    Ctrl-C reaches the command directly (Jupyter asks before it stops): here it is waited out.
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


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
