"""What the workflows on GitHub may do. They cannot run here, so these tests read them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def text(request):
    return request.param.read_text(encoding="utf-8")


def test_actions_are_pinned_by_commit_with_their_version_beside_it(text):
    used = re.findall(r"uses: (.+)", text)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in used)


def test_no_token_that_can_write_is_in_reach_of_code_that_was_checked_out(text):
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
                is_ours = "ref" not in step["with"] and "sparse-checkout" in step["with"]
                assert is_ours or "permissions" not in job
        run = " ".join(step.get("run", "") for step in job["steps"])
        if "permissions" in job:
            assert not re.search(r"\b(python|pip|pipx|\.ci/run)\b", run)
        else:
            assert "github.token" not in str(job["steps"])


def test_a_run_in_a_fork_publishes_no_site():
    workflow = yaml.safe_load((FOLDER / "site.yml").read_text(encoding="utf-8"))
    condition = workflow["jobs"]["build"]["if"]
    for needed in (
        "workflow_run.event == 'push'",
        "workflow_run.head_repository.full_name == github.repository",
        "workflow_run.conclusion == 'success'",
    ):
        assert f"&& github.event.{needed}" in condition or f"(github.event.{needed}" in condition
    assert workflow["jobs"]["publish"]["needs"] == "build"


def test_every_python_in_its_range_both_builds_of_torch_and_both_ends_of_the_ranges_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = SpecifierSet(project["requires-python"])
    pythons = [f"3.{n}" for n in range(30) if f"3.{n}" in supported]
    jobs = yaml.safe_load((FOLDER / "test.yml").read_text(encoding="utf-8"))["jobs"]
    matrices = [jobs[name]["strategy"]["matrix"] for name in ("all", "student")]
    assert [matrix["python"] for matrix in matrices] == [pythons, pythons]
    assert {"cpu"} | {more["torch"] for more in matrices[0]["include"]} == {"cpu", "cuda"}
    job = yaml.safe_load((FOLDER / "newest.yml").read_text(encoding="utf-8"))["jobs"]["grading"]
    ends = [(more["versions"], more["python"]) for more in job["strategy"]["matrix"]["include"]]
    assert ends == [("oldest", pythons[0]), ("newest", pythons[-1])]


def test_no_package_can_come_from_two_indexes(text):
    assert "--extra-index-url" not in text
