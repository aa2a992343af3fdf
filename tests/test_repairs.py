"""Every repair of one fault of several raises the score, whatever the others are."""

import itertools
from pathlib import Path

import pytest

from course_lib.authoring.variants import faulty_answers
from course_lib.checks import exercises
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.verdict import judge_observed
from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.observation import subject_of
from course_lib.exercises import find

ROOT = Path(__file__).parent.parent


def score_of(name, answer):
    """Return the score without a look for the known mistake, which takes most of the time."""
    seen = observe_all(answer, [probe for probe, _ in prepare(find(name), "repairs")])
    return judge_observed(find(name), "repairs", subject_of(answer), seen).score


@pytest.mark.slow
@pytest.mark.parametrize("name", list(exercises()))
def test_every_repair_raises_the_score(name):
    makers = faulty_answers(ROOT, name)
    has_several = len(exercises()[name].mistakes) > 1
    assert makers or not has_several, f"{name}: mark a function in tests/variants as @faulty(...)"
    for make in makers:
        assert len(make.__faults__) >= 2, make.__name__
        scores = {}
        for size in range(3):
            for faults in itertools.combinations(make.__faults__, size):
                scores[frozenset(faults)] = score_of(name, make(frozenset(faults)))
        assert scores[frozenset()] == 1.0, f"{make.__name__} without faults is not right"
        flat = [
            f"{sorted(faults)} {score:.3f} -> without {fault} {scores[faults - {fault}]:.3f}"
            for faults, score in scores.items()
            for fault in faults
            if not scores[faults - {fault}] > score
        ]
        assert not flat, f"{make.__name__}: " + "; ".join(flat)
