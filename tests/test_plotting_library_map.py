"""The picture of a student's library: it tells whose each part is, in words and not by colour."""

from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from course_lib.exercises import exercises
from course_lib.notebook.library_parts import PARTS, parts_of
from course_lib.plotting.library_map import MARK, Part, library_map

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plot():
    own = {"causal_mask": "2026-11-23", "bmm": "", "not_an_exercise": ""}
    return library_map(parts_of(exercises()), own, ["stable_softmax", "length_mask"])


def groups(plot, kind):
    root = ElementTree.fromstring(plot.svg)
    return [g for g in root.iter(f"{SVG}g") if g.get("class") == kind]


def named(plot, kind):
    return {group.find(f"{SVG}text").text for group in groups(plot, kind)}


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


def test_own_parts_are_marked_filled_and_bold_others_dashed(plot):
    legend = {f"{MARK} your own"}
    assert named(plot, "own") == {f"{MARK} causal_mask", f"{MARK} bmm"} | legend
    rest = set(exercises()) - {"causal_mask", "bmm"}
    assert named(plot, "course") == rest | {"still the course's"}
    for kind, own in (("own", True), ("course", False)):
        for group in groups(plot, kind):
            box, words = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
            assert (box.get("fill") != "none") is own is (words.get("font-weight") == "700")
            assert (box.get("stroke-dasharray") is None) is own


def test_its_words_say_how_many_and_what_is_next(plot):
    assert plot.alt.startswith(
        f"The parts of a Transformer: 2 of {len(exercises())} are your own. "
        "Next: stable_softmax, length_mask. Part by part: "
    )
    assert "mask 1 of 4" in plot.alt
    rows = {row[0]: row[1:] for row in plot.table.rows}
    assert rows["mask"] == ("causal_mask", "length_mask, combine_masks, additive_mask")
    assert library_map(parts_of(["bmm"]), {"bmm": ""}).alt.endswith("Part by part: scores 1 of 1.")


@pytest.mark.parametrize("names", [list(exercises()), None], ids=["today", "all"])
@pytest.mark.parametrize("all_own", [False, True])
def test_words_fit_and_nothing_overlaps_or_leaves_the_picture(names, all_own):
    parts = PARTS if names is None else parts_of(names)
    every = [name for part in parts for name in part.exercises] if all_own else []
    root = ElementTree.fromstring(library_map(parts, every).svg)
    height = float(root.get("viewBox").split()[3])
    boxes = []
    for group in root.iter(f"{SVG}g"):
        if group.get("class") not in ("own", "course"):
            continue
        box, words = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        x, y, width = (float(box.get(key)) for key in ("x", "y", "width"))
        font = FontProperties(family="DejaVu Sans Mono", size=float(words.get("font-size")))
        wide, _, _ = TextToPath().get_text_width_height_descent(words.text, font, ismath=False)
        assert wide + 4 <= width, words.text
        assert x >= 0 and x + width <= 360 and y >= 0 and y + float(box.get("height")) <= height
        boxes.append((x, y, x + width, y + float(box.get("height"))))
    for i, (left, top, right, bottom) in enumerate(boxes):
        for a, b, c, d in boxes[i + 1 :]:
            assert c <= left or right <= a or d <= top or bottom <= b
    titles = [text for text in root.iter(f"{SVG}text") if text.get("font-size") == "12"]
    first = {box[1]: box[0] for box in reversed(boxes)}
    for title in titles:
        font = FontProperties(family="DejaVu Sans", size=12, weight="bold")
        wide, _, _ = TextToPath().get_text_width_height_descent(title.text, font, ismath=False)
        beside = [x for y, x in first.items() if abs(y + 9.5 - float(title.get("y"))) < 1]
        assert beside and float(title.get("x")) + wide <= beside[0], title.text


def test_depths_open_and_close_their_frames():
    deep = [Part("a", 2, ("x",)), Part("b", 0, ("y",)), Part("c", 1, ("z",))]
    assert library_map(deep, ()).svg.count("block × N") == 2
    assert library_map(deep[:1], ()).svg.count("inside each attention") == 1
