import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from waiting import PATIENCE

import course_lib

REPOSITORY = Path(__file__).resolve().parent.parent


def run(code):
    """Run code in a new process and return what it prints, without the new line."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def fresh(code, *modules):
    """Run code in a new process and return which of `modules` it has imported."""
    return ast.literal_eval(
        run(f"{code}\nimport sys; print([m for m in {modules!r} if m in sys.modules])")
    )


def test_the_first_check_imports_only_the_exercises_of_its_lesson():
    code = "import sys, course_lib\ncourse_lib.check('causal_mask', len)\n"
    code += "print([m for m in sys.modules if m.startswith('course_lib.exercises.')])"
    modules = [name.split(".")[2:] for name in ast.literal_eval(run(code).splitlines()[-1])]
    beside = ("_", "fixtures")  # files of all exercises, or for a student's process
    modules = [parts for parts in modules if not parts[-1].startswith(beside)]
    assert {parts[0] for parts in modules if len(parts) > 1} == {"masked_softmax"}


def test_imports_are_fast_and_bring_in_nothing_heavy_before_it_is_used():
    heavy = ("torch", "numpy", "matplotlib", "typer", "nbgrader", "course_lib.checks")
    assert fresh("import course_lib", *heavy) == []
    bare, seconds = (min(cpu_time(code) for _ in range(3)) for code in ("", "import course_lib"))
    assert seconds - bare < 0.2
    heavy = (
        "torch",
        "numpy",
        "nbgrader",
        "nbconvert",
        "jupyter_client",
        "course_lib.grading.driver",
    )
    assert fresh("import course_lib.cli.main", *heavy) == []
    # Only workers and the host of their guests judge, so `course grade` itself needs no torch.
    code = "import course_lib.grading.driver, course_lib.grading.class_report.pages\n"
    code += "from course_lib.grading.publishing.feedback_page import _template\n"
    assert fresh(f"{code}_template('index')", "torch") == []
    packages = ["course_lib.fused", "course_lib.plotting"]  # attributes at once
    code = "import course_lib; course_lib.fused, course_lib.plotting"
    assert fresh(code, *packages) == packages


def cpu_time(code):
    """Return the CPU seconds of a fresh interpreter that runs some code."""
    before = os.times()
    run(code)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])  # user and system, of children


def test_an_unknown_name_suggests_the_nearest_and_a_private_one_is_not_searched_for():
    with pytest.raises(AttributeError, match="'mask_softmax'; did you mean 'masked_softmax'"):
        _ = course_lib.mask_softmax
    with pytest.raises(AttributeError, match=r"no attribute '__wrapped__'$"):
        _ = course_lib.__wrapped__


def test_exercises_add_nothing_to_what_the_students_kernel_knows():
    # The kernel could not find a scenario or builder that only an exercise has.
    code = (
        "from course_lib.checks.observe import call, scenarios as s\n"
        "before = len(s.SCENARIOS) + len(s.BUILDERS)\n"
        "from course_lib.checks import exercises\nexercises()\n"
        "print(len(s.SCENARIOS) + len(s.BUILDERS) - before)"
    )
    assert run(code) == "0"


def test_the_table_of_packages_is_the_contract():
    # The rows of docs/architecture.md are the layers of pyproject.toml, in their order.
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = contracts["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("<!-- packages:")[2].partition("<!-- end of packages -->")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    found = [re.findall(r"`([\w.]+)`", row) for row in rows]
    assert found == [[f.removeprefix("course_lib.") for f in row.split(" | ")] for row in layers]
