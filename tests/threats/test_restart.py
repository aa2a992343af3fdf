"""S09, S10: a real run with workers, one process of which is killed; at random: `restart.py`."""

import shutil

import experiment
import pytest
import restart
from grading_course import LESSON, make_class

pytestmark = experiment.needs_strict


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return (an ungraded class, what counts once it is graded)."""
    folder = tmp_path_factory.mktemp("restart")
    root = make_class(folder / "course", ["ada", "bob", "cyd", "eve", "fay"])
    shutil.copytree(root, folder / "graded")
    return root, restart.finish(folder / "graded")


@pytest.mark.parametrize("victim", ["worker", "fork server"])
def test_s09_a_run_that_is_killed_leaves_no_process_and_is_finished_by_the_next(
    undisturbed, tmp_path, victim
):
    root = shutil.copytree(undisturbed[0], tmp_path / "course")
    ledger = root / ".course" / "ledger" / LESSON
    struck = restart.strike(root, victim, lambda: len(list(ledger.glob("*.json"))) >= 2)
    assert (struck.victim, struck.left) == (victim, ())
    assert restart.finish(root) == undisturbed[1]


def test_s10_deaths_of_the_driver_count_against_nobody(undisturbed, tmp_path):
    root = shutil.copytree(undisturbed[0], tmp_path / "course")
    ledger = root / ".course" / "ledger" / LESSON
    for _ in range(4):
        struck = restart.strike(root, "driver", lambda: any(ledger.glob("*.json")))
        assert (struck.victim, struck.left) == ("driver", ())
    assert restart.finish(root) == undisturbed[1]
