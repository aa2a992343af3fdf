"""The map of attention: everything is in it, and nothing overlaps."""

import itertools
import re
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from course_lib import plotting
from course_lib.plotting.diagram_layout import LEVELS
from course_lib.plotting.diagram_strip import ROWS

ATTENTION = [
    "queries", "keys", "values", "scores", "mask", "valid_lens", "softmax", "attention weights",
    "weighted sum", "outputs",
]  # fmt: skip
HEADS = ["W_q", "W_k", "W_v", "split heads", "merge heads", "W_o"]
BLOCK = ["inputs", "norm", "add", "feed-forward"]
WHOLE = [
    "tokens",
    "self-attention",
    "masked self-attention",
    "cross-attention",
    "norm, then linear",
    "logits",
]
WORDS = {
    "attention": ATTENTION,
    "heads": ATTENTION + HEADS,
    "block": ATTENTION + HEADS + BLOCK,
    "encoder_decoder": ATTENTION + HEADS + BLOCK + WHOLE,
}


def elements(plot, tag):
    root = ElementTree.fromstring(plot.svg)
    return list(root.iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def written(plot):
    return [text.text for text in elements(plot, "text")]


def lit_boxes(plot):
    groups = [group for group in elements(plot, "g") if group.get("class") == "box lit"]
    return [group.find("{*}text").text for group in groups]


@pytest.mark.parametrize("level", WORDS)
def test_every_box_is_there_in_words(level):
    assert set(WORDS[level]) <= set(written(plotting.diagram(level)))


def test_each_level_has_the_boxes_of_the_one_before():
    for smaller, larger in itertools.pairwise(LEVELS):
        assert set(LEVELS[smaller]().boxes) < set(LEVELS[larger]().boxes)


def test_the_smaller_picture_has_its_place_and_colours_in_the_larger():
    # The boxes are below each other, as wide and in the same colours; only the rows are lower.
    small = LEVELS["attention"]().boxes
    for level in list(LEVELS)[1:]:
        large = LEVELS[level]().boxes
        inner = {name: large.get(f"head {name}", large[name]) for name in small}
        for name, box in small.items():
            same = inner[name]
            assert (box.words, box.left, box.right, box.colour, box.tensor) == (
                same.words, same.left, same.right, same.colour, same.tensor
            )  # fmt: skip
        order = sorted(small, key=lambda name: small[name].top)
        assert order == sorted(small, key=lambda name: inner[name].top)


def test_what_is_lit_is_bold_with_a_thick_border_and_a_strong_fill():
    plot = plotting.diagram("attention", lit=("scores", "values"))
    assert set(lit_boxes(plot)) == {"scores", "values"}
    assert lit_boxes(plotting.diagram("attention")) == []
    for group in elements(plot, "g"):
        if group.get("class") in ("box", "box lit"):
            outline, words = group.find("{*}rect"), group.find("{*}text")
            lit = group.get("class") == "box lit"
            assert (words.get("font-weight") == "700") == lit
            assert float(outline.get("stroke-width")) == (3 if lit else 1)
            assert (float(outline.get("fill-opacity")) > 0.1) == lit


def test_what_is_lit_is_lit_in_every_small_map_too():
    calm, lit = (plotting.diagram("encoder_decoder", lit=box) for box in ((), "softmax"))
    thick = [[r.get("stroke-width") for r in elements(plot, "rect")] for plot in (calm, lit)]
    assert [row.count("2.0") + row.count("2") for row in thick] == [0, 3]


def test_shapes_are_written_as_python_writes_them():
    shapes = {"queries": (2, 3, 4), "valid_lens": (2,), "scores": ("n", "m"), "values": "any"}
    assert {"(2, 3, 4)", "(2,)", "(n, m)", "any"} <= set(
        written(plotting.diagram("attention", shapes=shapes))
    )


def test_alt_text_says_what_is_lit_what_enters_what_leaves_and_the_way():
    shapes = {"queries": (2, 3), "keys": (5, 3), "scores": (2, 5), "values": (5, 1)}
    alt = plotting.diagram("attention", lit="scores", shapes=shapes).alt
    assert alt.startswith(
        "The map of attention: this section is about scores. Into it: queries (2, 3) and keys "
        "(5, 3). Out of it: scores (2, 5) to mask. Elsewhere: values (5, 1). The whole path: "
    )
    path = alt.partition("The whole path: ")[2]
    assert path.count(".") == 1
    assert all(name in path for name in ATTENTION if name != "weighted sum")


@pytest.mark.parametrize("level", WORDS)
def test_alt_text_of_the_whole_names_its_largest_parts(level):
    alt = plotting.diagram(level).alt
    assert alt.startswith("The map of attention, all of it. The whole path: ")
    new = {"heads": HEADS, "block": ["inputs", "feed-forward"], "encoder_decoder": WHOLE[:4]}
    assert all(name in alt for name in new.get(level, ATTENTION[:6]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"part": "head"}, "`part` must be one of attention, heads, block, .*; got 'head'"),
        ({"lit": "score"}, "`lit` must name boxes of 'attention' = queries, .*; got score"),
        ({"lit": ("W_q", "mask")}, "`lit` must name .* outputs; got W_q"),
        ({"shapes": {"q": (2,)}}, "`shapes` must name boxes of 'attention' = queries, .*; got q"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(arguments, message):
    with pytest.raises(ValueError, match=message):
        plotting.diagram(**{"part": "attention", **arguments})


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
    assert {"(2, 3)", "(n, D)"} <= set(written(lit))
    assert f"This section is about {boxes[-1]}. Shapes: {boxes[0]} (2, 3);" in lit.alt


def test_a_strip_refuses_unknown_names_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"`lit` must name boxes of 'attention' = queries, .*score"
    ):
        plotting.diagram_strip("attention", lit="score")
    with pytest.raises(ValueError, match=r"`shapes` must name boxes of 'attention' = .*; got q"):
        plotting.diagram_strip("attention", shapes={"q": (2,)})


FULL = {
    "attention": {name: (2,) if name == "valid_lens" else (2, 3, 4) for name in ATTENTION},
    "heads": {name: (2, 3, 4) for name in (*HEADS, *ATTENTION[:3], "outputs", "head outputs")},
    "block": {name: (2, 3, 4) for name in ("inputs", *ATTENTION[:3], "outputs", "feed-forward")},
    "encoder_decoder": {name: (2, 3) for name in ("tokens", "inputs", "linear")},
}
PICTURES = [
    {"part": level, "shapes": shapes, "lit": lit}
    for level, shapes in FULL.items()
    for lit in ((), tuple(LEVELS[level]().boxes))
]


def extent(text):
    """Return left, top, right and bottom of words in the widest font a page may have."""
    size, bold = float(text.get("font-size")), text.get("font-weight") == "700"
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size)
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
def test_words_do_not_overlap_and_are_not_clipped(arguments):
    plot = plotting.diagram(**arguments)
    sheet = LEVELS[arguments["part"]]()
    words = {text: extent(text) for text in elements(plot, "text")}
    for one, other in itertools.combinations(words, 2):
        assert apart(words[one], words[other]), (one.text, other.text)
    for text, (left, top, right, bottom) in words.items():
        assert sheet.left <= left and right <= sheet.right, text.text
        assert top >= 0 and bottom <= sheet.height + 3, text.text
    groups = [group for group in elements(plot, "g") if group.get("class", "").startswith("box")]
    boxes = {group.find("{*}text"): rectangle(group.find("{*}rect")) for group in groups}
    by_place = {(text.text, text.get("x"), text.get("y")): box for text, box in boxes.items()}
    for text, (left, top, right, bottom) in words.items():
        own = by_place.get((text.text, text.get("x"), text.get("y")))
        if own:
            assert own[0] + 2 <= left and right <= own[2] - 2, text.text
        else:
            assert all(apart((left, top, right, bottom), box) for box in boxes.values()), text.text


