"""A bundle with `--up-to` holds no answer to the exercises that it withholds, in no form."""

import textwrap
from pathlib import Path

import pytest
from answers_within import passing

from course_lib.authoring.inputs import Course
from course_lib.authoring.release import contents
from course_lib.checks import lessons

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
LESSON = "02_masked_softmax"


def unpacked(folder, slug):
    """The files of all lessons to this one; the bundle of each of them has some of these."""
    slugs = [each for each in lessons() if each <= slug]
    for name, data in contents(Course.at(ROOT), slugs, slug).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("slug", list(lessons()))
def test_nothing_that_a_bundle_holds_is_an_answer(tmp_path, slug):
    assert passing(unpacked(tmp_path, slug), lessons()[slug].exercises) == {}


def test_an_answer_is_found_wherever_it_lies(tmp_path):
    home = unpacked(tmp_path, LESSON) / "course_lib"
    (home / "plotting" / "hidden.py").write_text(HIDDEN)
    expected = {
        "stable_softmax": "in_steps()",
        "length_mask": "_Kept().lengths",
        "causal_mask": "TABLE.masks.0",
        "additive_mask": "shut_in.mask",
    }
    found = passing(tmp_path, expected)
    missed = {
        name: path
        for name, path in expected.items()
        if f"course_lib.plotting.hidden: {path}" not in found.get(name, [])
    }
    assert not missed, found


HIDDEN = textwrap.dedent("""
    import functools

    import numpy as np
    import torch


    def in_steps(changes):
        def softmax(scores, axis=-1):
            e = np.exp(scores - scores.max(axis, keepdims=True))
            return e / e.sum(axis, keepdims=True)

        return changes or softmax


    class _Kept:
        def lengths(self, valid_lens, max_len):
            return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]


    def _seen(offset, num_queries, num_keys=None, *, device=None):
        m = num_queries if num_keys is None else num_keys
        i = torch.arange(num_queries, device=device)[:, None]
        j = torch.arange(m, device=device)
        return j <= i + m - num_queries + offset


    TABLE = {"masks": [functools.partial(_seen, 0)]}


    def _wrapped():
        def mask(mask, dtype):
            return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)

        def shut_in():
            return mask(None, None)

        return shut_in


    shut_in = _wrapped()
""")
