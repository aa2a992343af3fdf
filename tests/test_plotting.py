"""The figures draw and describe their data correctly."""

import ast
import base64
import functools
import gzip
import html
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from drawn import DRAWN
from matplotlib.figure import Figure
from pages import contrast, elements

from course_lib import plotting
from course_lib.attention import causal_mask
from course_lib.plotting import captions, colors, display
from course_lib.plotting.words import curve_sentence

WEIGHTS = torch.tensor([[0.62, 0.3, 0.08, 0, 0], [0.1, 0.15, 0.75, 0, 0], [0.2, 0.5, 0.3, 0, 0]])
MASK = torch.tensor([True, True, True, False, False]).expand(3, 5)
NAN = float("nan")
SOLUTIONS = Path(__file__).parents[1] / "solutions"
GRADIENT = np.array([[0.1, -0.4, 0.3], [0.2, -0.1, -0.1]])
ROLES = [colors.QUERY, colors.KEY, colors.VALUE, colors.WEIGHT, colors.OUTPUT]
COLORS = [*ROLES, colors.PLAIN, colors.POSITIVE, colors.NEGATIVE, *colors.SERIES]


@functools.cache
def every_plot():
    """Return a plot of each kind that matplotlib draws, by name, some with gaps or masks."""
    broken = GRADIENT.copy()
    broken[1] = np.nan
    skipped = ("live_", "verdicts")  # no figure of matplotlib; one as wide as it has questions
    drawn = {name: draw() for name, draw in DRAWN.items() if not name.startswith(skipped)}
    return {name: plot for name, plot in drawn.items() if isinstance(plot.figure, Figure)} | {
        "large heatmap": plotting.heatmap(np.eye(40)),
        "grid": plotting.heatmap_grid({"a": WEIGHTS, "b": WEIGHTS.flip(0)}, masks={"b": MASK}),
        "gradient": plotting.heatmap_grid(
            {"fine": GRADIENT, "broken": broken}, quantity="gradient", limits=None
        ),
        "a gap": plotting.bars({"one": {"only": [1.0, NAN]}}, y_label="loss"),
    }


@pytest.fixture(params=sorted(every_plot()))
def plot(request):
    return every_plot()[request.param]


def test_a_figure_fits_a_page_takes_its_ink_and_asks_no_other_host(plot):
    width, height = plot.figure.get_size_inches()
    assert 4 <= width <= 6 and 1.5 <= height <= 6
    assert 'fill="currentColor"' in plot.svg.split(">")[0]
    assert not re.search(r"(fill|stroke): (#000000|#ffffff|black|white)", plot.svg)
    used = set(re.findall(r"#[0-9a-f]{6}", re.sub(r'href="[^"]*"', "", plot.svg)))
    assert used <= set(COLORS)
    addresses = re.findall(r'(?:href|src)="([^"]*)"|url\(([^)]*)\)', plot.svg)
    assert all(a.startswith(("#", "data:image/png")) for pair in addresses for a in pair if a)


def test_words_in_figures_are_text_and_the_alt_text_ends_a_sentence(plot):
    words = {"".join(text.itertext()) for text in elements(plot.svg, "text")}
    wanted = {label for axes in plot.figure.axes for label in (axes.get_xlabel(), axes.get_title())}
    assert wanted - {""} <= words
    assert plot.alt.endswith(".") and "  " not in plot.alt and len(plot.alt.split()) > 5


def test_words_keep_their_decimals():
    figure = plotting.lines([0, 1], {"a": [1, 2]}, x_label="0.001 h or 0.12345 nats", y_label="y")
    assert {"0.001 h or 0.12345 nats"} <= set(re.findall(r">([^<>]+)<", figure.svg))


def curves(x, *rows, **options):
    named = dict(zip(("first", "second"), rows, strict=False))
    return plotting.lines(x, named, x_label="x", y_label="y", **options)


@pytest.mark.parametrize(
    ("draw", "limits"),
    [
        (lambda: curves([0, 1], [1, 2], [1, 2], y_limits=(0, 9)), (0, 9)),
        (lambda: plotting.query_weights([0, 1, 2], [1, 2, 3], 1.0, [0.4, 0.3, 0.3], 2.0), (0, 0.5)),
        (lambda: plotting.query_weights([0, 1, 2], [1, 2, 3], 1.0, [0.1, 0.4, 0.5], 2.0), (0, 0.5)),
        (lambda: plotting.heatmap(WEIGHTS), (0, 1)),
    ],
)
def test_limits_that_are_fixed_do_not_depend_on_the_data(draw, limits):
    assert draw().figure.axes[-1].get_ylim() == limits


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("ground", ["#ffffff", "#14181e", "#111111", "#1e1e1e", "#000000"])
def test_every_color_has_three_to_one_against_light_and_dark_pages(color, ground):
    assert contrast(color, ground) >= 3


