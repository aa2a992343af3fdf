"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

docs/testing.md says how to run the tests with them.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def oldest(project: dict) -> Iterator[str]:
    """Yield `NAME==VERSION` for each dependency of the package and of its extras."""
    for line in sum(project["optional-dependencies"].values(), project["dependencies"]):
        requirement = Requirement(line)
        (lowest,) = (s.version for s in requirement.specifier if s.operator == ">=")
        yield f"{requirement.name}=={lowest}"


if __name__ == "__main__":
    print(*oldest(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]), sep="\n")
