"""What GitHub and git read of this repository: workflows, forms, citation.

None of it can be run here; these tests hold what can be read off the files.
"""

import importlib.util
import tomllib
from pathlib import Path

import pytest
import yaml

import course_lib

REPOSITORY = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
FORMS = sorted((REPOSITORY / ".github/ISSUE_TEMPLATE").glob("[0-9]*.yml"))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
SYSTEMS = ["ubuntu-latest", "macos-latest", "windows-latest"]


def read(path):
    return yaml.safe_load((REPOSITORY / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def parts():
    spec = importlib.util.spec_from_file_location("parts", REPOSITORY / ".ci/parts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def asked_for(parts, monkeypatch):
    """For each part, the test files that it hands to pytest."""
    asked = {}
    for name in ("style", "drift", "notebooks", "other_processor"):
        monkeypatch.setattr(parts.selftest, name, lambda root: parts.selftest.Count(passed=1))
    for part in parts.PARTS:

        def note(root, arguments, part=part):
            asked[part] = [word for word in arguments if word.startswith("tests/")]
            return parts.selftest.Count(passed=1)

        monkeypatch.setattr(parts.selftest, "unit_tests", note)
        assert parts.main(part) == 0
    return asked


def test_each_test_is_in_one_part_of_ci(asked_for):
    asked_for.pop("student")
    given = [name for names in asked_for.values() for name in names]
    assert len(given) == len(set(given))
    there = {path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("tests/test_*.py")}
    assert set(given) == there | {"tests/threats", "tests/browser"}
    folders = {path.parent.name for path in REPOSITORY.glob("tests/*/test_*.py")}
    assert folders == {"threats", "browser"}


def test_the_students_part_needs_no_grading(asked_for):
    assert len(asked_for["student"]) > 20
    for name in asked_for["student"]:
        assert "course_lib.grading" not in (REPOSITORY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("count", [(1, 1, 0), (0, 0, 0)])
def test_a_part_fails_with_a_failure_or_with_nothing_checked(parts, monkeypatch, count):
    monkeypatch.setattr(parts.selftest, "notebooks", lambda root: parts.selftest.Count(*count))
    assert parts.main("notebooks") == 1


def test_ci_runs_each_part_on_each_python_and_the_students_on_each_system(parts):
    jobs = read(".github/workflows/test.yml")["jobs"]
    matrix = jobs["part"]["strategy"]["matrix"]
    assert [*matrix["part"], "student"] == list(parts.PARTS)
    assert matrix["python"] == PYTHONS
    assert jobs["student"]["strategy"]["matrix"] == {"os": SYSTEMS, "python": PYTHONS}
    assert ".ci/parts.py student" in jobs["student"]["steps"][-1]["run"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.15"


def test_the_weekly_run_takes_the_newest_of_what_grading_leans_on(parts):
    workflow = read(".github/workflows/newest.yml")
    commands = " ".join(step.get("run", "") for step in workflow["jobs"]["grading"]["steps"])
    assert {"nbgrader", "nbconvert", "jupyter_client", "ipykernel", "torch"} <= {*commands.split()}
    assert commands.split()[-2:] == [".ci/run", "grading"]
    assert "grading" in parts.PARTS
    assert len(workflow[True]["schedule"]) == 1  # YAML 1.1 reads the key `on` as a bool


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_its_rights_its_limits_and_scripts_that_exist(path):
    workflow = read(path)
    assert {"name", True, "permissions", "jobs"} <= workflow.keys()
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            words = step.get("run", "").replace('"', "").split()
            scripts = [word for word in words if word.startswith(".ci/")]
            assert all((REPOSITORY / script).is_file() for script in scripts)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_what_is_needed(path):
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in ("input", "textarea")
        assert field["attributes"]["label"]


def test_there_is_a_form_for_judgements_one_for_bugs_and_one_for_lessons():
    assert [path.stem for path in FORMS] == ["1_judgement", "2_bug", "3_lesson"]


def test_dependabot_looks_at_python_and_at_the_workflows():
    updates = read(".github/dependabot.yml")["updates"]
    assert [update["package-ecosystem"] for update in updates] == ["pip", "github-actions"]


def test_the_citation_agrees_with_the_package():
    cited = read("CITATION.cff")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert cited["version"] == course_lib.__version__
    assert cited["authors"] == project["authors"]
    assert cited["license"] == project["license"]


def test_the_package_says_that_it_is_typed():
    assert (REPOSITORY / "course_lib/py.typed").is_file()
