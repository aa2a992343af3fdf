"""The figures tell the truth, in what they draw and in words."""

import base64
import functools
import gzip
import html
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from pages import contrast
from waiting import PATIENCE

from course_lib import plotting
from course_lib.benchmarks.figures import DRAWN
from course_lib.plotting import captions, colours, display
from course_lib.plotting.words import curve_sentence, mask_sentence

WEIGHTS = torch.tensor([[0.62, 0.3, 0.08, 0, 0], [0.1, 0.15, 0.75, 0, 0], [0.2, 0.5, 0.3, 0, 0]])
MASK = torch.tensor([True, True, True, False, False]).expand(3, 5)
GRADIENT = np.array([[0.1, -0.4, 0.3], [0.2, -0.1, -0.1]])
ROLES = [colours.QUERY, colours.KEY, colours.VALUE, colours.WEIGHT, colours.OUTPUT]
COLOURS = [*ROLES, colours.PLAIN, colours.POSITIVE, colours.NEGATIVE, *colours.SERIES]


@functools.cache
def every_plot():
    """Return a plot of each kind that matplotlib draws, by name, some with gaps or masks."""
    broken = GRADIENT.copy()
    broken[1] = np.nan
    skipped = ("live_", "verdicts")  # no figure of matplotlib; one as wide as it has questions
    drawn = {name: draw() for name, draw in DRAWN.items() if not name.startswith(skipped)}
    return {name: plot for name, plot in drawn.items() if isinstance(plot.figure, Figure)} | {
        "masked": plotting.heatmap(WEIGHTS, mask=MASK, title="weights"),
        "large heatmap": plotting.heatmap(np.eye(40)),
        "grid": plotting.heatmap_grid({"a": WEIGHTS, "b": WEIGHTS.flip(0)}, masks={"b": MASK}),
        "gradient": plotting.heatmap_grid(
            {"fine": GRADIENT, "broken": broken}, quantity="gradient", limits=None
        ),
        "a gap": plotting.bars({"one": {"only": [1.0, float("nan")]}}),
    }


@pytest.fixture(params=sorted(every_plot()))
def plot(request):
    return every_plot()[request.param]


def test_figures_are_four_to_six_inches_wide(plot):
    width, height = plot.figure.get_size_inches()
    assert 4 <= width <= 6
    assert 1.5 <= height <= 6


def elements(svg, tag):
    """Return the elements of one kind, parsed as a browser would."""
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def test_panels_side_by_side_stay_readable_where_they_have_to_be_scrolled():
    one, two = {"a": torch.eye(3)}, {"a": torch.eye(3), "b": torch.eye(3)}
    narrow, wide = (plotting.figure_html(plotting.heatmap_grid(p, columns=2)) for p in (one, two))
    assert "min-width" not in narrow and "tabindex" not in narrow.partition("<details")[0]
    head = re.search(r"<figure [^>]*>", wide)[0]
    assert "overflow-x:auto" in head and 'tabindex="0"' in head
    assert re.search(r'<img [^>]*style="[^"]*;min-width:\d+px;', wide)


def test_a_phone_stacks_whole_panels_each_with_its_bar_of_colours():
    panels = {name: torch.eye(3) for name in "abc"}
    figure = plotting.heatmap_grid(panels, columns=2)
    found = [float(n) for n in re.search(r'data-panels="([^"]*)"', figure.svg)[1].split()]
    assert len(found) == 4 * 4  # three maps, and the bar that belongs to both rows
    (a, _, width, height), (b, *_), (_, below, *_), bar = np.reshape(found, (4, 4))
    assert b > a + width - 16 and below > height - 16 and bar[0] > b
    figure = plotting.heatmap_grid({name: torch.eye(3) for name in "ab"})
    assert len(re.search(r'data-panels="([^"]*)"', figure.svg)[1].split()) == 2 * 4


def test_a_line_carries_its_name_at_its_end_and_names_do_not_overlap():
    up, same = [1, 2, 3], [1, 2, 3.01]
    plot = plotting.lines([0, 1, 2], {"one": up, "other": same}, x_label="x", y_label="y")
    words = {text.text: text for text in elements(plot.svg, "text")}
    assert not plot.figure.axes[0].get_legend()
    first, second = (float(words[name].get("y")) for name in ("one", "other"))
    assert abs(first - second) > 8


def test_limits_that_are_given_do_not_depend_on_the_data():
    tops = [
        plotting.lines([0, 1], {"a": [1, top], "b": [1, 2]}, x_label="x", y_label="y",
                       y_limits=(0, 9)).figure.axes[0].get_ylim()
        for top in (2, 8)
    ]  # fmt: skip
    assert tops == [(0, 9), (0, 9)]


