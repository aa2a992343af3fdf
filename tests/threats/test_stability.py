"""U01, U04: the same submission always gets the same points, and one answer costs no other."""

from pathlib import Path

import experiment

from course_lib.benchmarks import stability
from course_lib.models.downloads import FOLDER_VARIABLE

pytestmark = experiment.needs_strict
ROOT = Path(__file__).parents[2]


def test_u01_u04_three_copies_of_each_nasty_notebook_get_the_same_points(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))  # lesson 11 is graded without its model
    found = stability.measure(ROOT, copies=3, runs=1)
    assert found["unstable"] == [], found
    assert not any(tmp_path.iterdir())
    lost = {name: next(iter(seen)).partition("; ")[2] for name, seen in found["outcomes"].items()}
    harmless = {"02 exit", "02 timer", "02 children", "11 exit"}
    assert {name for name, said in lost.items() if said == "all correct"} == harmless
    # The integration puts all answers together, so it is lost along with any of them.
    for name in lost.keys() - harmless:
        (lesson,) = (slug for slug in stability.LESSONS if slug[:2] == name[:2])
        allowed = {lesson, stability.LESSONS[lesson][0]}
        assert {said.split()[0] for said in lost[name].split(", ")} <= allowed, found
