"""A class that was graded once, undisturbed, for the tests of what happens around grading."""

import shutil

import pytest
from canned import Canned, kept_class
from grading_course import QUICK

from course_lib.grading import driver

SEED = "threat" * 6


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Return (the folder of the class before grading, results by key, grades)."""
    return kept_class(tmp_path_factory.mktemp("kept"), QUICK, SEED)


@pytest.fixture
def course(kept, tmp_path, monkeypatch):
    """Return the same class, ungraded, with a `driver.executor` that returns the kept results."""
    monkeypatch.setenv("COURSE_CHECK_SEED", SEED)
    monkeypatch.setattr(driver, "executor", Canned(kept[1]))
    return shutil.copytree(kept[0], tmp_path / "course")
