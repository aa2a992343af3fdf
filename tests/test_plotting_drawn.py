import functools
import inspect
import itertools
import re
import statistics
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn import DRAWN

from course_lib import plotting

STEPS = np.arange(50, 1001, 50)
LOSSES = {"no part": 2.7, "+ self-attention": 2.5, "+ cross-attention": 0.33, "+ encoder": 0.06,
          "+ feed-forward": 0.01}  # fmt: skip
LINES = {name: last + np.exp(-STEPS / 250) for name, last in LOSSES.items()}
PEAKS = {f"query {peak}": 15.999 - np.abs(np.arange(50) - peak) / 5 for peak in (20, 35)}
MAPS = dict.fromkeys(("added", "rotated"), 9 + np.eye(8))
CROWDED = {
    "lines that end together": lambda: plotting.lines(STEPS, LINES, x_label="x", y_label="y"),
    "two peaks": lambda: plotting.lines(
        range(50), PEAKS, x_label="key", y_label="score", mark=dict.fromkeys(PEAKS, max)
    ),
    "maps of full height": lambda: plotting.heatmap_grid(
        MAPS, columns=2, quantity="score", limits=(4, 9)
    ),
}


def test_every_drawing_function_is_drawn():
    draws = {
        name
        for name, function in vars(plotting).items()
        if inspect.isfunction(function)
        and inspect.signature(function).return_annotation in (plotting.Plot, "Plot")
    }
    assert draws | {"live_translator"} == set(DRAWN)


def text_boxes(node, x=0.0, y=0.0, outer=""):
    """Yield words, left, top, right and bottom of texts whose letters are half as wide as high."""
    moves = node.get("transform", "")
    look = outer + ";".join(f";{name}: {value}" for name, value in node.items())
    for across, down in re.findall(r"translate\((\S+?)(?:[ ,]+(\S+))?\)", moves):
        x, y = x + float(across), y + float(down or 0)
    if node.tag.endswith("}text"):
        x, y = x + float(node.get("x", 0)), y + float(node.get("y", 0))
        size = float(re.findall(r"font(?:-size)?: ([\d.]+)", look)[-1])
        words = "".join(node.itertext()).strip()
        anchor = re.findall(r"text-anchor: (\w+)", look)
        start = (
            {"middle": 0.5, "end": 1}.get(anchor[-1] if anchor else "", 0) * len(words) * size / 2
        )
        high = 0.45 if "central" in look else 0.75
        across, down = (-start, len(words) * size / 2 - start), (-high * size, (0.95 - high) * size)
        if "rotate(-90" in moves:
            across, down = down, (-across[1], -across[0])
        yield words, x + across[0], y + down[0], x + across[1], y + down[1]
    for child in node:
        yield from text_boxes(child, x, y, look)


@functools.cache
def drawn(name):
    """Return the picture of a name in DRAWN or CROWDED, and the CPU time that it took."""
    begin = time.process_time()
    svg = {**DRAWN, **CROWDED}[name]().svg
    return svg, time.process_time() - begin


@pytest.mark.parametrize("name", [*DRAWN, *CROWDED])
def test_words_neither_overlap_nor_leave_the_picture(name):
    svg = ElementTree.fromstring(drawn(name)[0])
    _, _, width, height = map(float, svg.get("viewBox").split())
    boxes = [box for box in text_boxes(svg) if box[0]]
    for words, left, top, right, bottom in boxes:
        assert left > -1 and top > -0.3 and right < width + 1 and bottom < height + 0.3, words
    for one, other in itertools.combinations(boxes, 2):
        gaps = [max(one[i], other[i]) - min(one[i + 2], other[i + 2]) for i in (1, 2)]
        assert max(gaps) > -0.5, f"{one[0]!r} overlaps {other[0]!r}"


def test_the_median_figure_is_drawn_in_a_fifth_of_a_second_of_cpu_time():
    spent = [
        min(drawn(name)[1], drawn.__wrapped__(name)[1]) for name in DRAWN
    ]  # the quieter of two
    assert statistics.median(spent) < 0.2


@pytest.mark.parametrize("name", DRAWN)
def test_words_of_all_figures_are_about_as_large_as_those_of_a_page(name):
    svg, _ = drawn(name)
    shown, width = (
        float(re.search(r'width="(\d+)"', svg)[1]),
        float(svg.partition('viewBox="0 0 ')[2].split()[0]),
    )
    largest = max(map(float, re.findall(r'font(?:-size)?(?:: |=")([\d.]+)', svg)))
    assert 11 <= largest * shown / width <= 21


@pytest.mark.parametrize("name", DRAWN)
def test_words_are_nine_pixels_high_where_a_page_is_300_pixels_wide(name):
    svg, _ = drawn(name)
    smallest = min(map(float, re.findall(r'font(?:-size)?(?:: |=")([\d.]+)', svg)))
    width = float(svg.partition('viewBox="0 0 ')[2].split()[0])
    least = re.search(r"min-width:(\d+)px", svg)
    assert smallest * max(300, int(least[1]) if least else 0) / width > 8.99
    replaced = {"attention", "live_translator", "query_plane"}  # by a script
    stacked = "data-panels" in svg
    assert not least or stacked or name in {*replaced, "diagram_strip"}, "it has to be scrolled"
