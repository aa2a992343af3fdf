"""The ledger: an entry is there whole or not at all, and one that is damaged costs one regrade."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading.executors import shard_of
from course_lib.grading.ledger import Entry, Ledger, checks_digest, key_of, same_work
from course_lib.grading.sandbox.confinement import Limits
from course_lib.workspace.errors import GradingError

PACKAGE = Path(__file__).parent.parent / "course_lib"


def entry(student="ada", **known):
    return Entry(student, "k1", "graded", notices=("a", "b"), **known)


def test_an_entry_comes_back_as_it_was(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    for student in ("ada", "Ünï", "a/b\nc", "x" * 300, ".."):
        known = ledger.put(entry(student, notebook='{"cells": []}', seconds={"total": 1.5}))
        assert ledger.get(student) == known and known in ledger.entries()


@given(st.lists(st.text(min_size=1), unique=True), st.integers(1, 7))
def test_each_student_is_in_exactly_one_shard(students, count):
    shards = [shard_of(students, f"{k}/{count}") for k in range(1, count + 1)]
    assert sorted(s for shard in shards for s in shard) == sorted(students)
    assert shard_of(students, None) == students
    for shard in ("0/2", "3/2", "1", "a/b", "1/2/3"):
        with pytest.raises(GradingError, match="write k/n with 1 <= k <= n"):
            shard_of(["ada"], shard)


@pytest.mark.parametrize(
    ("changed", "regrades"),
    [
        ("exercises/masked_softmax/causal_mask.py", True),
        ("exercises/batch_matmul/__init__.py", False),
        ("exercises/_attention/mistakes.py", True),
        ("reference/masked_softmax.py", True),
        ("checks/judge/violations.py", True),
        ("attention/_multi_head.py", False),
    ],
)
def test_a_changed_source_regrades_the_lessons_that_depend_on_it(changed, regrades, tmp_path):
    package = tmp_path / "course_lib"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = checks_digest("02_masked_softmax", package)
    path = package / changed
    path.write_text(f"# a comment\n{path.read_text()}\n# another\n")
    checks_digest.cache_clear()
    assert checks_digest("02_masked_softmax", package) == before
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    checks_digest.cache_clear()
    assert (checks_digest("02_masked_softmax", package) != before) == regrades


def test_everything_that_decides_is_in_the_key():
    parts = (b"data", "release", "seed", Limits(), {"a": "1"}, "checks")
    other = (b"datb", "releasf", "seee", Limits(cell_seconds=1), {"a": "2"}, "check")
    keys = {key_of(*parts)}
    for place in range(len(parts)):
        keys.add(key_of(*parts[:place], other[place], *parts[place + 1 :]))
    assert len(keys) == 7
    assert [same_work(key_of(*parts), key) for key in keys].count(True) == 6
