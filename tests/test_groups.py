"""Verbs install what only they need, once, in the versions that were tested."""

import importlib.metadata

import pytest

from course_lib.setup import groups
from course_lib.setup.bootstrap import SetupError

PYPROJECT = """[project]
name = "attention-course"
[project.optional-dependencies]
scale = ["rich>=1", "not-installed-1>=1"]
[dependency-groups]
build = ["numpy>=1"]
dev = [{ include-group = "build" }, "attention-course[scale]", "none; python_version < '3'"]
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Return a clone whose constraints name the installed versions."""
    pins = [f"{name}=={importlib.metadata.version(name)}\n" for name in ("numpy", "rich")]
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "constraints.txt").write_text("# pins\n" + "".join(pins))
    monkeypatch.setattr(groups, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def installs(monkeypatch):
    """Record what pip is asked for instead of installing it."""
    calls = []
    monkeypatch.setattr(groups, "runs_in", lambda venv: True)
    monkeypatch.setattr(groups, "pip_install", lambda venv, *arguments: calls.append(arguments))
    return calls


def test_a_group_contains_the_groups_and_extras_that_it_names(clone):
    assert groups.missing_from("build", clone) == []
    assert groups.missing_from("scale", clone) == ["not-installed-1>=1"]
    assert groups.missing_from("dev", clone) == ["not-installed-1>=1"]
    (clone / "constraints.txt").write_text("NumPy==0.1\n")
    assert groups.missing_from("dev", clone) == ["numpy>=1", "not-installed-1>=1"]


def test_a_verb_installs_only_what_is_missing_and_says_so(clone, installs, capsys):
    groups.need("build", "build")
    assert not installs and not capsys.readouterr().err
    groups.need("dev", "test")
    pins = str(clone / "constraints.txt")
    assert installs == [("--constraint", pins, "not-installed-1>=1")]
    said = capsys.readouterr().err
    assert said == "course: installing what only `course test` needs: not-installed-1\n"


def test_an_environment_that_is_not_the_clones_is_left_alone(clone, installs, monkeypatch):
    monkeypatch.setattr(groups, "runs_in", lambda venv: False)
    with pytest.raises(SetupError, match=r"`course site` needs not-installed-1; install with: .*"):
        groups.need("dev", "site")
    assert not installs
