"""What grading does to other libraries is in one place, which names the versions it knows."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS = {
    "nbgrader": "adapters.nbgrader",
    "jupyter_client": "adapters.jupyter_client",
    "ipykernel": "kernels.guest.ipykernel_adapter",
}


@pytest.mark.parametrize("library", ADAPTERS)
def test_an_adapter_names_the_version_that_is_pinned(library):
    """Another one was not read: what is private in a library may change in any release."""
    adapter = importlib.import_module(f"course_lib.grading.{ADAPTERS[library]}")
    pinned = re.search(rf"^{library}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned[1] == adapter.WRITTEN_AGAINST


TRACEBACKS = """
from IPython.core.interactiveshell import InteractiveShell
from course_lib.grading.kernels.guest.ipykernel_adapter import show_errors_quickly

def shown():
    shell = InteractiveShell.instance()
    ran = shell.run_cell("def f(x):\\n    return x['a'][3]\\n\\nf({'a': ()})", silent=True)
    error = ran.error_in_exec
    made = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    InteractiveShell.clear_instance()
    return made[1:]

before = shown()
assert "\\x1b[" in "".join(before), before
show_errors_quickly()
assert [shown(), shown()] == [before, before]
"""


def test_a_traceback_made_quickly_reads_and_looks_as_ipythons_own():
    done = subprocess.run([sys.executable, "-c", TRACEBACKS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nobody_else_in_grading_touches_what_is_private_to_another_module():
    """Ruff's own rule, for private names of objects; `self` and `cls` are free."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "SLF001"]
    adapters = ["--exclude", "adapters,ipykernel_adapter.py,sample_class"]
    folder = ROOT / "course_lib" / "grading"
    done = subprocess.run([*command, *adapters, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
