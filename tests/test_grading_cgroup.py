"""The cgroup of a guest, with folders in the place of the system's.

No machine of ours lets a test make groups in the system's own cgroup v2 tree.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.grading.sandbox import cgroup, confinement

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
FILES = ("memory.max", "pids.max", "memory.oom.group", "memory.swap.max", "cgroup.procs")


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Yield a mount with two levels of groups, where a new folder gets the system's files."""
    mount, own = tmp_path / "mount", tmp_path / "own"
    (mount / "user.slice/session").mkdir(parents=True)
    own.write_text("9:name=systemd:/\n0::/user.slice/session\n")
    monkeypatch.setattr(cgroup, "MOUNT", mount)
    monkeypatch.setattr(cgroup, "_OWN", own)
    made = Path.mkdir

    def mkdir(self, *arguments, **options):
        made(self, *arguments, **options)
        for name in FILES:
            (self / name).write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)
    cgroup.place.cache_clear()
    yield mount
    cgroup.place.cache_clear()


def controls(folder: Path, controllers: str) -> None:
    (folder / "cgroup.subtree_control").write_text(controllers)
    (folder / "cgroup.procs").touch()


def test_the_nearest_group_that_passes_both_controllers_on_is_used(system):
    controls(system, "cpu memory pids\n")
    controls(system / "user.slice", "memory pids\n")
    controls(system / "user.slice/session", "\n")  # it holds processes itself
    assert cgroup.place() == system / "user.slice"
    assert "20 times a second" not in confinement.Reached("strict").holds


def test_without_both_controllers_or_the_right_to_move_a_process_there_is_none(system, monkeypatch):
    for controllers in ("", "memory", "cpu pids"):
        for folder in (system, system / "user.slice", system / "user.slice/session"):
            controls(folder, controllers)
        cgroup.place.cache_clear()
        assert cgroup.place() is None and cgroup.group(1, 1) is None
        assert "20 times a second" in confinement.Reached("strict").holds
    controls(system / "user.slice/session", "memory pids")
    monkeypatch.setattr(os, "access", lambda path, _: path.name != "cgroup.procs")
    cgroup.place.cache_clear()
    assert cgroup.place() is None


@pytest.mark.parametrize("killed", [0, 3])
def test_a_group_holds_what_it_is_told_and_leaves_nothing(system, killed):
    controls(system / "user.slice/session", "memory pids")
    group = cgroup.group(3_000_000_000, 64)
    held = {name: (group.folder / name).read_text() for name in FILES}
    assert held == dict(zip(FILES, ["3000000000", "64", "1", "0", ""], strict=True))
    os.write(group.procs, b"0")
    assert (group.folder / "cgroup.procs").read_text() == "0"
    (group.folder / "memory.events").write_text(f"low 0\noom 1\noom_kill {killed}\n")
    assert group.remove() == (killed > 0)
    assert not list(system.rglob("course-*"))


def test_groups_of_a_process_that_was_killed_are_removed(system):
    place = system / "user.slice/session"
    controls(place, "memory pids")
    gone = subprocess.Popen(["true"])
    gone.wait()
    for number in (gone.pid, os.getpid()):
        (place / f"course-{number}-abc").mkdir()
    assert cgroup.place() == place
    assert [path.name for path in place.glob("course-*")] == [f"course-{os.getpid()}-abc"]
