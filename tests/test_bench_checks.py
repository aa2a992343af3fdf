"""`course bench checks`: each answer's first check is timed in a process of its own."""

import json
import os
from pathlib import Path

import pytest

from course_lib.authoring.variants import variants
from course_lib.benchmarks import checks as benchmark
from course_lib.exercises import lessons

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")


def test_a_row_an_exercise_with_every_kind_of_answer():
    told = []
    found = benchmark.measure(ROOT, ["02_masked_softmax"], most=1, tell=told.append)
    names = list(lessons()["02_masked_softmax"].exercises)
    assert [row.exercise for row in found.rows] == names == told
    assert all(len(row.right) == len(row.wrong) == 1 for row in found.rows)
    assert all(seconds > 0 for row in found.rows for seconds in (*row.right, *row.wrong))
    assert all(name in found.text() for name in names)
    assert json.loads(json.dumps(found.as_dict()))["median_wrong"] > 0
    assert 0 < found.first_of_session < 1


def test_nothing_is_kept_from_one_answer_to_the_next(monkeypatch):
    # Neither probes nor known mistakes that another check has run already are kept.
    drawn = []
    monkeypatch.setattr(benchmark, "judge_answer", lambda *a, **k: drawn.append(a))
    answer = next(variants(ROOT, "causal_mask"))
    benchmark._first_check(answer)
    assert not drawn, "the check ran in this process"
