import ast
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from waiting import PATIENCE, wait_until

from course_lib.__main__ import OLDEST, python_problem
from course_lib.setup import bootstrap, pip_run
from course_lib.setup.bootstrap import SetupError

REPOSITORY = Path(__file__).resolve().parent.parent
PYPROJECT = """[project]
name = "x"
dependencies = ["torch==9.9"]
[project.optional-dependencies]
dev = []
site = []
[tool.any]
key = 1
"""
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

    def fake_pip(venv, *arguments, say):
        calls.append(list(arguments))

    def fake_torch(root, *, say):
        return "9.9+cpu"

    monkeypatch.setattr(bootstrap, "_pip", fake_pip)
    monkeypatch.setattr(bootstrap, "_install_torch", fake_torch)
    monkeypatch.setattr(bootstrap, "_create", fake_venv)
    monkeypatch.setattr(bootstrap, "_has_pip", lambda venv: (venv / "pyvenv.cfg").exists())
    return calls


def fake_venv(venv):
    """Write the files of `python -m venv --clear`, without the seconds ensurepip takes."""
    if venv.exists():
        for path in venv.glob("left-*"):
            path.unlink()
    python = bootstrap.python_of(venv)
    python.parent.mkdir(parents=True, exist_ok=True)
    (venv / "pyvenv.cfg").write_text("version = 3.11\n")
    if not python.exists():
        python.symlink_to(sys.executable)


