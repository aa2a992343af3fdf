"""A changed source regrades its lessons, and a key covers everything that affects grades."""

import shutil
from pathlib import Path

import pytest

from course_lib.grading.ledger import checks_digest, key_of, same_work
from course_lib.grading.sandbox.confinement import Limits

PACKAGE = Path(__file__).parent.parent / "course_lib"


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