def test_data_of_a_map_is_a_row_for_each_query_and_long_tables_are_thinned():
    table = plotting.heatmap(WEIGHTS, mask=MASK).table
    assert table.head == ["query", *(f"key {key}" for key in range(5))]
    assert table.rows[1] == ["query 1", "0.10", "0.15", "0.75", "masked", "masked"]
    page = plotting.figure_html(curves(range(100), range(100)))
    assert "<summary>Data (34 of 100 rows)</summary>" in page
    assert page.count("<tr>") == 35


ONE = torch.ones(3, 5, dtype=torch.bool)
ONE[1, 2] = False
HALF = torch.full((2, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plotting.heatmap(WEIGHTS, mask=MASK), "keys 3-4 of every query are masked"),
        (lambda: plotting.heatmap(WEIGHTS, mask=ONE), "key 2 of query 1 is masked"),
        (lambda: plotting.mask_gallery({"": ONE}), "query 1 may attend to keys 0-1, 3-4"),
        (
            lambda: plotting.mask_gallery({"new": causal_mask(2, 5)}, first={"new": 3}),
            "query 3 may attend to keys 0-3; query 4 may attend to every key",
        ),
        (
            lambda: plotting.heatmap([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]]),
            "query 0 weighs keys 0-1 alike, 0.40 each; query 1 puts 0.50 on key 0",
        ),
        (lambda: plotting.heatmap(HALF), "alike, 0.50 each"),
        (lambda: plotting.heatmap([[0.0, 0.0], [0.5, 0.5]]), "query 0 puts 0 on every key"),
        (
            lambda: plotting.heatmap([[1.0, -math.inf]], quantity="score", limits=None),
            "query 0 has its largest score, 1, at key 0",
        ),
        (
            lambda: every_plot()["gradient"],
            "query 1 has no finite gradient; query 1: nan at keys 0-2",
        ),
        (
            lambda: plotting.bars({"": {"given": [2, 1], "shifted": [0, -1]}}, y_label="score"),
            "given 2, 1; shifted 0, -1",
        ),
    ],
)
def test_alt_text_names_masks_ties_gaps_and_values(draw, words):
    assert words in draw().alt


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.01, 0.97, 1.03, 0.99], "it stays between 0.97 and 1.03"),
        (
            [0.49, 0.42, 1.5, 2.65],
            "it starts at 0.49 at 0, falls to a dip of 0.42 at 1, rises to 2.65 at 3",
        ),
        ([NAN] * 4, "it has no finite value"),
        (
            [2, 1, 3, 0, 3, 0, 4, 2],
            "it starts at 2 at 0, falls to a dip of 0 at 3, rises to a peak of 4 at 6, "
            "falls to 2 at 7",
        ),
    ],
)
def test_the_course_of_a_curve_is_said(values, words):
    assert (
        curve_sentence("it", np.arange(float(len(values))), np.array(values, dtype=float)) == words
    )


def cell_texts(plot):
    return [text.get_text() for axes in plot.figure.axes for text in axes.texts]


def test_cells_hold_their_numbers_up_to_eight_by_eight_unless_they_are_masked():
    assert cell_texts(plotting.heatmap(WEIGHTS))[:3] == ["0.62", "0.30", "0.08"]
    assert len(cell_texts(plotting.heatmap(np.eye(8)))) == 64
    assert cell_texts(plotting.heatmap(np.eye(9))) == []
    leaking = plotting.heatmap([[1.0, 0.0], [0.7, 0.3]], mask=[[True, False], [True, False]])
    assert cell_texts(leaking)[:4] == ["1.00", "", "0.70", "0.30"]
    narrow = np.tile([10.6, -0.5, 0.25, 1.0], (8, 2))
    small = plotting.heatmap_grid({"a": narrow, "b": narrow}, limits=None)
    assert cell_texts(small)[:4] == ["10.6", "-.50", ".25", "1.00"]


