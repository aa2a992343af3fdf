"""The attention viewer's words, still picture and data are correct."""

import math
import re

import numpy as np
import pytest
import torch
from pages import elements

from course_lib import plotting
from course_lib.plotting import colors

WORDS = ["forty", "three"]
KEYS = ["drei", "und", "vierzig"]
WEIGHTS = torch.tensor([[0.02, 0.05, 0.93], [0.9, 0.05, 0.05]])
CAUSAL = np.tri(10, dtype=bool)


def softmax(scores, mask=True):
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


HEADS = softmax(np.stack([6 * np.eye(10), 6 * np.eye(10)[[0] * 10]]))


def paths(plot):
    """Return the attributes of each path that is an arc: drawn as a curve."""
    return [path for path in elements(plot.svg, "path") if "c0" in path.get("d")]


def words_in(plot):
    return ["".join(text.itertext()) for text in elements(plot.svg, "text")]


# --- what is said ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "names", "options", "said"),
    [
        (
            WEIGHTS, (WORDS, KEYS), {"title": "A number"},
            "A number. Attention of 2 queries over 3 keys. "
            "Forty looks most at vierzig, 0.93; three looks most at drei, 0.90.",
        ),
        (
            [[0.5, 0.5, 0], [0, 0, 0], [0.25, 0.25, 0]], (["a", "b", "c"], KEYS),
            {"mask": [[1, 1, 0]]},
            "A looks alike at drei and und, 0.50 each; b looks at no key; c looks alike at drei "
            "and und, 0.25 each. Masked for every query: vierzig.",
        ),
        ([[0, 0, 1]], (["x"], "aba"), {}, "X looks most at 2nd a, 1.00."),
        (np.full((2, 4), 0.25), (), {}, "Evenly at every key"),
        (HEADS, (), {"heads": ["own", "begin"]}, "own: mostly along the diagonal"),
        (HEADS, (), {"heads": ["own", "begin"]}, "begin: mostly at the first token"),
    ],
)  # fmt: skip
def test_alt_says_where_queries_and_heads_look(weights, names, options, said):
    assert said in plotting.attention(weights, *names, **options).words


@pytest.mark.parametrize(
    ("scores", "pattern"),
    [
        (6 * np.eye(10), "mostly along the diagonal"),
        (7 * np.eye(10, k=-1), "mostly at the previous token"),
        (7 * np.eye(10, k=-3), "mostly three tokens back"),
        (6 * np.eye(10)[[0] * 10], "mostly at the first token"),
        (np.zeros((10, 10)), "evenly at every allowed key"),
    ],
)
def test_alt_of_many_queries_names_the_pattern_and_the_mask(scores, pattern):
    alt = plotting.attention(softmax(scores, CAUSAL), mask=CAUSAL).alt
    assert pattern in alt.lower()
    assert alt.endswith("Later keys are masked (causal).")
    assert len(alt) < 300


# --- what is drawn --------------------------------------------------------------------


def test_still_picture_holds_words_of_every_head_and_small_maps_from_five_rows_on():
    plot = plotting.attention(torch.stack([WEIGHTS, WEIGHTS.flip(1)]), WORDS, KEYS)
    words = words_in(plot)
    assert [words.count(word) for word in (*WORDS, *KEYS)] == [2] * 5  # once a head
    assert {"keys", "queries", "head 0", "head 1"} <= set(words)
    for count, expected in ((4, 0), (5, 2)):
        plot = plotting.attention(np.stack([np.eye(count)] * 2), "abcde"[:count], "abcde"[:count])
        assert len(elements(plot.svg, "image")) == expected
        assert not re.search(r"\sid=|url\(#", plot.svg)  # pages would share it