def test_logarithmic_axes_name_powers_of_ten_or_each_of_a_few_places():
    plot = plotting.lines(
        [1, 10, 100], {"a": [1, 10, 100], "b": [1, 2, 3]}, x_label="x", y_label="y", log_x=True
    )
    assert {"1", "10", "100"} <= {text.text for text in elements(plot.svg, "text")}
    plot = plotting.lines(
        [128, 256, 512], {"a": [1, 4, 16]}, x_label="n", y_label="MiB", log_x=True
    )
    ticks = [tick.get_text() for tick in plot.figure.axes[0].get_xticklabels()]
    assert ticks == ["128", "256", "512"]


def test_the_weights_of_a_query_are_drawn_on_a_fixed_axis():
    limits = {
        plotting.query_weights([0, 1, 2], [1, 2, 3], 1.0, w, 2.0).figure.axes[1].get_ylim()
        for w in ([0.4, 0.3, 0.3], [0.1, 0.45, 0.45])
    }
    assert limits == {(0, 0.5)}


def test_figures_take_their_ink_and_ground_from_the_page(plot):
    assert 'fill="currentColor"' in plot.svg.split(">")[0]
    assert not re.search(r"(fill|stroke): (#000000|#ffffff|black|white)", plot.svg)
    used = set(re.findall(r"#[0-9a-f]{6}", re.sub(r'href="[^"]*"', "", plot.svg)))
    assert used <= set(COLOURS)


def test_words_in_figures_are_text(plot):
    words = {"".join(text.itertext()) for text in elements(plot.svg, "text")}
    wanted = {label for axes in plot.figure.axes for label in (axes.get_xlabel(), axes.get_title())}
    assert wanted - {""} <= words


def test_figures_ask_no_other_host(plot):
    addresses = re.findall(r'(?:href|src)="([^"]*)"|url\(([^)]*)\)', plot.svg)
    assert all(a.startswith(("#", "data:image/png")) for pair in addresses for a in pair if a)


def test_the_same_figure_gives_the_same_markup():
    first, second = (plotting.heatmap(WEIGHTS, mask=MASK, title="weights").svg for _ in range(2))
    assert first == second and "2026" not in first


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("ground", ["#ffffff", "#14181e", "#111111", "#1e1e1e", "#000000"])
def test_every_colour_has_three_to_one_against_light_and_dark_pages(colour, ground):
    assert contrast(colour, ground) >= 3


def test_a_series_without_a_role_never_has_the_colour_of_one():
    assert not set(ROLES) & {*colours.SERIES, colours.POSITIVE, colours.NEGATIVE, colours.PLAIN}


def test_signed_numbers_have_no_colour_at_zero_and_one_for_each_sign():
    made = colours.of_values(np.array([-2.0, 0.0, 1.0, np.nan]), (-2.0, 1.0))
    assert made[:, 3].tolist() == [1, 0, 0.5, 0]
    assert made[0, :3].tolist() == list(colours.rgb(colours.NEGATIVE))
    assert made[2, :3].tolist() == list(colours.rgb(colours.POSITIVE))


def test_weights_are_the_more_coloured_the_larger():
    opacity = colours.of_values(np.array([0.0, 0.25, 1.0, 7.0]), (0.0, 1.0))[:, 3]
    assert opacity.tolist() == [0, 0.25, 1, 1]


def test_data_of_a_map_is_a_row_for_each_query():
    table = plotting.heatmap(WEIGHTS, mask=MASK).table
    assert table.head == ["query", *(f"key {key}" for key in range(5))]
    assert table.rows[1] == ["query 1", "0.10", "0.15", "0.75", "masked", "masked"]


def test_long_tables_are_thinned_and_say_so():
    many = plotting.lines(range(100), {"a": range(100)}, x_label="x", y_label="y")
    page = plotting.figure_html(many)
    assert "<summary>Data (34 of 100 rows)</summary>" in page
    assert page.count("<tr>") == 35


