import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from nbval.plugin import get_sanitize_patterns

from course_lib import selftest
from course_lib.plotting import Plot, Table, figure_html
from course_lib.plotting.display import new_figure

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
    def run(root, command, settings):
        Path(command[1].removeprefix("--junitxml=")).write_text(JUNIT)
        return code

    monkeypatch.setattr(selftest, "_run", run)
    assert selftest.unit_tests(tmp_path).failed == failed


def test_a_pytest_that_breaks_down_is_a_failure(tmp_path, monkeypatch):
    def run(root, command, settings):
        Path(command[1].removeprefix("--junitxml=")).write_text('<testsuite tests="2"/>')
        return 3

    monkeypatch.setattr(selftest, "_run", run)
    assert selftest.unit_tests(tmp_path) == (2, 1, 0)


@pytest.fixture
def parts(monkeypatch):
    """The parts of a run, each of which passes as many checks as it has of ten."""
    counts = {"style": 1, "quick_tests": 10, "drift": 2, "unit_tests": 100}
    counts |= {"notebooks": 1000, "other_processor": 10_000}
    for name, passed in counts.items():
        monkeypatch.setattr(selftest, name, lambda root, p=passed: selftest.Count(passed=p))
    return monkeypatch


@pytest.mark.parametrize(
    ("ci", "everything", "last"),
    [
        ("", False, "13 passed, 0 failed"),
        ("", True, "11103 passed, 0 failed"),
        ("true", False, "11103 passed, 0 failed"),
    ],
)
def test_the_last_line_counts_what_was_asked_for(tmp_path, parts, capsys, ci, everything, last):
    parts.setenv("CI", ci)
    assert selftest.run(tmp_path, everything=everything) == 0
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-1] == last
    assert said[0].startswith("[1/5] style" if ci or everything else "[1/3] style")
    assert ("`course test --all` runs them" in "\n".join(said)) == (not ci and not everything)


def test_one_failure_is_a_failure(tmp_path, parts, capsys):
    parts.setattr(selftest, "drift", lambda root: selftest.Count(passed=1, failed=1))
    assert selftest.run(tmp_path) == 1
    assert ", 1 failed" in capsys.readouterr().out.splitlines()[-1]


CASES = """<testsuites><testsuite>
<testcase classname="tests.test_x.TestIt" name="a" time="0.25"/>
<testcase classname="tests.test_x" name="b" time="1.0"/>
<testcase classname="tests.threats.test_y" name="c" time="2.5"/>
</testsuite></testsuites>"""


def test_what_took_how_long_is_kept_in_a_table(tmp_path, parts, capsys):
    def unit(root):
        (root / selftest.RESULTS).mkdir(parents=True, exist_ok=True)
        (root / selftest.RESULTS / "unit_tests.xml").write_text(CASES)
        return selftest.Count(passed=3)

    parts.setenv("CI", "")
    parts.setattr(selftest, "quick_tests", unit)
    (tmp_path / "docs").mkdir()
    selftest.run(tmp_path, durations=True)
    rows = (tmp_path / selftest.DURATIONS).read_text().splitlines()
    first = rows.index("| `tests/threats/test_y` | 1 | 2.5 |")
    assert rows[first + 1] == "| `tests/test_x` | 2 | 1.2 |"
    assert any(row.startswith("| unit tests | ") for row in rows)


