"""The map of a student's library.

The map says whose each part is in words and not by color alone.
"""

import re

import pytest

from course_lib.exercises import exercises
from course_lib.notebook.library_map import MARK, library_map
from course_lib.notebook.library_parts import PARTS, parts_of


def test_every_exercise_is_in_it_once_and_no_other():
    for known in (list(exercises()), ["bmm"], []):
        shown = [name for part in parts_of(known) for name in part.exercises]
        assert sorted(shown) == sorted(known), "name the part of an exercise in library_parts.py"
        assert all(part.exercises for part in parts_of(known))
    everything = [name for part in PARTS for name in part.exercises]
    assert len(everything) == len(set(everything))


@pytest.mark.parametrize("own", [["causal_mask", "bmm"], [], list(exercises())])
def test_own_parts_are_marked_filled_and_bold_others_dashed(own):
    page = library_map(parts_of(exercises()), [*own, "not_an_exercise"])
    found = re.findall(r'<(?:code|span) style="([^"]*)">([^<]*)</', page)
    chips = {words: style for style, words in found}
    legend = {f"{MARK} your own", "still the course's"}
    assert set(chips) == {f"{MARK} {n}" if n in own else n for n in exercises()} | legend
    for words, style in chips.items():
        is_own = words.startswith(MARK)
        assert ("font-weight:700" in style) is ("background" in style) is is_own
        assert ("dashed" in style) is not is_own
    assert f"{len(own)} of {len(exercises())} are your own" in page