def test_a_second_process_draws_in_silence_and_needs_no_pyplot():
    program = (
        "import sys; from course_lib import plotting; "
        "plot = plotting.heatmap([[0.25, 0.75]], mask=[[True, True]]); "
        "assert 'matplotlib.pyplot' not in sys.modules; "
        "plot.svg; print(plot.alt)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    here = plotting.heatmap([[0.25, 0.75]], mask=[[True, True]])
    assert done.stdout.strip() == here.alt
    assert done.stderr == ""


def test_every_alt_text_ends_a_sentence_and_is_more_than_a_title(plot):
    assert plot.alt.endswith(".")
    assert len(plot.alt.split()) > 5
    assert "  " not in plot.alt


def test_heatmap_alt_names_each_querys_largest_key_with_its_value():
    alt = plotting.heatmap(WEIGHTS).alt
    found = re.findall(r"query (\d) puts ([\d.]+) on key (\d)", alt)
    assert len(found) == 3
    for query, value, key in found:
        row = WEIGHTS[int(query)]
        assert int(key) == int(row.argmax())
        assert float(value) == pytest.approx(float(row.max()), abs=0.005)
    assert "3 queries over 5 keys" in alt
    assert "masked" not in alt


def test_heatmap_alt_names_the_masked_keys():
    alt = plotting.heatmap(WEIGHTS, mask=MASK).alt
    assert "keys 3-4 of every query are masked" in alt
    one = torch.ones(3, 5, dtype=torch.bool)
    one[1, 2] = False
    assert "key 2 of query 1 is masked" in plotting.heatmap(WEIGHTS, mask=one).alt


def test_heatmap_alt_says_a_tie():
    alt = plotting.heatmap([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]]).alt
    assert "query 0 weighs keys 0-1 alike, 0.40 each; query 1 puts 0.50 on key 0" in alt
    scores = plotting.heatmap([[2.0, 2.0]], quantity="score", limits=None).alt
    assert "query 0 has its largest score, 2, at keys 0-1" in scores


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([3, 3, 3, 3], "it stays at 3"),
        ([1.01, 0.97, 1.03, 0.99], "it stays between 0.97 and 1.03"),
        (
            [0.49, 0.42, 1.5, 2.65],
            "it starts at 0.49 at 0, falls to a dip of 0.42 at 1, rises to 2.65 at 3",
        ),
        ([1, 2, 4, 8], "it starts at 1 at 0, rises to 8 at 3"),
        ([0, 3, 1, 0], "it starts at 0 at 0, rises to a peak of 3 at 1, falls to 0 at 3"),
        ([5, 2, 1, 6], "it starts at 5 at 0, falls to a dip of 1 at 2, rises to 6 at 3"),
        ([9, 9, 1, 1], "it drops from 9 to 1 between 1 and 2"),
        ([0, 0.001, 7, 7], "it jumps from 0.001 to 7 between 1 and 2"),
        ([float("nan")] * 4, "it has no finite value"),
        ([float("nan"), 1, 2, 5], "it starts at 1 at 1, rises to 5 at 3"),
    ],
)
def test_the_course_of_a_curve_is_said(values, words):
    assert curve_sentence("it", np.arange(4.0), np.array(values, dtype=float)) == words


def test_a_curve_with_many_turns_is_said_by_its_extremes():
    y = np.array([2.0, 1, 3, 0, 3, 0, 4, 2])
    assert curve_sentence("it", np.arange(8.0), y) == (
        "it starts at 2 at 0, falls to a dip of 0 at 3, rises to a peak of 4 at 6, falls to 2 at 7"
    )


def test_on_a_logarithmic_axis_a_cliff_is_one_of_ratios():
    y = np.array([1e-8, 1.1e-8, 0.9, 1.0])
    assert "jumps" in curve_sentence("it", np.arange(4.0), y, log=True)
    steady = np.array([1.0, 10, 100, 1000])
    assert "rises to 1000" in curve_sentence("it", np.arange(4.0), steady, log=True)


def test_heatmap_alt_says_when_a_row_is_empty_or_nan():
    assert "query 0 puts 0 on every key" in plotting.heatmap([[0.0, 0.0], [0.5, 0.5]]).alt
    alt = plotting.heatmap([[0.25, 0.75], [float("nan"), float("nan")]]).alt
    assert "query 1: nan at keys 0-1" in alt


def test_heatmap_of_scores_speaks_of_scores():
    alt = plotting.heatmap([[1.0, float("-inf")]], quantity="score", limits=None).alt
    assert "query 0 has its largest score, 1, at key 0" in alt
    assert "eight" not in alt


def cell_texts(plot):
    return [text.get_text() for axes in plot.figure.axes for text in axes.texts]


def test_cells_hold_their_numbers_up_to_eight_by_eight_only():
    assert cell_texts(plotting.heatmap(WEIGHTS))[:3] == ["0.62", "0.30", "0.08"]
    assert len(cell_texts(plotting.heatmap(np.eye(8)))) == 64
    assert cell_texts(plotting.heatmap(np.eye(9))) == []


