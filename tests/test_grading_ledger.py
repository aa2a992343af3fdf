"""A changed source regrades its lessons, and a key covers everything that affects grades."""

import shutil
from pathlib import Path

import pytest

from course_lib.grading.ledger import checks_digest, key_of, same_work
from course_lib.grading.sandbox.confinement import Limits

PACKAGE = Path(__file__).parent.parent / "course_lib"


@pytest.mark.parametrize(
    ("lesson", "changed", "regrades"),
    [
        ("02_masked_softmax", "exercises/masked_softmax/causal_mask.py", True),
        ("02_masked_softmax", "exercises/batch_matmul/__init__.py", False),
        ("02_masked_softmax", "exercises/_attention/mistakes.py", True),
        ("00_whole_game", "reference/whole_game.py", True),
        ("02_masked_softmax", "checks/judge/violations.py", True),
        ("09_translator", "checks/observe/lessons/translator.py", True),
        ("02_masked_softmax", "attention/_multi_head.py", False),
    ],
)
def test_a_changed_source_regrades_its_lessons(lesson, changed, regrades, tmp_path):
    package = tmp_path / "course_lib"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = checks_digest(lesson, package)
    path = package / changed
    path.write_text(f"# a comment\n{path.read_text()}\n# another\n")
    checks_digest.cache_clear()
    assert checks_digest(lesson, package) == before
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    checks_digest.cache_clear()
    assert (checks_digest(lesson, package) != before) == regrades


def test_everything_that_decides_is_in_the_key():
    parts = (b"data", "release", "seed", Limits(), {"a": "1"}, "checks")
    other = (b"datb", "releasf", "seee", Limits(cell_seconds=1), {"a": "2"}, "check")
    keys = {key_of(*parts)}
    for place in range(len(parts)):
        keys.add(key_of(*parts[:place], other[place], *parts[place + 1 :]))
    assert len(keys) == 7
    assert [same_work(key_of(*parts), key) for key in keys].count(True) == 6
