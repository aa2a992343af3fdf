import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import course_lib
from course_lib.grading.adapters import nbgrader
from course_lib.setup import groups

REPOSITORY = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
REQUIREMENTS = [
    *map(Requirement, PROJECT["dependencies"]),
    *groups.requirements("dev", PYPROJECT),  # includes all others
]
PINS = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (REPOSITORY / "constraints.txt").read_text(encoding="utf-8"), re.M
    )
}


def test_environment_yml_is_what_pyproject_generates(tmp_path):
    command = [sys.executable, "-m", "pyproject2conda", "project", "--overwrite", "force"]
    (tmp_path / "pyproject.toml").write_bytes((REPOSITORY / "pyproject.toml").read_bytes())
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    generated = (tmp_path / "environment.yml").read_text(encoding="utf-8")
    committed = (REPOSITORY / "environment.yml").read_text(encoding="utf-8")
    assert committed == generated, "environment.yml is stale; run: pyproject2conda project"


def test_the_adapter_of_nbgrader_names_the_version_that_is_pinned():
    # Another version was not read: what is private in a library may change in any release.
    assert PINS["nbgrader"] == nbgrader.WRITTEN_AGAINST


def test_conda_and_pip_name_the_same_torch():
    packages = yaml.safe_load((REPOSITORY / "environment.yml").read_text())["dependencies"]
    (conda,) = (Requirement(line) for line in packages if str(line).startswith("pytorch"))
    (pip,) = (requirement for requirement in REQUIREMENTS if requirement.name == "torch")
    assert conda.specifier == pip.specifier


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_every_requirement_is_bounded_and_pinned_within_its_bounds(requirement):
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators == {">=", "<"}, "name the oldest version that was tested, and an upper bound"
    pinned = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pinned)


def test_the_citation_agrees_with_the_package():
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == course_lib.__version__
    assert cited["authors"] == PROJECT["authors"]
    assert cited["license"] == PROJECT["license"]
