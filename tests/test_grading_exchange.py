"""nbgrader's exchange, from release to feedback, with `course grade` in the place of autograde."""

import getpass
import os
from pathlib import Path

import nbformat
import pytest
from grading_course import CAUSAL, LESSON, QUICK, cell_of, hand_in, honest, make_course, nbgrader

from course_lib.grading.driver import grade

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="nbgrader's exchange needs POSIX: use Linux"),
]


def test_feedback_comes_back_by_the_exchange(tmp_path):
    root, home, shared = tmp_path / "course", tmp_path / "home", tmp_path / "exchange"
    for folder in (root, home, shared):
        folder.mkdir()
    shared.chmod(0o777)
    make_course(root)

    def call(folder: Path, verb: str) -> None:
        places = [f"--Exchange.root={shared}", f"--Exchange.cache={tmp_path / 'cache'}"]
        data = str(tmp_path / "jupyter")
        nbgrader(folder, verb, LESSON, "--course=tiny", *places, JUPYTER_DATA_DIR=data)

    call(root, "release_assignment")
    call(home, "fetch_assignment")
    place = home / LESSON / f"{LESSON}.ipynb"
    answered = nbformat.read(place, as_version=4)
    cell_of(answered, "causal_mask-answer").source = CAUSAL
    nbformat.write(answered, place)
    call(home, "submit")
    call(root, "collect")
    hand_in(root, "by-mail", honest(root))  # without the exchange's files
    summary = grade(root, LESSON, settings=QUICK)
    student = next(s for s in summary.students if s.student == getpass.getuser())
    assert [row.points for row in student.rows] == [2, 0]
    assert student.notices == ()
    call(root, "release_feedback")
    call(home, "fetch_feedback")
    (page,) = (home / LESSON / "feedback").rglob("*.html")
    ours = root / "feedback" / getpass.getuser() / LESSON / f"{LESSON}.html"
    assert page.read_bytes() == ours.read_bytes()
