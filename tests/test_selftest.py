import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import selftest

REPOSITORY = Path(__file__).resolve().parent.parent
JUNIT = """<testsuites><testsuite tests="7" failures="2" errors="1" skipped="1"/>
<testsuite tests="3" failures="0" errors="0" skipped="0"/></testsuites>"""


def test_junit_files_are_counted(tmp_path):
    path = tmp_path / "result.xml"
    path.write_text(JUNIT)
    assert selftest.read_junit(path) == (6, 3, 1)


@pytest.mark.parametrize("text", [None, "", "<testsuites>", "<a tests='x'/>"])
def test_a_junit_file_that_cannot_be_read_is_a_failure(tmp_path, text):
    path = tmp_path / "result.xml"
    if text is not None:
        path.write_text(text)
    count = selftest.read_junit(path)
    assert count == ((0, 1, 0) if text != "<a tests='x'/>" else (0, 0, 0))


@pytest.mark.parametrize(("code", "failed"), [(0, 3), (1, 3), (5, 3)])
def test_pytest_counts_are_read(tmp_path, monkeypatch, code, failed):
    def run(root, command):
        Path(command[1].removeprefix("--junitxml=")).write_text(JUNIT)
        return code

    monkeypatch.setattr(selftest, "_run", run)
    assert selftest.unit_tests(tmp_path).failed == failed


def test_a_pytest_that_breaks_down_is_a_failure(tmp_path, monkeypatch):
    def run(root, command):
        Path(command[1].removeprefix("--junitxml=")).write_text('<testsuite tests="2"/>')
        return 3

    monkeypatch.setattr(selftest, "_run", run)
    assert selftest.unit_tests(tmp_path) == (2, 1, 0)


@pytest.mark.parametrize(
    ("codes", "last"), [((0, 0), "4 passed, 0 failed"), ((0, 1), "3 passed, 1 failed")]
)
def test_the_last_line_counts_everything(tmp_path, monkeypatch, capsys, codes, last):
    notebook = tmp_path / "solutions/01_x/01_x.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.touch()
    answers = iter(codes)
    monkeypatch.setattr(selftest, "unit_tests", lambda root: selftest.Count(passed=1))
    monkeypatch.setattr(selftest, "notebooks", lambda root: selftest.Count())
    monkeypatch.setattr(selftest, "drift", lambda root: selftest.Count(passed=1))
    monkeypatch.setattr(selftest, "_run", lambda root, command: next(answers))
    assert selftest.run(tmp_path) == codes[1]
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-1] == last
    assert said[0].startswith("[1/4] style")


def test_arguments_go_to_pytest_alone(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(
        selftest, "_pytest", lambda root, arguments: seen.append(arguments) or selftest.Count(1)
    )
    assert selftest.run(tmp_path, ["-k", "x"]) == 0
    assert seen == [["-k", "x"]]


def test_a_course_without_notebooks_fails_its_test(tmp_path, capsys):
    assert selftest.notebooks(tmp_path) == (0, 1, 0)
    assert "course build" in capsys.readouterr().out


def test_a_skip_is_a_failure_in_ci(tmp_path):
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests/conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_skips():\n    pytest.skip('no chromium: apt install chromium')\n"
        "@pytest.mark.gpu\ndef test_gpu():\n    pass\n"
        "@pytest.mark.xfail\ndef test_known():\n    assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    command += ["-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(tmp_path)]
    for ci, code in (("", 0), ("true", 1)):
        done = subprocess.run(
            command, env={**os.environ, "CI": ci}, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == code, done.stdout + done.stderr
    assert "apt install chromium" in done.stdout
    assert "1 failed" in done.stdout
    assert "1 xfailed" in done.stdout
