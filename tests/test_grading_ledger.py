"""The ledger: an entry is there whole or not at all, and one that is damaged costs one regrade."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading.executors import shard_of
from course_lib.grading.fingerprints import checks_digests, key_of
from course_lib.grading.ledger import Entry, Ledger
from course_lib.grading.sandbox.confinement import Limits
from course_lib.workspace.errors import GradingError

PACKAGE = Path(__file__).parent.parent / "course_lib"


def entry(student="ada", **known):
    known |= {"notices": ("a", "b"), "flagged": {"x": "why"}}
    return Entry(student, "k1", {"causal_mask": "d"}, "graded", **known)


@pytest.mark.parametrize("student", ["ada", "Ünï", "a/b\nc", "x" * 300, ".."])
def test_an_entry_comes_back_as_it_was(tmp_path, student):
    ledger = Ledger(tmp_path / "ledger")
    known = ledger.put(entry(student, notebook='{"cells": []}', seconds={"total": 1.5}))
    assert ledger.get(student) == known
    assert ledger.entries() == [known]
    published = ledger.published(known)
    assert (published.state, published.notebook) == ("published", "")  # it is kept elsewhere
    assert ledger.get(student) == published
    ledger.put(replace(known, state="landed"))  # the word of an earlier version
    assert ledger.get(student).state == "published"


@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_a_damaged_entry_is_no_entry_and_hurts_no_other(tmp_path, damage):
    ledger = Ledger(tmp_path)
    ledger.put(entry("bob"))
    path = ledger._path("ada")
    ledger.put(entry("ada", problem="say, 12345"))
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "flip": data.replace(b"12345", b"12346"),
            "text": b"[1, 2]",
        }[damage]
    )
    assert ledger.get("ada") == Entry("ada")
    assert ledger.entries() == [ledger.get("bob")] != [Entry("bob")]


def test_a_folder_that_cannot_be_written_is_named_with_the_cure(tmp_path):
    (tmp_path / "ledger").write_text("a file")
    with pytest.raises(GradingError, match="make room, then run the same command again"):
        Ledger(tmp_path / "ledger").put(entry())


@given(st.lists(st.text(min_size=1), unique=True), st.integers(1, 7))
def test_each_student_is_in_exactly_one_shard(students, count):
    shards = [shard_of(students, f"{k}/{count}") for k in range(1, count + 1)]
    assert sorted(s for shard in shards for s in shard) == sorted(students)
    assert shard_of(students, None) == students


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/2/3"])
def test_a_shard_that_is_none_is_explained(shard):
    with pytest.raises(GradingError, match="write k/n with 1 <= k <= n"):
        shard_of(["ada"], shard)


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("exercises/masked_softmax/causal_mask.py", {"causal_mask"}),
        ("exercises/batch_matmul/weighted_sum.py", set()),
        ("exercises/_attention/mistakes.py", {"masked_softmax", "02_masked_softmax"}),
        ("reference/masked_softmax.py", set(checks_digests("02_masked_softmax"))),
        ("checks/judge/violations.py", set(checks_digests("02_masked_softmax"))),
        ("attention/_multi_head.py", set()),
    ],
)
def test_a_changed_source_touches_the_exercises_that_depend_on_it(changed, touched, tmp_path):
    package = tmp_path / "course_lib"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = checks_digests("02_masked_softmax", package)
    path = package / changed
    path.write_text(f"# a comment\n{path.read_text()}\n# another\n")
    checks_digests.cache_clear()
    assert checks_digests("02_masked_softmax", package) == before
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    checks_digests.cache_clear()
    after = checks_digests("02_masked_softmax", package)
    assert {name for name in after if before[name] != after[name]} == touched


def test_everything_that_decides_is_in_the_key():
    parts = (b"data", "release", "seed", Limits())
    other = (b"datb", "releasf", "seee", Limits(cell_seconds=1))
    keys = {key_of(*parts)}
    for place in range(len(parts)):
        keys.add(key_of(*parts[:place], other[place], *parts[place + 1 :]))
    assert len(keys) == 5
    assert os.path.sep not in key_of(*parts)
