"""A bundle with `--up-to` holds no answer to the exercises that it withholds, under any name."""

import shutil
from pathlib import Path

import pytest
from answers_within import passing

from course_lib.authoring.bundle import contents
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import solution_path
from course_lib.checks import lessons

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
HIDDEN = "course_lib.plotting.hidden"
IN_A_CLASS = """
class _Kept:
    def lengths(valid_lens, max_len):
        return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]
"""


@pytest.mark.parametrize("slug", list(lessons()))
def test_a_bundle_holds_no_answers_but_those_that_are_planted_in_it(tmp_path, slug):
    slugs = [each for each in lessons() if each <= slug]  # each of their bundles has some of these
    for name, data in contents(LessonTree.at(ROOT), slugs, slug).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    names = lessons()[slug].exercises
    planted = {name: {f"{HIDDEN}: {name}"} for name in names}
    source = solution_path(ROOT / "course_lib", slug).read_text(encoding="utf-8")
    if "length_mask" in names:
        source += IN_A_CLASS
        planted["length_mask"].add(f"{HIDDEN}: _Kept.lengths")
    shutil.copy(ROOT / "course_lib/attention/_checked.py", tmp_path / "course_lib/attention")
    (tmp_path / f"{HIDDEN.replace('.', '/')}.py").write_text(source, encoding="utf-8")
    found = passing(tmp_path, names)
    for name in names:  # a lesson's own answers may also answer each other's exercises
        assert planted[name] <= set(found.get(name, ())), name
        assert not [path for path in found[name] if not path.startswith(f"{HIDDEN}: ")]
