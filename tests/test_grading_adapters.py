"""What grading does to other libraries is in one place, which names the versions it knows."""

import re
import subprocess
import sys
from pathlib import Path

from course_lib.grading.adapters import nbgrader

ROOT = Path(__file__).resolve().parents[1]


def test_the_adapter_names_the_version_that_is_pinned():
    # Another version was not read: what is private in a library may change in any release.
    pinned = re.search(r"^nbgrader==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned[1] == nbgrader.WRITTEN_AGAINST


def test_nobody_else_in_grading_touches_what_is_private_to_another_module():
    # This is Ruff's own rule for private names of objects; `self` and `cls` are free.
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "SLF001"]
    folder = ROOT / "course_lib" / "grading"
    left_out = ["--exclude", "adapters,sample_class"]
    done = subprocess.run([*command, *left_out, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
