"""The files that a bundle has in another form than the clone: what to install, what to read."""

import json
import re
import string
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement

from course_lib.authoring.inputs import Course

_KEPT = ("name", "description", "readme", "license", "license-files", "requires-python", "dynamic")


def project(root: Path) -> str:
    """Returns a pyproject.toml with the student core and nothing optional."""
    whole = _pyproject(root)
    about = whole["project"]
    lines = ["[build-system]", *_entries(whole["build-system"])]
    lines += ["", "[project]", *_entries({key: about[key] for key in _KEPT})]
    lines += _entries({"dependencies": about["dependencies"]})
    lines += ["", "[project.scripts]", *_entries(about["scripts"])]
    hatch = whole["tool"]["hatch"]
    lines += ["", "[tool.hatch.version]", *_entries(hatch["version"])]
    wheel = hatch["build"]["targets"]["wheel"]
    lines += ["", "[tool.hatch.build.targets.wheel]", *_entries(wheel)]
    return "\n".join(lines) + "\n"


def _pyproject(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def _entries(table: dict) -> list[str]:
    """Texts and lists of texts are written alike in JSON and in TOML."""
    return [f"{key} = {json.dumps(value, indent=4)}" for key, value in table.items()]


def environment(root: Path) -> str:
    """Returns the clone's environment.yml without comments and without what is optional."""
    optional = _pyproject(root)["project"]["optional-dependencies"]
    names = {Requirement(line).name for lines in optional.values() for line in lines}
    lines = (root / "environment.yml").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = []
    for line in lines:
        package = re.match(r"\s+- ([\w.-]+)", line)
        if not line.startswith("#") and not (package and package[1] in names):
            kept.append(line)
    return "".join(kept)


def readme(course: Course, lessons: Sequence[str], up_to: str | None) -> str:
    """Returns the one screen that a student reads first."""
    template = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    listed = [
        f"- `{course.relative(course.release(s))}`: {course.lessons[s].title}" for s in lessons
    ]
    left_out = ""
    if up_to is not None:
        left_out = (
            f"\n- The course's solutions of {up_to[:2]} come later. Until then that cell goes on"
            "\n  with your own answer as it is; cells that use an unfinished one stop."
        )
    return string.Template(template).substitute(lessons="\n".join(listed), left_out=left_out)
