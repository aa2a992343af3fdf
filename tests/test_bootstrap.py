import ast
import itertools
import json
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from course_lib import __version__
from course_lib.__main__ import OLDEST, python_problem
from course_lib.cli import main as cli
from course_lib.setup import bootstrap
from course_lib.setup.bootstrap import SetupError

REPOSITORY = Path(__file__).resolve().parent.parent
PYPROJECT = """[project]
name = "x"
dependencies = ["torch==9.9"]
[tool.any]
key = 1
"""
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
STAMP = ".venv/course-stamp.json"


@pytest.fixture
def clone(tmp_path):
    """Return a folder that looks like a clone to the bootstrap."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "constraints.txt").write_text("torch==9.9\n")
    return tmp_path


@pytest.fixture
def installs(clone, monkeypatch):
    """Make real environments, but only record what pip is asked for, and return the record."""
    calls = []

    def fake_run(command, problem):
        if "venv" in command:
            fake_venv(Path(command[-1]))
        else:
            calls.append(command)

    monkeypatch.setattr(bootstrap, "_run", fake_run)
    monkeypatch.setenv("COURSE_TORCH_INDEX", "")  # PyTorch takes no step of its own
    monkeypatch.setattr(
        bootstrap, "_python_version", lambda venv: PYTHON * bootstrap.python_of(venv).exists()
    )
    return calls


def fake_venv(venv):
    """Write the files of `python -m venv --clear`, without the seconds ensurepip takes."""
    python = bootstrap.python_of(venv)
    python.parent.mkdir(parents=True, exist_ok=True)
    (venv / "pyvenv.cfg").write_text("version = 3.11\n")
    if not python.exists():
        python.symlink_to(sys.executable)


def test_first_call_installs_the_constrained_set_and_later_calls_nothing(clone, installs):
    assert bootstrap.ensure(clone) == bootstrap.python_of(clone / ".venv")
    (command,) = installs
    assert {str(clone / "constraints.txt"), str(clone)} <= set(command)
    bootstrap.ensure(clone)
    assert len(installs) == 1
    (clone / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = []')  # a bundle
    bootstrap.ensure(clone)
    assert str(clone) in installs[1]


@pytest.mark.parametrize(
    ("name", "text", "is_ready"),
    [
        ("pyproject.toml", PYPROJECT.replace("torch==9.9", "torch==9.10"), False),
        ("pyproject.toml", PYPROJECT.replace("key = 1", "key = 2"), True),
        ("constraints.txt", "torch==9.10\n", False),
        *((STAMP, text, False) for text in ("", "[]")),
    ],
)
def test_only_other_dependencies_or_a_broken_stamp_install_again(
    clone, installs, name, text, is_ready
):
    bootstrap.ensure(clone)
    (clone / name).write_text(text)
    assert bootstrap.is_ready(clone) == is_ready
    bootstrap.ensure(clone)
    assert len(installs) == (1 if is_ready else 2)


def test_a_moved_clone_and_another_python_install_again(clone, installs, tmp_path_factory):
    bootstrap.ensure(clone)
    stamp = json.loads((clone / STAMP).read_text())
    (clone / STAMP).write_text(json.dumps(stamp | {"python": "3.99"}))
    assert not bootstrap.is_ready(clone)
    (clone / STAMP).write_text(json.dumps(stamp))
    assert bootstrap.is_ready(clone)
    clone.rename(moved := tmp_path_factory.mktemp("moved") / "clone")
    assert not bootstrap.is_ready(moved)
    moved.rename(clone)
    python = bootstrap.python_of(clone / ".venv")
    python.unlink()
    python.symlink_to(clone / "removed-python")
    assert not bootstrap.is_ready(clone)


def test_an_interrupted_set_up_is_repeated(clone, installs, monkeypatch):
    bootstrap.ensure(clone)
    (clone / "constraints.txt").write_text("torch==9.10\n")
    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "_run", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bootstrap.ensure(clone)
    assert not bootstrap.is_ready(clone)
    bootstrap.ensure(clone)
    assert bootstrap.is_ready(clone)


def test_a_folder_named_venv_that_is_not_ours_is_left_alone(clone, installs):
    (clone / ".venv").mkdir()
    (clone / ".venv/letters.txt").write_text("dear")
    with pytest.raises(SetupError, match="is not a virtual environment; move it away"):
        bootstrap.ensure(clone)
    assert (clone / ".venv/letters.txt").read_text() == "dear"


def test_a_venv_that_is_a_link_is_used_if_complete_but_never_installed_into(clone, installs):
    bootstrap.ensure(clone)
    other = clone.parent / "elsewhere"
    (clone / ".venv").rename(other)
    (clone / ".venv").symlink_to(other)
    assert bootstrap.ensure(clone) == bootstrap.python_of(clone / ".venv")
    before = (other / "course-stamp.json").read_text()
    (clone / "constraints.txt").write_text("torch==9.10\n")  # the environment is out of date now
    with pytest.raises(SetupError, match=f"is a link to {other}.* delete the link and call again"):
        bootstrap.ensure(clone)
    assert len(installs) == 1 and (other / "course-stamp.json").read_text() == before
    shutil.rmtree(other)
    with pytest.raises(SetupError, match="is a link"):
        bootstrap.ensure(clone)
    assert len(installs) == 1 and not other.exists()


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["grade", "-h"], []])
def test_help_and_version_install_nothing(clone, installs, capsys, monkeypatch, argv):
    monkeypatch.setattr(bootstrap, "runs_complete", lambda root: False)
    assert bootstrap.main(argv, print, clone) == 0
    said = capsys.readouterr().out
    assert said == f"{__version__}\n" if argv == ["--version"] else "\n  lab " in said
    assert not installs and not (clone / ".venv").exists()


def test_the_help_before_the_set_up_is_that_of_the_verbs(capsys):
    assert cli.main(["--help"]) == 0
    lines = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    ours = [line for line in bootstrap.USAGE.splitlines() if line.startswith("  ")]
    assert ours and {" ".join(line.split()) for line in ours} <= lines


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("DISK_NEEDED_GB", 1e9, r"GB are free in .* make room"),
        (  # as Debian does without python3-venv
            "importlib.util.find_spec",
            lambda name: None if name == "ensurepip" else name,
            r"lacks the module ensurepip.*apt install python3\.\d+-venv",
        ),
        ("os.access", lambda path, mode: False, "is read-only for you; clone the course into"),
    ],
)
def test_what_prevents_a_set_up_is_said_before_it(clone, monkeypatch, name, value, sentence):
    monkeypatch.setattr(f"course_lib.setup.bootstrap.{name}", value)
    with pytest.raises(SetupError, match=sentence):
        bootstrap.ensure(clone)
    assert not (clone / ".venv").exists()


def test_a_command_that_fails_is_one_sentence_and_prints_its_reason(capfd):
    with pytest.raises(SetupError, match="pip did not install everything, for the reason above"):
        bootstrap._run(["sh", "-c", "echo no network; exit 1"], "pip did not install everything")
    assert capfd.readouterr().err == "no network\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SetupError("the remedy"), "course: the remedy\n"),
        (KeyboardInterrupt(), "course: interrupted; the next call goes on from here\n"),
        (OSError(28, "No space left on device"), "No space left on device; check the free disk"),
    ],
)
def test_every_failure_is_one_sentence_and_not_zero(clone, monkeypatch, capsys, error, sentence):
    monkeypatch.setattr(bootstrap, "runs_complete", lambda root: False)
    monkeypatch.setattr(bootstrap, "ensure", Mock(side_effect=error))
    assert bootstrap.main(["lab"], print, clone) != 0
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_pip_installs_into_venv_whatever_the_user_set_for_it(monkeypatch, capfd):
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    bootstrap._run(["sh", "-c", 'echo "user $PIP_USER target $PIP_TARGET."'], "")
    assert capfd.readouterr().err == "user 0 target .\n"


@pytest.mark.parametrize(
    ("wanted", "platform", "gpu", "index"),
    [
        (None, "linux", None, bootstrap.CPU_INDEX),
        (None, "linux", "/usr/bin/nvidia-smi", None),
        (None, "darwin", None, None),
        ("https://mine", "darwin", None, "https://mine"),
        ("", "linux", None, None),
    ],
)
def test_where_torch_comes_from(clone, installs, monkeypatch, wanted, platform, gpu, index):
    monkeypatch.delenv("COURSE_TORCH_INDEX")
    if wanted is not None:
        monkeypatch.setenv("COURSE_TORCH_INDEX", wanted)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", platform)
        patch.setattr(bootstrap.shutil, "which", lambda name: gpu)
        bootstrap.ensure(clone)
    *before, everything = installs
    assert [dict(itertools.pairwise(one))["--index-url"] for one in before] == [index] * bool(index)
    assert all(one[-1] == "torch==9.9" for one in before) and "--index-url" not in everything


def test_only_a_missing_default_of_ours_is_replaced_by_pips(clone, installs, monkeypatch):
    recorded = bootstrap._run

    def run(command, problem):
        recorded(command, problem)
        if "--index-url" in command:
            raise SetupError("no answer")

    monkeypatch.setattr(bootstrap, "_run", run)
    monkeypatch.setenv("COURSE_TORCH_INDEX", "https://nowhere")
    with pytest.raises(SetupError, match="no answer"):
        bootstrap.ensure(clone)
    monkeypatch.delenv("COURSE_TORCH_INDEX")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: None)
    bootstrap.ensure(clone)
    assert len(installs) == 3 and (clone / STAMP).is_file()


def test_a_python_older_than_pyproject_says_is_told_so_in_one_sentence():
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={OLDEST[0]}.{OLDEST[1]},' in text
    assert python_problem((*OLDEST, 0)) is None
    for version in ((2, 7, 18), (3, 6, 15), (3, 10, 99)):
        problem = python_problem(version)
        assert problem.startswith("course: Python 3.11 or newer is needed and this is Python ")
        assert "\n" not in problem


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_what_an_old_python_reads_has_old_syntax(name):
    source = (REPOSITORY / "course_lib" / name).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source, feature_version=(3, 4))):
        assert not isinstance(node, (ast.JoinedStr, ast.AnnAssign))
        assert not getattr(node, "annotation", None)


def test_the_bootstrap_imports_the_standard_library_only():
    own = {"setup.bootstrap", "workspace.errors", "workspace.locks"}
    for name in own:
        path = REPOSITORY / "course_lib" / f"{name.replace('.', '/')}.py"
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = [node.module] if isinstance(node, ast.ImportFrom) else []
                names |= {".".join([*module, alias.name]) for alias in node.names}
        others = {one for one in names if not one.startswith("course_lib.")}
        assert {one.split(".")[0] for one in others} <= sys.stdlib_module_names
        assert {".".join(one.split(".")[1:3]) for one in names - others} <= own | {"__version__"}


def test_handing_over_without_exec_waits_out_interrupts(monkeypatch):
    process = Mock(**{"wait.side_effect": [KeyboardInterrupt(), KeyboardInterrupt(), 5]})
    monkeypatch.setattr(bootstrap.subprocess, "Popen", lambda command: process)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        code = bootstrap.hand_over(["anything"])
    assert code == 5
