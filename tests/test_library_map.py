"""The map of a student's library, and the end of the course, which is made from it.

The map says whose each part is in words and not by color alone.
"""

import re

import pytest

import course_lib
from course_lib.exercises import exercises
from course_lib.notebook._certificate import COURSES, TITLE, Certificate
from course_lib.notebook.library_map import MARK, library_map
from course_lib.notebook.library_parts import PARTS, parts_of


def test_every_exercise_is_in_it_once_and_no_other():
    for known in (list(exercises()), [*exercises(), "brand_new"], ["bmm"], []):
        shown = [name for part in parts_of(known) for name in part.exercises]
        assert sorted(shown) == sorted(known)
        assert all(part.exercises for part in parts_of(known))
    everything = [name for part in PARTS for name in part.exercises]
    assert len(everything) == len(set(everything))
    assert set(exercises()) <= set(everything), (
        "name the part of a new exercise in library_parts.py"
    )


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


# --- the certificate ------------------------------------------------------------------


@pytest.fixture
def own(tmp_path):
    return Certificate(
        {"causal_mask": "2026-11-23", "bmm": "", "stable_softmax": "2026-10-02"}, tmp_path
    )


def test_it_says_whose_each_part_is_and_since_when_as_text_and_as_html(own):
    lines = own.text().splitlines()
    number = f"3 of {len(exercises())} parts are your own"
    assert lines[:3] == [TITLE, number, "02 Oct 2026 to 23 Nov 2026"]
    told = {"  causal_mask: yours, 23 Nov 2026", "  bmm: yours, no date"}
    assert told | {f"  length_mask: {COURSES}"} <= set(lines)
    assert sum(line.startswith("  ") for line in lines) == len(exercises())
    page = own._repr_html_()
    assert repr(own) == own.text()
    assert TITLE in page and "02 Oct 2026 to 23 Nov 2026" in page
    assert str(own.place) in page and "Nothing is sent anywhere." in page
    assert "<script" not in page and "src=" not in page


def test_it_counts_the_library_of_whoever_works_and_none_in_a_program(
    notebook, own_course, monkeypatch
):
    assert course_lib.certificate().own == {}
    notebook.solve()
    shown = course_lib.certificate()
    assert set(shown.own) == {"causal_mask"} and shown.place == own_course / "my_attention"
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert course_lib.certificate().own == {}
    assert "which is still empty" in course_lib.certificate().text()