@pytest.mark.parametrize("arguments", PICTURES)
def test_no_line_runs_through_words(arguments):
    plot = plotting.diagram(**arguments)
    lines = [
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
        for line in elements(plot, "polyline")
    ]
    for _, left, top, right, bottom, _ in LEVELS[arguments["part"]]().frames:
        corners = (left, top), (right, top), (right, bottom), (left, bottom), (left, top)
        lines.append(list(corners))
    places = [extent(text) for text in elements(plot, "text")]
    for (a, b), (c, d) in itertools.chain.from_iterable(map(itertools.pairwise, lines)):
        segment = min(a, c), min(b, d), max(a, c), max(b, d)
        assert all(apart(segment, place) for place in places), segment


@pytest.mark.parametrize("level", WORDS)
def test_boxes_are_apart_and_arrows_end_at_their_edges_and_run_through_none(level):
    sheet = LEVELS[level]()
    places = {b.name: (b.left, b.top, b.right, b.bottom) for b in sheet.boxes.values()}
    for one, other in itertools.combinations(places.values(), 2):
        assert apart(one, other)
    for arrow in sheet.arrows:
        for name, (x, y) in ((arrow.source, arrow.points[0]), (arrow.target, arrow.points[-1])):
            box = sheet.boxes.get(name)
            if box:
                assert box.left <= x <= box.right and box.top <= y <= box.bottom, arrow.name
                assert x in (box.left, box.right) or y in (box.top, box.bottom), arrow.name
        for (a, b), (c, d) in itertools.pairwise(arrow.points):
            line = min(a, c), min(b, d), max(a, c), max(b, d)
            hit = [name for name, place in places.items() if not apart(line, place)]
            assert hit == [], arrow.name


@pytest.mark.parametrize("level", WORDS)
def test_words_are_readable_on_a_narrow_screen(level):
    plot = plotting.diagram(level, shapes=FULL[level])
    width = float(ElementTree.fromstring(plot.svg).get("viewBox").split()[2])
    assert min(float(t.get("font-size")) for t in elements(plot, "text")) * 328 / width >= 10


def test_ink_and_ground_are_those_of_the_page():
    plot = plotting.diagram("encoder_decoder", lit="logits")
    assert not {"#000000", "#ffffff", "black", "white"} & set(re.findall(r'"([^"]*)"', plot.svg))


def test_the_inside_of_an_attention_is_shown_where_something_of_it_is_lit_or_nothing_is():
    inside = "split heads"
    assert inside in written(plotting.diagram("encoder_decoder"))
    assert inside in written(plotting.diagram("encoder_decoder", lit=("logits", "softmax")))
    over = plotting.diagram("encoder_decoder", lit="logits", shapes={"linear": (2, 3, 9)})
    assert inside not in written(over) and "(2, 3, 9)" in written(over)
