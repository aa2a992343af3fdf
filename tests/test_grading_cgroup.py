"""The cgroup of a guest, with folders in the place of the system's.

No machine of ours lets a test make groups in the system's own cgroup v2 tree. Where groups of v1
can be made, the tests of the sandbox use them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.grading.sandbox import cgroup, confinement

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
V2 = ("memory.max", "pids.max", "memory.oom.group", "memory.swap.max", "cgroup.procs")
V1 = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "pids": ("pids.max",),
    "cpuacct": (),
}


def tree_of(folder: Path) -> str:
    """Return the tree of v1 in which a folder lies."""
    return next((name for name in V1 if name in folder.parts), "")


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
        for name in (*V1.get(tree_of(self), V2), "tasks"):
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
    assert cgroup.place() == (system / "user.slice",)
    assert "counted by the kernel (cgroup v2); disk" in confinement.Reached("strict").holds


def test_without_both_controllers_or_the_right_to_move_a_process_there_is_none(system, monkeypatch):
    for controllers in ("", "memory", "cpu pids"):
        for folder in (system, system / "user.slice", system / "user.slice/session"):
            controls(folder, controllers)
        cgroup.place.cache_clear()
        assert cgroup.place() == ()
        assert "without cgroups: " in confinement.Reached("strict").holds
    controls(system / "user.slice/session", "memory pids")

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "write", refuse)
    cgroup.place.cache_clear()
    assert cgroup.place() == ()
    assert not list(system.rglob("course-*"))


@pytest.mark.parametrize("killed", [0, 3])
def test_a_group_holds_what_it_is_told_and_leaves_nothing(system, killed):
    controls(system / "user.slice/session", "memory pids")
    group = cgroup.Group(cgroup.place(), 3_000_000_000, 64)
    (folder,) = group.folders
    held = {name: (folder / name).read_text() for name in V2}
    assert held == dict(zip(V2, ["3000000000", "64", "1", "0", ""], strict=True))
    (entry,) = group.entries
    os.write(entry, b"0")
    assert (folder / "cgroup.procs").read_text() == "0"
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert group.cpu_seconds() == 2.5
    (folder / "memory.events").write_text(f"low 0\noom 1\noom_kill {killed}\n")
    assert group.remove() == (killed > 0)
    assert not list(system.rglob("course-*"))


@pytest.mark.parametrize("killed", [0, 3])
def test_without_v2_the_three_trees_of_v1_are_used(system, killed):
    (system / "memory/session").mkdir(parents=True)
    for name in ("pids", "cpuacct"):
        (system / name).mkdir()
    own = "5:pids:/\n4:memory:/session\n3:cpu,cpuacct:/\n0::/user.slice/session\n"
    (system.parent / "own").write_text(own)
    assert cgroup.place() == (system / "memory/session", system / "pids", system / "cpuacct")
    assert "counted by the kernel (cgroup v1); disk" in confinement.Reached("strict").holds
    group = cgroup.Group(cgroup.place(), 3_000_000_000, 64)
    memory, pids, time = group.folders
    assert (memory / "memory.limit_in_bytes").read_text() == "3000000000"
    assert (pids / "pids.max").read_text() == "64"
    for folder, entry in zip(group.folders, group.entries, strict=True):
        os.write(entry, b"0")
        assert (folder / "tasks").read_text() == "0"
    (time / "cpuacct.usage").write_text("2500000000\n")
    assert group.cpu_seconds() == 2.5
    (memory / "memory.oom_control").write_text(f"under_oom 0\noom_kill {killed}\n")
    assert group.remove() == (killed > 0)
    assert not list(system.rglob("course-*"))


def test_groups_of_a_process_that_was_killed_are_removed(system):
    place = system / "user.slice/session"
    controls(place, "memory pids")
    gone = subprocess.Popen(["true"])
    gone.wait()
    for number in (gone.pid, os.getpid()):
        (place / f"course-{number}-abc").mkdir()
    assert cgroup.place() == (place,)
    assert [path.name for path in place.glob("course-*")] == [f"course-{os.getpid()}-abc"]
