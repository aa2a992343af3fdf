"""V03: a guest sees neither the clone nor the class, wherever they lie."""

import contextlib

import experiment
import pytest
from grading_course import GUEST_LIMITS, LESSON, QUICK, make_class

from course_lib.grading.driver import grade
from course_lib.grading.executors import local
from course_lib.grading.sandbox import confinement
from course_lib.grading.sandbox.confinement import Reached
from course_lib.grading.sandbox.hosts import open_guests
from course_lib.setup import doctor
from course_lib.setup.bootstrap import ROOT
from course_lib.workspace.errors import GradingError


@pytest.fixture
def show(monkeypatch):
    """Return a function that shows a folder to guests, as if Python were installed there."""
    known = confinement._python_paths()

    def also(folder):
        monkeypatch.setattr(confinement, "_python_paths", lambda: [*known, str(folder)])

    return also


@experiment.needs_strict
def test_v03_the_clone_is_hidden_below_what_is_shown(show):
    show(ROOT.parent)
    look = f"import os; print(os.listdir({str(ROOT.parent)!r}), os.listdir({str(ROOT)!r}))"
    with contextlib.closing(open_guests("strict", GUEST_LIMITS, LESSON)) as guests:
        guest = guests.start().wait_ready()
        (shown,) = guest.run(look, 20.0).outputs
        guest.kill()
    assert ROOT.name in shown["text"] and "solutions" not in shown["text"]
    assert confinement.exposed([ROOT / "submitted"]) == ""


def test_v03_a_class_that_guests_would_see_is_refused_and_doctor_says_so(
    show, tmp_path, monkeypatch
):
    course = make_class(tmp_path / "prefix" / "course", ["ada"])
    monkeypatch.setattr(local, "reached", lambda wanted: Reached("strict"))
    assert doctor.look_at_sandbox(course).ok
    for folder in (tmp_path / "prefix", tmp_path / "link", course / "submitted"):
        if folder.name == "link":
            folder.symlink_to(tmp_path / "prefix")
        show(folder)
        with pytest.raises(GradingError, match="which submitted code can read: move it to"):
            grade(course, LESSON, settings=QUICK)
        finding = doctor.look_at_sandbox(course)
        assert not finding.ok and finding.fix.startswith("move it to another folder")
    show(tmp_path / "elsewhere")
    assert doctor.look_at_sandbox(course).ok
