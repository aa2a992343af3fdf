"""The figures tell the truth, in what they draw and in words."""

import base64
import functools
import html
import io
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from waiting import PATIENCE

from course_lib import plotting
from course_lib.plotting import display
from course_lib.plotting.words import as_array, mask_sentence, number, ranges

WEIGHTS = torch.tensor([[0.62, 0.3, 0.08, 0, 0], [0.1, 0.15, 0.75, 0, 0], [0.2, 0.5, 0.3, 0, 0]])
MASK = torch.tensor([True, True, True, False, False]).expand(3, 5)
GRADIENT = np.array([[0.1, -0.4, 0.3], [0.2, -0.1, -0.1]])
FILLS = [-1.0, -32.0, -1024.0, -32768.0]


def leak(level, dtype):
    rows = torch.tensor([[level, fill] for fill in FILLS], dtype=torch.float64).to(dtype)
    return torch.softmax(rows, dim=-1)[:, 1]


@functools.cache
def every_plot():
    """One plot of each kind, by name."""
    broken = GRADIENT.copy()
    broken[1] = np.nan
    dtypes = {"float16": torch.float16, "float64": torch.float64}
    return {
        "heatmap": plotting.heatmap(WEIGHTS, mask=MASK, title="weights"),
        "large heatmap": plotting.heatmap(np.eye(40)),
        "grid": plotting.heatmap_grid({"a": WEIGHTS, "b": WEIGHTS.flip(0)}, masks={"b": MASK}),
        "gallery": plotting.mask_gallery({"padding": MASK, "square": np.tri(4, dtype=bool)}),
        "gradient": plotting.gradient_map({"fine": GRADIENT, "broken": broken}),
        "shift": plotting.softmax_shift([2, 1], [0, -1], [0.73, 0.27], [0.73, 0.27]),
        "leak": plotting.fill_leakage(
            FILLS, {f"near {at}": {n: leak(at, d) for n, d in dtypes.items()} for at in (0, -1024)}
        ),
        "bars": plotting.bars({"one": {"only": [1.0, float("nan")]}}),
        "lines": plotting.lines([1, 2], {"a": [3, 4]}, x_label="d", y_label="variance"),
    }


@pytest.fixture(params=sorted(every_plot()))
def plot(request):
    return every_plot()[request.param]


def test_figures_are_four_to_six_inches_wide(plot):
    width, height = plot.figure.get_size_inches()
    assert 4 <= width <= 6
    assert 1.5 <= height <= 6


def test_figures_are_png_on_white(plot):
    assert plotting.png_bytes(plot.figure).startswith(b"\x89PNG")
    assert plot.figure.get_facecolor() == (1, 1, 1, 1)


def test_png_holds_no_version_and_no_date(plot):
    with Image.open(io.BytesIO(plotting.png_bytes(plot.figure))) as picture:
        assert set(picture.info) <= {"dpi"}


