"""A changed source regrades its lessons, and a key covers everything that affects grades."""

import shutil
from pathlib import Path

import pytest

from course_lib.grading.ledger import checks_digest, key_of, same_work
from course_lib.grading.sandbox.confinement import Limits

PACKAGE = Path(__file__).parent.parent / "course_lib"
DECIDES = """
authoring/paste.py checks/observe/cells.py grading/cell_kinds.py grading/clean_outputs.py
grading/guest_package.py grading/intake/parsing.py grading/intake/read.py grading/intake/rebuild.py
grading/sandbox/cgroup.py grading/sandbox/confinement.py grading/sandbox/guests.py
grading/sandbox/inside/guest.py grading/sandbox/inside/lockdown.py grading/sandbox/inside/shell.py
grading/worker/cells.py grading/write_checks.py models/translator.py notebook/_without_judge.py
notebook/stand_in/my_attention.py workspace/limited.py workspace/text.py
"""
WRITES_OR_SHOWS = """
exercises/translator/fixtures.py exercises/translator/shift_right.py reference/translator.py
grading/driver.py grading/publishing/publish.py grading/exports/lms.py
grading/class_report/pages.py grading/executors/local.py plotting/attention.py collecting/collect.py
"""


@pytest.mark.parametrize(
    ("lesson", "changed", "regrades"),
    [
        ("02_masked_softmax", "exercises/masked_softmax/causal_mask.py", True),
        ("02_masked_softmax", "exercises/batch_matmul/__init__.py", False),
        ("02_masked_softmax", "exercises/_attention/mistakes.py", True),
        ("00_whole_game", "reference/whole_game.py", True),
        ("02_masked_softmax", "checks/judge/violations.py", True),
        ("09_translator", "exercises/translator/fixtures.py", True),
        ("02_masked_softmax", "attention/_multi_head.py", False),
        ("02_masked_softmax", "attention/_masked_softmax.py", True),  # used in the second judgement
        ("06_multi_head", "attention/_masked_softmax.py", True),  # what `carry_on` returns there
        *(("02_masked_softmax", name, True) for name in DECIDES.split()),
        *(("02_masked_softmax", name, False) for name in WRITES_OR_SHOWS.split()),
        ("homework", "exercises/multi_head/MultiHeadAttention.py", True),  # it may use any lesson's
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
