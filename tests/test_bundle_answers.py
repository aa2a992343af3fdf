"""A bundle with `--up-to` holds no answer to the exercises that it withholds, under any name."""

import shutil
from pathlib import Path

import pytest
from answers_within import passing

from course_lib.authoring.bundle import contents
from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import solution_path
from course_lib.exercises import lessons

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
HIDDEN = "course_lib.plotting.hidden"
IN_A_CLASS = """
class _Kept:
    def lengths(valid_lens, max_len):
        return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]
"""


def planted(slug):
    """Return the exercises of a lesson, each with where its answers are planted in a bundle."""
    places = {name: {f"{HIDDEN}: {name}"} for name in lessons()[slug].exercises}
    if "length_mask" in places:
        places["length_mask"].add(f"{HIDDEN}: _Kept.lengths")
    return places


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return what answers the exercises of each lesson in its bundle with planted answers."""
    folders = {}
    for slug in lessons():
        folder = tmp_path_factory.mktemp(slug)
        slugs = [each for each in lessons() if each <= slug]  # their bundles have some of these
        for name, data in contents(LessonTree.at(ROOT), slugs, slug).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        source = solution_path(ROOT / "course_lib", slug).read_text(encoding="utf-8")
        if "length_mask" in planted(slug):
            source += IN_A_CLASS
        shutil.copy(ROOT / "course_lib/attention/_checked.py", folder / "course_lib/attention")
        (folder / f"{HIDDEN.replace('.', '/')}.py").write_text(source, encoding="utf-8")
        folders[folder] = planted(slug)
    return dict(zip(lessons(), passing(folders), strict=True))


@pytest.mark.parametrize("slug", list(lessons()))
def test_a_bundle_holds_no_answers_but_those_that_are_planted_in_it(found, slug):
    for name, places in planted(slug).items():
        # A lesson's own answers may also answer each other's exercises.
        assert places <= set(found[slug].get(name, ())), name
        assert not [path for path in found[slug][name] if not path.startswith(f"{HIDDEN}: ")]
