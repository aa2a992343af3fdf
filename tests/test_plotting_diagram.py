"""The map of attention: everything is in it, and nothing overlaps."""

import itertools
import re
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from pages import elements

from course_lib import plotting
from course_lib.plotting.diagram_layout import LEVELS
from course_lib.plotting.diagram_strip import ROWS

ATTENTION = [
    "queries", "keys", "values", "scores", "mask", "valid_lens", "softmax", "attention weights",
    "weighted sum", "outputs",
]  # fmt: skip
HEADS = ["W_q", "W_k", "W_v", "split heads", "merge heads", "W_o"]
BLOCK = ["inputs", "norm", "multi-head attention", "add", "feed-forward"]
WHOLE = [
    "tokens", "self-attention", "masked self-attention", "cross-attention", "norm, then linear",
    "logits", "inputs", "norm", "add", "feed-forward",
]  # fmt: skip
WORDS = {
    "attention": ATTENTION,
    "heads": ATTENTION + HEADS,
    "block": BLOCK,
    "encoder_decoder": WHOLE,
}


FULL = {
    "attention": {name: (2,) if name == "valid_lens" else (2, 3, 4) for name in ATTENTION},
    "heads": {name: (2, 3, 4) for name in (*HEADS, *ATTENTION[:3], "outputs", "head outputs")},
    "block": {name: (2, 3, 4) for name in ("inputs", "multi-head attention", "feed-forward")},
    "encoder_decoder": {name: (2, 3) for name in ("tokens", "inputs", "linear")},
}


def written(plot):
    return [text.text for text in elements(plot.svg, "text")]


def boxes_of(plot, *classes):
    """Return (outline, words) of each box of some classes; the shape may follow the words."""
    groups = [group for group in elements(plot.svg, "g") if group.get("class") in classes]
    return [(group.find("{*}rect"), group.find("{*}text")) for group in groups]


def lit_boxes(plot):
    return [words.text for _, words in boxes_of(plot, "box lit")]


@pytest.mark.parametrize("level", WORDS)
def test_every_box_is_there_in_words_that_a_narrow_screen_can_show(level):
    plot = plotting.diagram(level, shapes=FULL[level])
    assert set(WORDS[level]) <= set(written(plot))
    width = float(ElementTree.fromstring(plot.svg).get("viewBox").split()[2])
    assert min(float(t.get("font-size")) for t in elements(plot.svg, "text")) * 328 / width >= 10
    assert not {"#000000", "#ffffff", "black", "white"} & set(re.findall(r'"([^"]*)"', plot.svg))
    assert int(re.search(r' height="(\d+)"', plot.svg)[1]) <= 640  # on a laptop, beside its text
    alt = plotting.diagram(level).alt
    assert alt.startswith("The map of attention, all of it. The whole path: ")
    new = {"heads": HEADS, "block": ["inputs", "feed-forward"], "encoder_decoder": WHOLE[:4]}
    assert all(name in alt for name in new.get(level, ATTENTION[:6]))


def test_what_is_lit_is_bold_with_a_thick_border_and_a_strong_fill():
    plot = plotting.diagram("attention", lit=("scores", "values"))
    assert set(lit_boxes(plot)) == {"scores", "values"}
    assert lit_boxes(plotting.diagram("attention")) == []
    for kind, lit in (("box", False), ("box lit", True)):
        for outline, words in boxes_of(plot, kind):
            assert (words.get("font-weight") == "700") == lit
            assert float(outline.get("stroke-width")) == (3 if lit else 1)
            assert (float(outline.get("fill-opacity")) > 0.1) == lit


@pytest.mark.parametrize("part", WORDS)
def test_a_strip_is_low_and_lights_its_parts_with_their_shapes(part):
    calm = plotting.diagram_strip(part)
    assert lit_boxes(calm) == []
    assert float(re.search(r' height="(\d+)"', calm.svg)[1]) <= 60
    boxes = [name for names in ROWS[part].values() for name in names]
    assert set(boxes) <= set(LEVELS[part]().boxes)
    lit = plotting.diagram_strip(
        part, lit=boxes[-1], shapes={boxes[0]: (2, 3), boxes[-1]: "(n, D)"}
    )
    assert len(lit_boxes(lit)) == 1
    assert f"This section is about {boxes[-1]}. Shapes: {boxes[0]} (2, 3);" in lit.alt