def test_masked_cells_are_hatched_and_not_only_coloured():
    axes = plotting.heatmap(WEIGHTS, mask=MASK).figure.axes[0]
    hatched = {(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in axes.patches}
    assert hatched == {(key, query) for query in range(3) for key in (3, 4)}
    assert all(patch.get_hatch() for patch in axes.patches)


def test_colour_bar_of_weights_runs_from_0_to_1_and_axes_are_named():
    figure = plotting.heatmap(WEIGHTS).figure
    assert figure.axes[1].get_ylim() == (0, 1)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("keys", "queries")
    assert figure.axes[1].get_ylabel() == "attention weight"


def test_gallery_ticks_exactly_the_allowed_cells():
    mask = np.tri(4, dtype=bool)
    texts = plotting.mask_gallery({"square": mask}).figure.axes[0].texts
    assert {(t.get_position()[1], t.get_position()[0]) for t in texts} == set(
        map(tuple, np.argwhere(mask).tolist())
    )


@pytest.mark.parametrize("size", [(3, 5), (4, 4), (1, 6), (6, 2)])
def test_mask_alt_can_be_turned_back_into_the_mask(size):
    rng = np.random.default_rng(size[0])
    mask = rng.random(size) < 0.5
    rebuilt = np.zeros(size, dtype=bool)
    for who, what in re.findall(
        r"(every query|quer\w+ [\d, -]+) may attend to ([^;]+)", mask_sentence(mask)
    ):
        rows = range(size[0]) if "every" in who else numbers_in(who)
        columns = range(size[1]) if "every" in what else numbers_in(what)
        rebuilt[np.ix_(list(rows), list(columns))] = True
    assert (rebuilt == mask).all()


def numbers_in(words):
    found = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", words):
        found += range(int(first), int(last or first) + 1)
    return found


def test_what_is_not_a_matrix_or_a_bool_mask_is_refused():
    with pytest.raises(ValueError, match=r"`weights` must have 2 axes .* got shape \(2, 3, 4\)"):
        plotting.heatmap(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="'ones' must be bool with 2 axes; got float64"):
        plotting.mask_gallery({"ones": np.ones((2, 2))})
    with pytest.raises(ValueError, match="bool with 2 axes; got bool with 3"):
        plotting.mask_gallery({"cube": np.ones((2, 2, 2), dtype=bool)})


def test_alt_of_a_map_says_where_nan_is_and_where_the_rest_is_largest():
    alt = every_plot()["gradient"].alt
    assert "fine: Gradient values of 2 queries over 3 keys; query 0 has its largest" in alt
    assert "query 1 has no finite gradient; query 1: nan at keys 0-2" in alt


def test_bars_alt_lists_the_values():
    alt = plotting.bars({"scores": {"as given": [2, 1], "shifted": [0, -1]}}).alt
    assert "as given 2, 1; shifted 0, -1" in alt


def test_a_masked_cell_is_empty_unless_weight_leaks_into_it():
    mask = [[True, False], [True, False]]
    plot = plotting.heatmap([[1.0, 0.0], [0.7, 0.3]], mask=mask)
    written = [text.get_text() for text in plot.figure.axes[0].texts]
    assert written == ["1.00", "", "0.70", "0.30"]


def test_bars_carry_their_names():
    plot = plotting.bars({"loss": {"": [1, 2]}}, x_label="head", ticks=["0.0", "1.3"])
    assert {"0.0", "1.3"} <= {text.text for text in elements(plot.svg, "text")}
    assert plot.table.head == ["head", "0.0", "1.3"]


def test_half_precision_and_tensors_with_gradients_can_be_drawn():
    tensor = torch.full((2, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)
    assert "alike, 0.50 each" in plotting.heatmap(tensor).alt


@pytest.fixture
def shown(monkeypatch):
    """Collect what is displayed, as if a notebook were there."""
    bundles = []
    monkeypatch.setattr(display, "_shell", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda data, **kwargs: bundles.append(data))
    return bundles


def test_show_displays_one_bundle_with_alt_text_and_picture(shown):
    plot = plotting.heatmap(WEIGHTS, title='a "quoted" <title>')
    plotting.show(plot)
    (bundle,) = shown
    assert bundle["text/plain"] == plot.alt
    assert picture_of(bundle["text/html"]) == plot.svg
    assert 'alt="a &quot;quoted&quot; &lt;title&gt;: Weights' in bundle["text/html"]
    assert bundle["text/html"].startswith("<figure")


def picture_of(page):
    """Return the markup inside the still picture of a figure."""
    source = re.search(r'src="data:image/svg\+xml,([^"]*)"', page)[1]
    return unquote(source)


def test_show_finds_the_words_of_a_lesson_by_their_key(shown, monkeypatch):
    monkeypatch.setitem(captions.WORDS, "both", captions.Words("three rows", "x < y"))
    plot = plotting.heatmap(WEIGHTS)
    plotting.show(plot, key="both")
    assert shown[0]["text/plain"] == "three rows"
    assert "<figcaption>x &lt; y</figcaption>" in shown[0]["text/html"]
    plotting.show(plot, key="live translator")  # it has no alt text of its own
    assert shown[1]["text/plain"] == plot.alt


def test_lessons_use_exactly_the_alt_texts_that_have_a_key():
    texts = "".join(
        path.read_text() for path in (Path(__file__).parents[1] / "solutions").glob("*/*.py")
    )
    used = set(re.findall(r'\bkey="([^"]+)"\)', texts))
    assert used == {key for key, words in captions.WORDS.items() if words.alt}


def test_show_without_a_notebook_says_the_alt_text(capsys):
    plot = plotting.heatmap(WEIGHTS)
    plotting.show(plot)
    assert capsys.readouterr().out == plot.alt + "\n"


def draw_power(exponent, name="x"):
    return plotting.lines(
        [1, 2, 3], {name: [1, 2**exponent, 3**exponent]}, x_label="x", y_label="power"
    )


def frames_of(page):
    """Return the controls and unpacked pictures of a figure that steps without a kernel."""
    data = json.loads(re.search(r'class="live">(.*?)</script>', page, re.S)[1])
    return data["controls"], json.loads(gzip.decompress(base64.b64decode(data["frames"])))


@pytest.mark.slow
def test_interactive_draws_every_picture_where_there_is_no_kernel(shown):
    plotting.interactive(draw_power, start={"exponent": 2}, exponent=[1, 2, 3], name=["a", "b"])
    page = shown[0]["text/html"]
    assert shown[0]["text/plain"] == draw_power(2, "a").alt
    assert "Drawn at exponent = 2, name = a." in page
    assert picture_of(page) == draw_power(2, "a").svg
    controls, frames = frames_of(page)
    assert [(c["name"], c["start"], c["slides"]) for c in controls] == [
        ("exponent", 1, True),
        ("name", 0, False),
    ]
    choices = itertools.product([1, 2, 3], ["a", "b"])
    assert [frame["alt"] for frame in frames] == [draw_power(*choice).alt for choice in choices]


def test_interactive_refuses_more_pictures_than_a_page_holds(shown):
    with pytest.raises(ValueError, match="at most 80 pictures fit into a page; got 81"):
        plotting.interactive(draw_power, exponent=list(range(81)))


def test_interactive_puts_controls_before_the_figure_and_redraws(shown, monkeypatch):
    monkeypatch.setenv("COURSE_INTERACTIVE", "1")
    plotting.interactive(draw_power, exponent=[1, 2, 3], name=["a", "b"])
    slider, menu, picture = shown[0].children
    assert (type(slider).__name__, type(menu).__name__) == ("SelectionSlider", "Dropdown")
    assert html.escape(draw_power(1, "a").alt) in picture.value
    slider.value, menu.value = 3, "b"
    assert html.escape(draw_power(3, "b").alt) in picture.value
    assert "<svg " in picture.value and "<img" not in picture.value  # widgets run no script


@pytest.mark.parametrize(("allow_stdin", "expected"), [(True, True), (False, False)])
def test_a_front_end_is_one_that_can_answer_input(monkeypatch, allow_stdin, expected):
    class Kernel:
        def get_parent(self, channel):
            return {"content": {"allow_stdin": allow_stdin}} if channel == "shell" else {}

    class Shell:
        kernel = Kernel()

    monkeypatch.delenv("COURSE_INTERACTIVE", raising=False)
    monkeypatch.setattr(display, "_shell", Shell)
    assert display._has_front_end() is expected
    monkeypatch.setenv("COURSE_INTERACTIVE", "0")
    assert display._has_front_end() is False


@pytest.mark.parametrize(
    ("start", "options"), [({"exponent": 9}, [1, 2]), ({}, []), ({"exponent": 0}, [1])]
)
def test_interactive_refuses_a_start_that_is_no_option(start, options):
    with pytest.raises(ValueError, match="`exponent` must start at one of"):
        plotting.interactive(draw_power, start=start, exponent=options)