def test_masked_cells_are_hatched_and_axes_are_named():
    figure = plotting.heatmap(WEIGHTS, mask=MASK).figure
    axes, bar = figure.axes
    hatched = {(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in axes.patches}
    assert hatched == {(key, query) for query in range(3) for key in (3, 4)}
    assert all(patch.get_hatch() for patch in axes.patches)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("keys", "queries")
    assert bar.get_ylabel() == "attention weight"


def test_queries_are_numbered_by_their_positions_and_all_cells_of_a_gallery_are_alike():
    masks = {"all": causal_mask(5), "newest": causal_mask(2, 5), "cross": torch.ones(2, 8).bool()}
    figure = plotting.mask_gallery(masks, first={"newest": 3}).figure
    shown = [[tick.get_text() for tick in axes.get_yticklabels()] for axes in figure.axes]
    assert shown == [["0", "1", "2", "3", "4"], ["3", "4"], ["0", "1"]]
    figure.draw_without_rendering()
    wide = [axes.bbox.width / len(axes.get_xticks()) for axes in figure.axes]
    assert max(wide) < 1.2 * min(wide)


def test_gallery_ticks_exactly_the_allowed_cells_and_bars_carry_their_names():
    mask = np.tri(4, dtype=bool)
    ticks = plotting.mask_gallery({"square": mask}).figure.axes[0].texts
    found = {t.get_position()[::-1] for t in ticks}
    assert found == set(map(tuple, np.argwhere(mask).tolist()))
    panels = {"names": {"": [1, 2]}}
    plot = plotting.bars(panels, x_label="head", y_label="loss", ticks=["0.0", "1.3"])
    assert plot.alt == "Bars of loss, names: 1 at 0.0, 2 at 1.3."
    assert {"0.0", "1.3", "loss"} <= {text.text for text in elements(plot.svg, "text")}
    assert plot.table.head == ["head", "0.0", "1.3"]


def test_show_displays_one_bundle_with_alt_text_and_picture(shown, monkeypatch, capsys):
    plot = plotting.heatmap(WEIGHTS, title='a "quoted" <title>')
    plotting.show(plot)
    (bundle,) = shown
    assert bundle["text/plain"] == plot.alt
    assert picture_of(bundle["text/html"]) == plot.svg
    assert 'alt="a &quot;quoted&quot; &lt;title&gt;: Weights' in bundle["text/html"]
    assert bundle["text/html"].startswith("<figure")
    monkeypatch.setattr(display, "current_shell", lambda: None)
    plotting.show(plot)
    assert capsys.readouterr().out == plot.alt + "\n"


def picture_of(page):
    source = re.search(r'src="data:image/svg\+xml,([^"]*)"', page)[1]
    return unquote(source)


def test_show_finds_the_title_of_a_lesson_by_its_key(shown, monkeypatch):
    monkeypatch.setitem(captions.TITLES, "rows", "three < four rows")
    plot = replace(plotting.heatmap(WEIGHTS), caption="x < y")
    plotting.show(plot, key="rows")
    assert shown[0]["text/plain"] == f"three < four rows. {plot.alt}"
    assert re.search(
        r"<figure [^>]*><p [^>]*><b>three &lt; four rows</b></p><img", shown[0]["text/html"]
    )
    assert "<figcaption>x &lt; y</figcaption>" in shown[0]["text/html"]
    plotting.show(plot)
    assert shown[1]["text/plain"] == plot.alt
    assert "<b>" not in shown[1]["text/html"]


def test_every_figure_of_a_lesson_has_a_title():
    used = set()
    for path in SOLUTIONS.glob("*/*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            words = ast.unparse(call) if isinstance(call, ast.Call) else ""
            if words.startswith(("plotting.show(", "plotting.interactive(")):
                keys = [part.value.value for part in call.keywords if part.arg == "key"]
                titled = ("title=title", "bottleneck()", "password_figure")  # with their own
                assert len(keys) == 1 or any(each in words for each in titled), words
                used.update(keys)
    assert used == set(captions.TITLES)
    assert all(title[0].isupper() and not title.endswith(".") for title in captions.TITLES.values())


@pytest.mark.slow
def test_titles_change_with_the_controls(shown):
    def drawn(exponent):
        return replace(draw_power(exponent), title=f"to the power of {exponent}")

    plotting.interactive(drawn, exponent=[1, 2])
    assert shown[0]["text/plain"].startswith("to the power of 1. ")
    data = json.loads(re.search(r'class="live">(.*?)</script>', shown[0]["text/html"], re.S)[1])
    frames = json.loads(gzip.decompress(base64.b64decode(data["frames"])))
    assert [frame["title"] for frame in frames] == ["to the power of 1", "to the power of 2"]


def draw_power(exponent, name="x"):
    powers = {name: [1, 2**exponent, 3**exponent]}
    return plotting.lines([1, 2, 3], powers, x_label="x", y_label="power")


@pytest.mark.slow
def test_interactive_draws_every_picture_where_there_is_no_kernel(shown):
    plotting.interactive(draw_power, start={"exponent": 2}, exponent=[1, 2], name=["a", "b"])
    page = shown[0]["text/html"]
    assert shown[0]["text/plain"] == draw_power(2, "a").alt
    assert "Drawn at exponent = 2, name = a." in page
    assert picture_of(page) == draw_power(2, "a").svg
    data = json.loads(re.search(r'class="live">(.*?)</script>', page, re.S)[1])
    controls = [(c["name"], c["start"], c["widget"]) for c in data["controls"]]
    assert controls == [("exponent", 1, "SelectionSlider"), ("name", 0, "RadioButtons")]
    frames = json.loads(gzip.decompress(base64.b64decode(data["frames"])))
    choices = itertools.product([1, 2], ["a", "b"])
    assert [frame["alt"] for frame in frames] == [draw_power(*choice).alt for choice in choices]


def test_interactive_puts_controls_before_the_figure_and_redraws(shown, monkeypatch):
    monkeypatch.setattr(display, "has_front_end", lambda: True)
    plotting.interactive(draw_power, exponent=[1, 2, 3], name=["a", "b"])
    slider, buttons, picture = shown[0].children
    assert (type(slider).__name__, type(buttons).__name__) == ("SelectionSlider", "RadioButtons")
    assert html.escape(draw_power(1, "a").alt) in picture.value
    slider.value, buttons.value = 3, "b"
    assert html.escape(draw_power(3, "b").alt) in picture.value
    assert "<svg " in picture.value and "<img" not in picture.value  # widgets run no script