def test_letters_run_from_left_to_right_and_long_words_wrap_into_lines():
    plot = plotting.attention(np.full((2, 34), 1 / 34), WORDS, "x" * 34)
    letters = [t for t in elements(plot.svg, "text") if t.text == "x"]
    places = [float(t.get("x")) for t in letters]
    assert places == sorted(places) and len(set(places)) == 34
    assert len({t.get("y") for t in letters}) == 1
    width, height = (float(size) for size in re.findall(r'(?:width|height)="(\d+)"', plot.svg)[:2])
    assert places[-1] < width <= 800 and height <= 300
    names = [f"long-{i}" for i in range(20)]
    plot = plotting.attention(np.eye(20), names, names)
    words = [t for t in elements(plot.svg, "text") if t.text.startswith("long")]
    assert all(0 < float(t.get("x")) < 800 for t in words) and len(words) == 40
    assert len({t.get("y") for t in words}) > 2


def test_a_narrow_picture_wraps_words_of_different_lengths_and_fits_a_phone():
    names = ["password", "is", *"7K2QX9.", "please", "write", "the", "password", "again", *"7K2Q"]
    plot = plotting.attention(np.eye(len(names)), names, names, sides=("r", "w"), width=400)
    assert {"r", "w"} <= set(words_in(plot)) and "min-width" not in plot.svg
    width = float(re.findall(r'viewBox="0 0 (\d+)', plot.svg)[0])
    assert width <= 400 < float(re.findall(r'width="(\d+)"', plot.svg)[0])
    boxes = [box for box in elements(plot.svg, "rect") if box.get("rx")]
    places = [[float(box.get(name)) for name in ("x", "y", "width")] for box in boxes]
    assert all(x >= 58 and x + wide <= width for x, _, wide in places)
    assert len({y for _, y, _ in places}) > 2


def test_arcs_are_as_wide_and_opaque_as_the_weight_and_numbers_begin_at_a_hundredth():
    words = words_in(plotting.attention([[0.004, 0.016, 0.98]], ["q"], KEYS))
    assert [word for word in words if word.startswith("0.")] == ["0.02", "0.98"]
    arcs = paths(plotting.attention(WEIGHTS))
    widths, opacities = ([float(a.get(n)) for a in arcs] for n in ("stroke-width", "opacity"))
    assert widths == sorted(widths) and opacities == sorted(opacities)
    assert opacities[-1] == pytest.approx(0.93, abs=0.04)
    assert sum(arc.get("d").count("M") for arc in arcs) == 5  # 0.02 is too little
    plot = plotting.attention(np.full((5, 20), 0.05))
    assert "Thicker arcs and fuller color show larger weights, up to 0.1." in words_in(plot)
    assert plot.live.data["scale"] == 0.1 and paths(plot)


def test_masked_places_are_hatched_struck_and_have_no_arc():
    plot = plotting.attention(WEIGHTS, WORDS, KEYS, mask=[[1, 1, 0]])
    assert sum(path.get("d").count("M") for path in paths(plot)) == 3
    struck = [t.text for t in elements(plot.svg, "text") if t.get("text-decoration")]
    assert struck == ["vierzig"]
    assert len([p for p in elements(plot.svg, "path") if p.get("stroke") == colors.PLAIN]) == 1
    assert [row[3] for row in plot.table.rows] == ["masked", "masked"]
    assert "Hatched: masked." in words_in(plot) and "Hatched: masked." in plot.live.data["note"]


# --- what is taken, and what is refused -----------------------------------------------


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        (WEIGHTS, {"queries": KEYS}, r"`queries` must have num_queries = 2 names; got 3"),
        (WEIGHTS, {"mask": np.ones((2, 2))}, r"`mask` must be .* \(1, 2, 3\); got shape \(2, 2\)"),
        (WEIGHTS[0], {}, r"must be \(num_queries, num_keys\) or .* got shape \(3,\)"),
        (
            [[0.02, 0.05, 0.93], [0.9, 0.05, math.nan]],
            {},
            r"must be numbers; got nan, first at \[1, 2\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_expected(weights, options, message):
    with pytest.raises(ValueError, match=message):
        plotting.attention(weights, **options)
