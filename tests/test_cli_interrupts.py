"""Ctrl-C in a terminal reaches all processes: exit code 130, one line, no partial files."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from grading_course import LESSON
from waiting import PATIENCE, wait_until

from course_lib.cli import main as cli

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow
posix = pytest.mark.skipif(os.name != "posix", reason="needs process groups: run it on Linux")


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def interrupted(folder, arguments, *, after):
    """Run `course` in a terminal's place and press Ctrl-C once stderr has said `after`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "course_lib.cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said = ""
    while after not in said:
        line = process.stderr.readline()
        assert line, f"it ended before: {said}"
        said += line
    os.killpg(process.pid, signal.SIGINT)
    _, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, rest
    assert rest.splitlines()[-1:] == [f"course: {cli.INTERRUPTED}"]
    assert "Traceback" not in rest
    return process.pid


def is_gone(group):
    """Return whether nobody of a process group is left."""
    try:
        return os.killpg(group, 0)
    except ProcessLookupError:
        return True


@posix
@pytest.mark.parametrize(
    ("arguments", "after"), [(["build", "02", "--force"], "cell 4 of"), (["bundle", "02"], "with")]
)
def test_what_is_built_or_packed_stays_as_it_was(tmp_path, arguments, after):
    for part in ("solutions", "notebooks"):
        shutil.copytree(ROOT / part / LESSON, tmp_path / part / LESSON)
    names = "nbgrader_config.py LICENSE constraints.txt pyproject.toml environment.yml"
    for name in names.split():
        shutil.copy(ROOT / name, tmp_path)
    before = files(tmp_path)
    group = interrupted(tmp_path, arguments, after=after)
    assert files(tmp_path) == before
    wait_until(lambda: is_gone(group))


def test_an_interrupt_that_python_would_drop_arrives(monkeypatch):
    class Falls:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

    def app(**options):
        falls = Falls()
        del falls
        time.sleep(20)
        slept.append(True)

    slept = []
    monkeypatch.setattr(cli, "app", app)
    assert cli.main([]) == 130
    assert not slept
