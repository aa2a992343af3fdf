"""Install the dependency groups and extras of pyproject.toml that only some verbs need."""

import importlib
import importlib.metadata
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import course_lib
from course_lib.setup.bootstrap import ROOT, pip_install, runs_in, say
from course_lib.workspace.errors import SetupError
from course_lib.workspace.locks import only_one

PACKED = Path(course_lib.__file__).parent / "course_files"  # for a wheel without a clone


def need(group: str, verb: str) -> None:
    """Install a group of libraries for a verb, unless their tested versions are installed.

    Raises:
        SetupError: this is not the environment of a clone, so the user has to install them.
    """
    home = ROOT if (ROOT / "pyproject.toml").is_file() else PACKED
    if not (missing := missing_from(group, home)):
        return
    pins = str(home / "constraints.txt")
    names = ", ".join(Requirement(line).name for line in missing)
    if not runs_in(ROOT / ".venv"):
        command = shlex.join([sys.executable, "-m", "pip", "install", "-c", pins, *missing])
        raise SetupError(f"`course {verb}` needs {names}; install with: {command}")
    waiting = "another set-up of this clone is running; waiting for it"
    with only_one(ROOT / ".venv.lock", waiting=lambda: say(waiting)):
        if missing := missing_from(group, home):
            say(f"installing what only `course {verb}` needs: {names}")
            pip_install(ROOT / ".venv", "--constraint", pins, *missing)
    importlib.invalidate_caches()


def missing_from(group: str, home: Path) -> list[str]:
    """Return the requirements of a group that are not installed in their tested versions."""
    text = (home / "constraints.txt").read_text(encoding="utf-8")
    pins = dict(line.split("==") for line in text.splitlines() if "==" in line)
    tested = {canonicalize_name(name): version for name, version in pins.items()}
    missing = []
    for requirement in requirements(group, tomllib.loads((home / "pyproject.toml").read_text())):
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            installed = None
        wanted = tested.get(canonicalize_name(requirement.name), installed)
        if installed is None or installed != wanted:
            missing.append(str(requirement))
    return missing


def requirements(group: str, document: dict) -> Iterator[Requirement]:
    """Yield the requirements of a dependency group or an extra, and of the groups it includes."""
    extras = document["project"].get("optional-dependencies", {})
    for line in document["dependency-groups"].get(group) or extras[group]:
        if isinstance(line, dict):
            yield from requirements(line["include-group"], document)
            continue
        requirement = Requirement(line)
        if requirement.name == document["project"]["name"]:
            for extra in requirement.extras:
                yield from requirements(extra, document)
        elif requirement.marker is None or requirement.marker.evaluate():
            yield requirement