def test_a_second_process_draws_in_silence_and_needs_no_pyplot():
    program = (
        "import sys; from course_lib import plotting; "
        "plot = plotting.heatmap([[0.25, 0.75]], mask=[[True, True]]); "
        "assert 'matplotlib.pyplot' not in sys.modules; "
        "plotting.png_bytes(plot.figure); print(plot.alt)"
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
    assert figure.axes[0].images[0].get_clim() == (0, 1)
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
        r"(every query|quer\w+ [\d, -]+) may attend ([^;]+)", mask_sentence(mask)
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


def test_gallery_refuses_what_is_not_a_bool_mask():
    with pytest.raises(ValueError, match="'ones' must be bool with 2 axes; got float64"):
        plotting.mask_gallery({"ones": np.ones((2, 2))})
    with pytest.raises(ValueError, match="bool with 2 axes; got bool with 3"):
        plotting.mask_gallery({"cube": np.ones((2, 2, 2), dtype=bool)})


def test_heatmap_refuses_three_axes():
    with pytest.raises(ValueError, match=r"`weights` must have 2 axes .* got shape \(2, 3, 4\)"):
        plotting.heatmap(torch.zeros(2, 3, 4))


def test_gradient_alt_says_where_nan_is_and_how_large_the_rest_is():
    alt = every_plot()["gradient"].alt
    assert "fine: all 6 entries finite, largest size 0.40 at query 0, key 1" in alt
    assert "broken: nan in the row of query 1 (3 of 3); largest size 0.40 at query 0, key 1" in alt


def test_leak_alt_names_the_first_fill_with_an_exact_zero():
    alt = plotting.fill_leakage(FILLS, {"near 0": {"float16": leak(0, torch.float16)}}).alt
    first_zero = FILLS[leak(0, torch.float16).tolist().index(0)]
    assert f"exactly 0 from {first_zero:.0f} on" in alt
    assert f"float16 {leak(0, torch.float16)[0].item():.2f} at -1" in alt


def test_leak_refuses_fills_that_are_not_negative():
    with pytest.raises(ValueError, match="`fills` must be finite and < 0"):
        plotting.fill_leakage([-1, -float("inf")], {"near 0": {"float32": [0.1, 0]}})


def test_bars_alt_lists_the_values():
    assert "as given 2, 1; maximum subtracted 0, -1" in every_plot()["shift"].alt


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.618, "0.62"), (2.0, "2"), (-8192.0, "-8192"), (1.6e-28, "1.6e-28"), (np.nan, "nan")],
)
def test_numbers_are_short_and_true(value, words):
    assert number(value) == words


def test_ranges_join_neighbours():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_half_precision_and_tensors_with_gradients_can_be_drawn():
    tensor = torch.full((2, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)
    assert as_array(tensor).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert "puts 0.50" in plotting.heatmap(tensor).alt


@pytest.fixture
def shown(monkeypatch):
    """Collects what is displayed, as if a notebook were there."""
    bundles = []
    monkeypatch.setattr(display, "_shell", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda data, **kwargs: bundles.append(data))
    return bundles


def test_show_displays_one_bundle_with_alt_text_and_png(shown):
    plot = plotting.heatmap(WEIGHTS, title='a "quoted" <title>')
    plotting.show(plot)
    (bundle,) = shown
    assert bundle["text/plain"] == plot.alt
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert 'alt="a &quot;quoted&quot; &lt;title&gt;: Weights' in bundle["text/html"]
    assert bundle["text/html"].startswith("<figure")


def test_show_takes_a_figure_and_its_alt_text(shown):
    plotting.show(plotting.heatmap(WEIGHTS).figure, "three rows", caption="x < y")
    assert shown[0]["text/plain"] == "three rows"
    assert "<figcaption>x &lt; y</figcaption>" in shown[0]["text/html"]


def test_show_refuses_a_figure_without_alt_text():
    with pytest.raises(ValueError, match="`alt` must say what the figure shows"):
        plotting.show(plotting.heatmap(WEIGHTS).figure)


def test_show_without_a_notebook_says_the_alt_text(capsys):
    plot = plotting.heatmap(WEIGHTS)
    plotting.show(plot)
    assert capsys.readouterr().out == plot.alt + "\n"


def draw_power(exponent, name="x"):
    return plotting.lines(
        [1, 2, 3], {name: [1, 2**exponent, 3**exponent]}, x_label="x", y_label="power"
    )


def test_interactive_falls_back_to_its_static_form(shown):
    plotting.interactive(draw_power, start={"exponent": 2}, exponent=[1, 2, 3], name=["a", "b"])
    assert shown[0]["text/plain"] == draw_power(2, "a").alt
    assert "Drawn at exponent = 2, name = a." in shown[0]["text/html"]


def test_interactive_puts_controls_before_the_figure_and_redraws(shown, monkeypatch):
    monkeypatch.setenv("COURSE_INTERACTIVE", "1")
    plotting.interactive(draw_power, exponent=[1, 2, 3], name=["a", "b"])
    slider, menu, picture = shown[0].children
    assert (type(slider).__name__, type(menu).__name__) == ("SelectionSlider", "Dropdown")
    assert html.escape(draw_power(1, "a").alt) in picture.value
    slider.value, menu.value = 3, "b"
    assert html.escape(draw_power(3, "b").alt) in picture.value


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
