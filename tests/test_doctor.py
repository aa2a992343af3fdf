import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from course_lib.cli import main as cli
from course_lib.cli.failures import explained
from course_lib.grading.executors import local as executors
from course_lib.grading.sandbox.confinement import Reached
from course_lib.setup import doctor


def bad(finding):
    """Assert that a finding is not ok and return it as a person reads it."""
    assert not finding.ok
    line, remedy = doctor.to_text(finding).splitlines()
    assert line.startswith(f"BAD  {finding.topic}") and remedy.startswith("     fix with: ")
    return finding


def test_a_python_that_is_too_old_is_found(monkeypatch):
    assert doctor.look_at_python().ok
    monkeypatch.setattr(sys, "version_info", (3, 10, 9, "final", 0))
    assert "python3.11 -m course_lib doctor" in bad(doctor.look_at_python()).fix


def test_a_pin_that_differs_or_a_missing_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("# pins\nnumpy==0.1\nnot-installed==1\n")
    finding = bad(doctor.look_at_packages(tmp_path))
    assert "instead of 0.1" in finding.seen
    assert "not-installed" not in finding.seen
    assert f"pip install -c {tmp_path}/constraints.txt -e {tmp_path}" in finding.fix
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["rich>=1", "no-such-one>=2"])
    assert bad(doctor.look_at_packages(tmp_path)).seen.startswith("no-such-one is missing;")
    assert "rich is missing" not in bad(doctor.look_at_packages(tmp_path)).seen


def test_this_environment_is_well():
    assert doctor.look_at_kernel(doctor.ROOT).ok


def test_a_kernel_that_finds_another_course_is_named_with_the_command(tmp_path):
    finding = bad(doctor.look_at_kernel(tmp_path))
    assert f"imports course_lib from {doctor.ROOT}" in finding.seen
    wheel = f"{sys.executable} -m pip install --force-reinstall WHEEL"
    assert finding.fix.startswith(wheel)
    (tmp_path / "pyproject.toml").touch()
    fix = doctor.look_at_kernel(tmp_path).fix
    assert fix == f"{sys.executable} -m pip install -e {tmp_path}"


def test_a_folder_or_gradebook_that_cannot_be_written_is_found(tmp_path, monkeypatch):
    assert doctor.look_at_folder(tmp_path).ok
    assert "No such file" in bad(doctor.look_at_folder(tmp_path / "missing")).seen
    assert bad(doctor.look_at_folder(None)).fix == f"cd {doctor.ROOT}"
    monkeypatch.setattr(doctor, "ROOT", tmp_path)  # like an installed wheel
    assert bad(doctor.look_at_folder(None)).fix == "course init FOLDER, then: cd FOLDER"
    (tmp_path / "gradebook.db").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "gradebook.db")
    finding = bad(doctor.look_at_folder(tmp_path))
    assert finding.seen.endswith("cannot be written: gradebook.db")
    assert finding.fix.endswith(f" {tmp_path}/gradebook.db")


def test_a_full_disk_is_found(tmp_path, monkeypatch):
    usage = SimpleNamespace(free=0.2e9)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    assert bad(doctor.look_at_disk(tmp_path)).seen == "0.2 GB free"


def test_a_tmpdir_with_too_long_a_name_is_named_by_doctor_and_verbs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 80)
    finding = bad(doctor.look_at_disk(tmp_path))
    assert finding.fix == "set TMPDIR to one of at most 70 characters"
    assert finding.fix in explained(OSError("AF_UNIX path too long"))


@pytest.mark.parametrize("sign", ["submitted/ada", ".course/init.json"])
def test_a_weak_sandbox_is_bad_in_the_folder_of_a_class(tmp_path, monkeypatch, sign):
    weak = Reached("off", {"strict": "bwrap is missing; apt-get install bubblewrap"})
    monkeypatch.setattr(executors, "reached", lambda wanted: weak)
    assert doctor.look_at_sandbox(tmp_path).ok
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()")
    (tmp_path / sign).parent.mkdir()
    (tmp_path / sign).touch()
    finding = bad(doctor.look_at_sandbox(tmp_path))
    assert "bwrap is missing" in finding.seen
    assert finding.fix.startswith("apt-get install bubblewrap; or, if you trust")


def test_packages_that_pythonpath_brings_in_are_named_by_doctor_and_verbs(tmp_path):
    place = tmp_path / "numpy"
    place.mkdir()
    (place / "__init__.py").write_text("raise ImportError('multiarray failed to import')")
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}

    def said(*verb):
        command = [sys.executable, "-m", "course_lib.cli", *verb]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    done = said("doctor", "--quiet")
    assert done.returncode == 1
    assert f"PYTHONPATH replaces numpy by the one in {tmp_path}" in done.stdout
    assert "fix with: unset PYTHONPATH" in done.stdout and "delete .venv" not in done.stdout
    lesson = "02_masked_softmax"
    for folder in ("solutions", "notebooks"):
        shutil.copytree(doctor.ROOT / folder / lesson, tmp_path / folder / lesson)
    handed_in = tmp_path / "submitted" / "ada" / lesson
    shutil.copytree(doctor.ROOT / "notebooks" / lesson, handed_in)
    done = said("grade", "02")
    assert done.returncode == 1
    assert f"packages of another Python from {tmp_path}: unset it and call again" in done.stderr


def test_a_folder_of_pythonpath_that_replaces_no_package_is_not_warned_about(monkeypatch):
    packages = Path(numpy.__file__).parents[1]
    folders = os.pathsep.join(map(str, [packages, packages.parent, sys.prefix, doctor.ROOT, "."]))
    monkeypatch.setenv("PYTHONPATH", folders)
    monkeypatch.syspath_prepend(str(doctor.ROOT))
    assert doctor.look_at_python().ok


def test_doctor_exits_with_what_it_found(monkeypatch, capsys):
    findings = [doctor.Finding("a", True, "fine"), doctor.Finding("b", False, "x", "do y")]
    monkeypatch.setattr(doctor, "examine", lambda root: iter(findings))
    assert cli.main(["doctor", "--json"]) == 1
    assert [found["ok"] for found in json.loads(capsys.readouterr().out)] == [True, False]
    assert cli.main(["doctor", "--quiet"]) == 1
    assert capsys.readouterr().out == "BAD  b         x\n     fix with: do y\n"
    monkeypatch.setattr(doctor, "examine", lambda root: iter(findings[:1]))
    assert cli.main(["doctor", "--quiet"]) == 0
