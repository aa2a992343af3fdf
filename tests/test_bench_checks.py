"""`course bench checks`: each answer's first check is timed in a process of its own."""

import json
import os
from pathlib import Path

import pytest
import yaml

from course_lib.authoring.variants import variants
from course_lib.benchmarks import checks as benchmark
from course_lib.exercises import lessons

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")


def test_a_row_an_exercise_with_every_kind_of_answer(monkeypatch):
    def first_of_each_kind(root, name):
        answers = list(variants(root, name))
        return [next(a for a in answers if a.is_right is kind) for kind in (True, False)]

    monkeypatch.setattr(benchmark, "variants", first_of_each_kind)
    told = []
    found = benchmark.measure(ROOT, ["02_masked_softmax"], tell=told.append)
    names = list(lessons()["02_masked_softmax"].exercises)
    assert list(found["exercises"]) == names == told
    kinds = [kind for row in found["exercises"].values() for kind in row.values()]
    assert all(kind["answers"] == 1 and kind["slowest"] == kind["median"] > 0 for kind in kinds)
    assert found["all"]["wrong"]["answers"] == len(names) and found["all"]["wrong"]["median"] > 0
    assert json.loads(json.dumps(found)) == yaml.safe_load(yaml.safe_dump(found)) == found
    assert 0 < found["first_of_session"] < 1


def test_nothing_is_kept_from_one_answer_to_the_next(monkeypatch):
    # Neither probes nor known mistakes that another check has run already are kept.
    drawn = []
    monkeypatch.setattr(benchmark, "judge_answer", lambda *a, **k: drawn.append(a))
    answer = next(variants(ROOT, "causal_mask"))
    benchmark._first_check(answer)
    assert not drawn, "the check ran in this process"
