"""A bundle with `--up-to` holds no answer to the exercises that it withholds, under any name."""

from pathlib import Path

import pytest
from answers_within import passing

from course_lib.authoring.bundle import contents
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.checks import lessons

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
HIDDEN = """
class _Kept:
    def lengths(valid_lens, max_len):
        import torch
        return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]
"""


@pytest.mark.parametrize("slug", list(lessons()))
def test_nothing_that_a_bundle_holds_is_an_answer(tmp_path, slug):
    slugs = [each for each in lessons() if each <= slug]  # each of their bundles has some of these
    for name, data in contents(LessonTree.at(ROOT), slugs, slug).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    planted = {}
    if slug == "02_masked_softmax":
        (tmp_path / "course_lib" / "plotting" / "hidden.py").write_text(HIDDEN)
        planted = {"length_mask": ["course_lib.plotting.hidden: _Kept.lengths"]}
    assert passing(tmp_path, lessons()[slug].exercises) == planted