def silent(text):
    pass


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a shell script, to be run in the place of Python."""

    def write(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def test_first_call_installs_the_constrained_set_and_later_calls_nothing(clone, installs):
    assert bootstrap.ensure(clone, say=silent) == bootstrap.python_of(clone / ".venv")
    (arguments,) = installs
    assert {str(clone / "constraints.txt"), f"{clone}[dev,site]"} <= set(arguments)
    assert (clone / ".venv/course-torch.txt").read_text() == "torch==9.9+cpu\n"
    bootstrap.ensure(clone, say=silent)
    assert len(installs) == 1


@pytest.mark.parametrize(
    ("name", "text", "is_ready"),
    [
        ("pyproject.toml", PYPROJECT.replace("torch==9.9", "torch==9.10"), False),
        ("pyproject.toml", PYPROJECT.replace("key = 1", "key = 2"), True),
        ("constraints.txt", "torch==9.10\n", False),
        *((STAMP, text, False) for text in ("", "{", "[]", '{"fingerprint": 1}', "\0\0")),
    ],
)
def test_only_other_dependencies_or_a_broken_stamp_install_again(
    clone, installs, name, text, is_ready
):
    bootstrap.ensure(clone, say=silent)
    (clone / name).write_text(text)
    assert bootstrap.is_ready(clone) == is_ready
    bootstrap.ensure(clone, say=silent)
    assert len(installs) == (1 if is_ready else 2)


def test_a_moved_clone_and_another_python_install_again(clone, installs, tmp_path_factory):
    bootstrap.ensure(clone, say=silent)
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


@pytest.mark.parametrize("step", ["_create", "_pip"])
def test_an_interrupted_set_up_is_started_again_from_nothing(clone, installs, monkeypatch, step):
    def interrupted(venv, *arguments, say=None):
        venv.mkdir(exist_ok=True)
        (venv / "left-half-written").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            bootstrap.ensure(clone, say=silent)
    assert not bootstrap.is_ready(clone)
    said = []
    bootstrap.ensure(clone, say=said.append)
    assert bootstrap.is_ready(clone)
    assert not (clone / ".venv/left-half-written").exists()
    assert any("interrupted" in line for line in said)


def test_being_offline_leaves_the_old_environment_in_place(clone, installs, monkeypatch):
    bootstrap.ensure(clone, say=silent)
    (clone / ".venv/left-from-before").touch()
    (clone / "constraints.txt").write_text("torch==9.10\n")

    def offline(venv, *arguments, say):
        raise pip_run.NoNetworkError("no package index could be reached")

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "_pip", offline)
        for _ in range(2):
            with pytest.raises(SetupError, match="no package index"):
                bootstrap.ensure(clone, say=silent)
    bootstrap.ensure(clone, say=silent)
    assert (clone / ".venv/left-from-before").exists()


def test_a_folder_named_venv_that_is_not_ours_is_left_alone(clone, installs):
    (clone / ".venv").mkdir()
    (clone / ".venv/letters.txt").write_text("dear")
    with pytest.raises(SetupError, match="is no virtual environment; move it away"):
        bootstrap.ensure(clone, say=silent)
    assert (clone / ".venv/letters.txt").read_text() == "dear"


def test_a_call_that_is_ended_ends_its_pip(clone, program):
    python = program(f"echo $$ > {clone}/pid; exec sleep 60")
    code = (
        "from pathlib import Path; from course_lib.setup import bootstrap, pip_run\n"
        "def ensure(root, say):\n"
        f"    pip_run.install({str(python)!r}, [], log=root / 'log', say=say)\n"
        "show = pip_run._show_until_done\n"
        "def show_and_tell(process, lines):\n"
        f"    Path({str(clone / 'running')!r}).touch()\n"
        "    show(process, lines)\n"
        "pip_run._show_until_done = show_and_tell\n"
        "bootstrap.ensure, bootstrap.runs_complete = ensure, lambda root: False\n"
        f"bootstrap.main(['lab'], print, Path({str(clone)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    wait_until(lambda: (clone / "pid").exists() and (clone / "pid").read_text().strip())
    wait_until(lambda: (clone / "running").exists())
    process.terminate()
    assert process.wait(PATIENCE) == 143
    pid = int((clone / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_two_at_once_install_once(clone, installs, monkeypatch):
    started, go_on = threading.Event(), threading.Event()

    def slow(venv, *arguments, say):
        installs.append(list(arguments))
        started.set()
        assert go_on.wait(PATIENCE)

    monkeypatch.setattr(bootstrap, "_pip", slow)
    said = []
    first = threading.Thread(target=bootstrap.ensure, args=(clone,), kwargs={"say": silent})
    second = threading.Thread(target=bootstrap.ensure, args=(clone,), kwargs={"say": said.append})
    first.start()
    assert started.wait(PATIENCE)
    second.start()
    wait_until(lambda: said)
    assert "waiting" in said[0]
    go_on.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert len(installs) == 1


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
        bootstrap.ensure(clone, say=silent)
    assert not (clone / ".venv").exists()


def test_outside_a_clone_is_said(tmp_path):
    with pytest.raises(SetupError, match=r"no pyproject\.toml in"):
        bootstrap.ensure(tmp_path, say=silent)


@pytest.mark.parametrize(
    ("said", "free", "sentence"),
    [
        ("Error: [Errno 28] No space left on device", 1e9, "is full; make about 3 GB of room"),
        ("Command ensurepip returned 1", 1e7, "is full; make about 3 GB of room"),
        ("Command ensurepip returned 1", 1e9, r"making \.venv failed: Command ensurepip returned"),
    ],
)
def test_a_failing_venv_module_is_one_sentence(clone, monkeypatch, said, free, sentence):
    failed = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(bootstrap.subprocess, "run", lambda *args, **kwargs: failed)
    usage = bootstrap.shutil.disk_usage(clone)._replace(free=free)
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SetupError, match=sentence):
        bootstrap._create(clone / ".venv")


def test_a_log_that_cannot_be_written_hides_nothing(tmp_path, program):
    script = program("echo 'ERROR: [Errno 28] No space left on device'; exit 1")
    with pytest.raises(SetupError, match="is full; make about 3 GB of room"):
        pip_run.install(script, [], log=tmp_path / "missing/folder/log", say=silent)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (SetupError("the remedy"), "course: the remedy\n"),
        (KeyboardInterrupt(), "\ncourse: interrupted; the next call goes on from here\n"),
        (OSError(28, "No space left on device"), "is full; make about 3 GB"),
        (PermissionError(13, "Permission denied"), "cannot be written; clone the course"),
    ],
)
def test_every_failure_is_one_sentence_and_not_zero(clone, monkeypatch, capsys, error, sentence):
    def fail(root, *, say):
        raise error

    monkeypatch.setattr(bootstrap, "runs_complete", lambda root: False)
    monkeypatch.setattr(bootstrap, "ensure", fail)
    assert bootstrap.main(["lab"], print, clone) != 0
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_pip_installs_into_venv_whatever_the_user_set_for_it(tmp_path, program, monkeypatch):
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    log = tmp_path / "log"
    pip_run.install(program('echo "user $PIP_USER target $PIP_TARGET."'), [], log=log, say=print)
    assert log.read_text() == "user 0 target .\n"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "PIP_PROXY", "all_proxy"])
def test_a_proxy_that_refuses_is_named(tmp_path, monkeypatch, name):
    for one in ("PIP_PROXY", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(one, raising=False)
    said = "connection broken by 'ProxyError'"
    assert "connect to the network" in pip_run.explain(said, tmp_path, "")
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert f"correct or unset {name}" in pip_run.explain(said, tmp_path, "")


@pytest.mark.parametrize(
    ("output", "kind", "words"),
    [
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError'\n"
            "ERROR: No matching distribution found for torch==2.13.0",
            pip_run.NoNetworkError,
            "no package index could be reached; connect to the network",
        ),
        ("ERROR: [Errno 28] No space left on device", SetupError, "is full"),
        (
            "ERROR: No matching distribution found for torch==2.13.0",
            SetupError,
            r"there is no torch==2\.13\.0 for Python",
        ),
        (
            "The conflict is caused by:\n    a 1 depends on b>=2\n    The user requested b==1\n"
            "ERROR: ResolutionImpossible: for help",
            SetupError,
            "a 1 depends on b>=2, but The user requested b==1",
        ),
        ("ERROR: wheel is broken\n", SetupError, "course-install.log: wheel is broken"),
        ("", SetupError, "no reason given"),
    ],
)
def test_what_pip_says_becomes_one_sentence(tmp_path, program, output, kind, words):
    (tmp_path / "output").write_text(output)
    script, log = program(f"cat {tmp_path}/output; exit 1"), tmp_path / "course-install.log"
    with pytest.raises(SetupError, match=words) as caught:
        pip_run.install(script, ["x"], log=log, say=silent)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert (log.read_text() if output else "") == output


@pytest.mark.parametrize(
    ("environ", "config", "platform", "gpu", "index"),
    [
        ({}, "", "linux", None, pip_run.CPU_INDEX),
        ({}, "", "linux", "/usr/bin/nvidia-smi", None),
        ({}, "global.find-links='/opt/wheels'", "linux", None, None),
        ({}, ":env:.index-url='https://mirror'", "linux", None, None),
        ({}, "", "darwin", None, None),
        ({"COURSE_TORCH_INDEX": "https://mine"}, "", "linux", None, "https://mine"),
        ({"COURSE_TORCH_INDEX": ""}, "", "linux", None, None),
    ],
)
def test_where_torch_comes_from(monkeypatch, environ, config, platform, gpu, index):
    monkeypatch.setattr(pip_run.sys, "platform", platform)
    monkeypatch.setattr(pip_run.shutil, "which", lambda name: gpu)
    chosen, reason = pip_run.torch_index(environ, config)
    assert chosen == index
    if platform == "linux" and not environ:
        assert "CPU build" in reason
        assert "COURSE_TORCH_INDEX" in reason


def test_an_unreachable_torch_index_falls_back_to_the_default_one(clone, monkeypatch):
    monkeypatch.setenv("COURSE_TORCH_INDEX", "https://unreachable")
    fake_venv(clone / ".venv")
    asked, said = [], []

    def pip(venv, *arguments, say):
        asked.append(arguments)
        if "--index-url" in arguments:
            raise pip_run.NoNetworkError("unreachable")

    monkeypatch.setattr(bootstrap, "_pip", pip)
    monkeypatch.setattr(bootstrap, "python_of", lambda venv: Path(sys.executable))
    assert bootstrap._install_torch(clone, say=said.append).startswith("2.")
    assert asked[-1] == ("--no-deps", "torch==9.9")
    assert "https://unreachable cannot be reached" in said[-1]


# --- old Pythons ---------------------------------------------------------------------------


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
    own = {"setup.bootstrap", "setup.pip_run", "workspace.errors", "workspace.locks"}
    for name in own:
        path = REPOSITORY / "course_lib" / f"{name.replace('.', '/')}.py"
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = [node.module] if isinstance(node, ast.ImportFrom) else []
                names |= {".".join([*module, alias.name]) for alias in node.names}
        others = {one for one in names if not one.startswith("course_lib.")}
        assert {one.split(".")[0] for one in others} <= sys.stdlib_module_names
        assert {".".join(one.split(".")[1:3]) for one in names - others} <= own


def test_handing_over_returns_the_exit_code():
    code = "import sys; from course_lib.setup.bootstrap import hand_over;"
    code += "sys.exit(hand_over([sys.executable, '-c', 'raise SystemExit(7)']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=PATIENCE)
    assert done.returncode == 7


def test_handing_over_without_exec_waits_out_interrupts(monkeypatch):
    process = Mock(**{"wait.side_effect": [KeyboardInterrupt(), KeyboardInterrupt(), 5]})
    monkeypatch.setattr(bootstrap.subprocess, "Popen", lambda command: process)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        code = bootstrap.hand_over(["anything"])
    assert code == 5
