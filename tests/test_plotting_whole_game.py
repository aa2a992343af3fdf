"""The figure of lesson 00 says in words what it draws."""

import re

from course_lib import plotting

PLOT = plotting.bottleneck()


def test_both_panels_have_the_pieces_and_the_words():
    words = re.findall(r"<text[^>]*>([^<]*)</text>", PLOT.svg)
    for word in ("drei", "und", "vierzig", "forty", "three"):
        assert words.count(word) == 2
        assert word in PLOT.alt
    assert words.count("one vector") == 1


def test_the_two_thick_lines_cross():
    lines = [
        [float(line[key]) for key in ("x1", "x2", "stroke-width")]
        for line in map(dict, map(lambda tag: re.findall(r'([\w-]+)="([^"]*)"', tag), _lines()))
        if line["stroke"] != "currentColor"
    ]
    assert len(lines) == 6
    (a, b, _), (c, d, _) = sorted(lines, key=lambda line: line[2])[-2:]
    assert (a - c) * (b - d) < 0
    assert "cross" in PLOT.alt


def _lines() -> list[str]:
    return re.findall(r"<line[^>]*>", PLOT.svg)