@pytest.mark.parametrize(
    ("part", "passes"),
    [
        ("block", [("inputs", "add"), ("add", "add")]),
        ("encoder_decoder", [("feed-", "cross-")]),  # first lines of words
    ],
)
def test_a_strip_shows_what_passes_over_its_parts(part, passes):
    plot = plotting.diagram_strip(part)
    found = []
    for line in elements(plot.svg, "polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        if len(points) > 2:
            ends = [
                words.text
                for x in (points[0][0], points[-1][0])
                for outline, words in boxes_of(plot, "box")
                if rectangle(outline)[0] < x < rectangle(outline)[2]
            ]
            found.append(tuple(ends))
            assert points[1][1] == points[2][1] < min(y for _, y in (points[0], points[-1]))
    assert found == passes
    assert "Above the row: " in plot.alt


@pytest.mark.parametrize("part", WORDS)
def test_a_strip_prints_the_shapes_of_a_part_beneath_it_and_equal_ones_once(part):
    for words, boxes in ROWS[part].items():
        shapes = {box: (2, 3 + number // 2) for number, box in enumerate(boxes)}
        plot = plotting.diagram_strip(part, shapes=shapes)
        groups = [[text.text for text in g] for g in elements(plot.svg, "g") if g.get("class")]
        told = " → ".join(dict.fromkeys(str(shape) for shape in shapes.values()))
        (shown,) = [[t for t in texts if t] for texts in groups if told in texts]
        assert shown == [*words.strip("+ ").split("\n"), told]


PICTURES = [
    {"part": level, "shapes": shapes, "lit": lit}
    for level, shapes in FULL.items()
    for lit in ((), tuple(LEVELS[level]().boxes))
]


def extent(text, family="DejaVu Sans"):
    """Return left, top, right and bottom of words in the widest font a page may have."""
    size, bold = float(text.get("font-size")), text.get("font-weight") == "700"
    font = FontProperties(family=family, weight="bold" if bold else "normal", size=size)
    width, _, _ = TextToPath().get_text_width_height_descent(text.text, font, ismath=False)
    x, y = float(text.get("x")), float(text.get("y"))
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
    return left, y - size * 0.42, left + width, y + size * 0.42


def apart(one, other):
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def rectangle(rect):
    x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


@pytest.mark.parametrize("arguments", PICTURES)
def test_words_do_not_overlap_are_not_clipped_and_no_line_runs_through_them(arguments):
    plot = plotting.diagram(**arguments)
    sheet = LEVELS[arguments["part"]]()
    words = {text: extent(text) for text in elements(plot.svg, "text")}
    for one, other in itertools.combinations(words, 2):
        assert apart(words[one], words[other]), (one.text, other.text)
    boxes = {
        (text.text, text.get("x"), text.get("y")): rectangle(outline)
        for outline, text in boxes_of(plot, "box", "box lit")
    }
    for text, (left, top, right, bottom) in words.items():
        assert sheet.left <= left and right <= sheet.right, text.text
        assert top >= 0 and bottom <= sheet.height + 3, text.text
        own = boxes.get((text.text, text.get("x"), text.get("y")))
        if own:
            assert own[0] + 2 <= left and right <= own[2] - 2, text.text
        else:
            assert all(apart(words[text], box) for box in boxes.values()), text.text
    lines = [
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
        for line in elements(plot.svg, "polyline")
    ]
    for _, left, top, right, bottom, _ in sheet.frames:
        corners = (left, top), (right, top), (right, bottom), (left, bottom), (left, top)
        lines.append(list(corners))
    for (a, b), (c, d) in itertools.chain.from_iterable(map(itertools.pairwise, lines)):
        segment = min(a, c), min(b, d), max(a, c), max(b, d)
        assert all(apart(segment, place) for place in words.values()), segment