def test_a_quick_run_leaves_out_what_is_slow(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(selftest, "_pytest", lambda *all: given.append(all) or selftest.Count(1))
    selftest.quick_tests(tmp_path)
    selftest.unit_tests(tmp_path)
    (_, quick, _, _), (_, whole, settings, _) = given
    assert quick[-2:] == ["-m", "not slow"] and quick[:-2] == whole
    assert settings["COURSE_TEST_ALL"] == "1"


def test_faults_of_style_are_found_and_named_with_their_fix(tmp_path, capfd):
    """One for each command, in a course that has no other."""
    package = tmp_path / "course_lib"
    package.mkdir()
    for name in ("__init__", "judge"):
        (package / f"{name}.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_package = "course_lib"\n'
        '[[tool.importlinter.contracts]]\nname = "one way"\ntype = "forbidden"\n'
        'source_modules = ["course_lib.observe"]\nforbidden_modules = ["course_lib.judge"]\n'
        '[tool.basedpyright]\ninclude = ["course_lib"]\ntypeCheckingMode = "standard"\n'
    )
    (package / "observe.py").write_text("")
    assert selftest.style(tmp_path) == (len(selftest.STYLE), 0, 0)
    (package / "observe.py").write_text('import course_lib.judge\nx: int  = ""\n')
    assert selftest.style(tmp_path) == (0, len(selftest.STYLE), 0)
    said = capfd.readouterr().out
    for command, fix in selftest.STYLE.items():
        assert f"{command} failed; {fix}" in said


def test_a_tool_that_is_missing_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(selftest.shutil, "which", lambda name, path: None)
    assert selftest.style(tmp_path) == (0, len(selftest.STYLE), 0)
    assert "pip install -e '.[dev]'" in capsys.readouterr().out


def test_the_hooks_before_a_commit_are_the_commands_of_style():
    text = (REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    hooks = [hook for repo in yaml.safe_load(text)["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == list(selftest.STYLE)
    for hook in hooks:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


def test_arguments_go_to_pytest_alone(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(
        selftest, "_pytest", lambda root, given, *rest: seen.append(given) or selftest.Count(1)
    )
    assert selftest.run(tmp_path, ["-k", "x"]) == 0
    assert seen == [["-k", "x"]]


def test_a_course_without_notebooks_fails_its_test(tmp_path, capsys):
    assert selftest.notebooks(tmp_path) == (0, 1, 0)
    assert "course build" in capsys.readouterr().out


def test_notebooks_compare_what_a_figure_says_and_not_how_it_is_drawn():
    patterns = get_sanitize_patterns((REPOSITORY / selftest.PICTURES).read_text())

    def compared(figure, alt, number="0.1234"):
        plot = Plot(figure, alt, Table(["x", "y"], [["0", number]]))
        text = figure_html(plot, "a caption")
        for pattern, replacement in patterns:
            text = re.sub(pattern, replacement, text)
        return text

    wide, narrow = new_figure(4, 2), new_figure(4, 2)
    wide.text(0.5, 0.5, "drawn otherwise")
    assert figure_html(Plot(wide, "says")) != figure_html(Plot(narrow, "says"))
    assert compared(wide, "says") == compared(narrow, "says", "0.1235")
    assert compared(wide, "says") != compared(wide, "says another thing")
    svg = '<p><svg viewBox="0 0 1 1">\n<path d="M0 {}"/></svg> says</p><svg/>'
    first, second = (svg.format(end) for end in ("1.0001", "1.0002"))
    for pattern, replacement in patterns:
        first, second = (re.sub(pattern, replacement, text) for text in (first, second))
    assert first == second and first.endswith(" says</p><svg/>")


def test_another_processor_runs_notebooks_and_every_test_that_compares_numbers(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(selftest, "_pytest", lambda *given: calls.append(given) or selftest.Count())
    selftest.other_processor(REPOSITORY)
    ((_, arguments, settings, _),) = calls
    assert "ATEN_CPU_CAPABILITY=default" in capsys.readouterr().out
    assert settings == selftest.OTHER_PROCESSOR
    notebooks = {str(p.relative_to(REPOSITORY)) for p in REPOSITORY.glob("solutions/*/*.ipynb")}
    fused = {str(p.relative_to(REPOSITORY)) for p in REPOSITORY.glob("tests/test_fused_*.py")}
    assert notebooks | fused <= set(arguments)
    assert "tests/test_cli.py" not in arguments


def test_another_processor_is_another_one_to_torch(tmp_path):
    """Its own kernels take no vectors then, and there are two threads instead of one."""
    (tmp_path / "torch_sees.py").write_text(
        "import sys, torch\n"
        "seen = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()\n"
        "sys.exit(int(seen != (sys.argv[1], int(sys.argv[2]))))\n"
    )
    here = torch.backends.cpu.get_cpu_capability()
    assert not selftest._run(tmp_path, ["torch_sees", "DEFAULT", "2"], selftest.OTHER_PROCESSOR)
    assert not selftest._run(tmp_path, ["torch_sees", here, "1"])


@pytest.mark.slow
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
