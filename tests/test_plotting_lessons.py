"""The figures of single lessons contain the numbers, and their alt texts are true."""

import base64
import io
import re
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from pages import elements

from course_lib import plotting, split_heads
from course_lib.attention import scaled_dot_product_attention
from course_lib.plotting import display, training
from course_lib.plotting.attention import DIGITS


def texts(plot, panel=0):
    return [text.get_text() for text in plot.figure.axes[panel].texts]


def words_of(plot):
    return [text.text for text in elements(plot.svg, "text")]


# --- the words of figures ------------------------------------------------------------------

NAN = float("nan")
INPUTS, TARGETS = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([10.0, 20.0, 40.0])
PLACES = torch.linspace(0, 3, 7)
FIT = torch.tensor([10.0, 12.0, 20.0, NAN, NAN, 40.0, 40.0])
KEYS = torch.arange(6).reshape(3, 2)
OWNERS = torch.arange(3)[:, None].expand(3, 2)
HEADS = (torch.arange(4) // 2).expand(3, 4)
NUMBERS = 10 * torch.arange(3)[:, None] + torch.arange(4)


def fits(**predictions):
    return plotting.kernel_fits(INPUTS, TARGETS, PLACES, predictions)


def split(x):
    return split_heads(x[None].float(), 2)[0]


BLOCKS = {
    "x": (NUMBERS, HEADS),
    "split": (split(NUMBERS), split(HEADS)),
}
VERDICTS = {
    "sound": {"trains": True, "masks": True, "sums": False},
    "avocet": {"trains": True, "masks": False, "sums": False},
}


def test_gaps_are_hatched_and_cells_carry_numbers_and_owners():
    # Color is never the only cue.
    (hatched,) = fits(narrow=FIT).figure.axes[0].patches
    assert hatched.get_hatch()
    assert (hatched.get_x(), hatched.get_x() + hatched.get_width()) == (1.25, 2.25)
    turned = plotting.cell_origins({"turned": (KEYS.mT, OWNERS.mT)})
    assert texts(turned)[:4] == ["0", "k0", "2", "k1"]
    written = texts(plotting.cell_origins(BLOCKS, owner="head"), 1)
    assert {"head 0", "head 1"} <= set(written)
    assert written.count("h0") == written.count("h1") == 6
    assert texts(plotting.verdicts(VERDICTS)) == ["yes", "yes", "no", "yes", "no", "no"]


# --- lesson 04: the cube of features -------------------------------------------------------

Q = np.array([[-1.5, 0.5], [0.25, -2.0], [1.0, 1.0]])  # (num_queries, num_hiddens)
K = np.array([[1.0, -1.0], [-0.5, 0.75], [0.0, 2.0], [-2.0, 0.1]])
W_V = np.array([2.0, -1.5])


def test_each_slice_holds_tanh_of_the_sums_and_the_last_map_their_weighted_sum():
    plot, cube = plotting.feature_cube(Q, K, W_V), np.tanh(Q[:, None] + K[None])
    panels = [axes for axes in plot.figure.axes if axes.get_title()]
    wanted = [cube[..., 0], cube[..., 1], cube @ W_V]
    for axes, numbers in zip(panels, wanted, strict=True):
        written = np.array([float(text.get_text()) for text in axes.texts]).reshape(3, 4)
        np.testing.assert_allclose(written, numbers, atol=0.00501)
    assert panels[-1].get_title() == "scores = +2·f0 -1.5·f1"
    for query, key in enumerate(wanted[2].argmax(axis=1)):
        assert f"query {query} key {key}" in plot.alt
    for feature, weight in ((0, "2"), (1, "-1.50")):
        low, high = cube[..., feature].min(), cube[..., feature].max()
        assert f"feature {feature}, weight {weight}, runs from {low:.2f} to {high:.2f}" in plot.alt


# --- lesson 05: saturation, a query to drag ------------------------------------------------

SCORES = np.array([1.0, 0.5, 0.0, -1.0])


@pytest.mark.parametrize("factor", [0, 0.5, 1, 2, 4, 32])
def test_saturation_gives_the_weights_and_the_largest_derivative(factor):
    plot = plotting.saturation(list(SCORES), factor)
    weights = np.exp(factor * SCORES) / np.exp(factor * SCORES).sum()
    heights = [patch.get_height() for patch in plot.figure.axes[0].patches]
    assert heights == pytest.approx(list(weights))
    if factor == 1:
        assert all(f"{weight:.2f}" in plot.alt for weight in weights)
        assert "the largest on key 0" in plot.alt
    found = float(re.search(r"with respect to a score is ([0-9.e-]+)\.$", plot.alt).group(1))
    expected = max((weights * (1 - weights)).max(), weights[0] * weights[1])
    assert found == pytest.approx(expected, abs=1e-6 if factor == 32 else 0.005)


PLANE = [[1.5, 0.5], [-0.5, 1.5], [-1.0, -1.0]]


def test_the_weights_of_every_place_come_from_the_given_function():
    scales = [0.5, 1, 4]
    plot = plotting.query_plane(PLANE, None, scaled_dot_product_attention, scales=scales, scale=1)
    data = plot.live.data
    digits = [DIGITS.index(letter) for letter in data["weights"]]
    levels = np.array([64 * a + b for a, b in zip(digits[::2], digits[1::2], strict=True)])
    side, keys = data["steps"] + 1, torch.tensor([PLANE])
    found = (levels / data["levels"]).reshape(len(scales), side, side, 3)
    ticks = torch.linspace(-2, 2, side)
    for (i, scale), row, column in zip(enumerate(scales), (0, 10, 32), (5, 20, 32), strict=True):
        query = scale * torch.stack([ticks[column], ticks[row]])
        _, weights = scaled_dot_product_attention(query[None, None], keys, keys)
        np.testing.assert_allclose(found[i, row, column], weights[0, 0], atol=2e-4)
    assert data["scale"] == 1


def test_regions_show_which_key_wins_and_sharpen_as_the_scale_grows():
    data = plotting.query_plane(PLANE, scales=[0, 1, 8]).live.data
    pictures = [
        imread(io.BytesIO(base64.b64decode(source.partition(",")[2]))) for source in data["regions"]
    ]
    opacity = np.stack([picture[::-1, :, 3] for picture in pictures])  # by scale, y and x
    assert (opacity[0] == 0).all()  # no key wins
    assert (np.diff([(each > 0.2).mean() for each in opacity]) > 0.2).all()
    ticks = np.linspace(-2, 2, opacity.shape[1])
    x, y = np.meshgrid(ticks, ticks)
    products = np.sort(np.stack([a * x + b * y for a, b in PLANE]), axis=0)
    winner = np.argmax([a * x + b * y for a, b in PLANE], axis=0)
    clear = products[-1] - products[-2] > 1  # the others get less than 0.001
    places = [clear & (winner == key) for key in range(3)]
    colors = [set(map(tuple, np.round(pictures[2][::-1][place], 2))) for place in places]
    assert all(len(color) == 1 for color in colors) and len(set.union(*colors)) == 3


def test_the_still_plane_shows_how_the_regions_sharpen():
    plot = plotting.query_plane(PLANE, scales=[0, 0.5, 1, 2, 8], scale=1)
    pictures = re.findall(r'<image href="([^"]*)"', plot.svg)
    large, *small = [plot.live.data["regions"].index(source) for source in pictures]
    words = words_of(plot)
    factors = [
        float(word.removeprefix("scores × ")) for word in words if word and "scores ×" in word
    ]
    assert large == 2 and [plot.live.data["scales"][i] for i in small] == factors
    assert len(small) == 4 and factors[0] == 0 and factors[-1] == 8
    shares = [int(share) for share in re.findall(r"(\d+)%", plot.alt)]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] > 70
    assert plot.alt.endswith("if the scores are multiplied by 0, 0.5, 1, 2 and 8.")


# --- lesson 07: progress, source -----------------------------------------------------------


@pytest.mark.parametrize("someone", [True, False])
def test_a_progress_bar_counts_and_is_shown_to_someone_only(capsys, monkeypatch, someone):
    shown = Mock()
    for module in (display, training):
        monkeypatch.setattr(module, "has_front_end", lambda: someone)
    monkeypatch.setattr("IPython.display.display", shown)
    assert list(plotting.progress(25, "training")) == list(range(25))
    bars = [call.args[0] for call in shown.call_args_list]
    assert [bar.value for bar in bars] == [20] * someone
    assert all(re.fullmatch(r"training, about \d+ s left", bar.description) for bar in bars)
    assert someone or capsys.readouterr() == ("", "")


RIGHT = 'class A:\n    """Says 1."""\n\n    def f(self):\n        return 1  # one < two\n'
WRONG = RIGHT.replace("return 1", "return 2")


def text_of(page):
    return re.sub(r"<[^>]*>", "", page).replace("&lt;", "<").replace("&quot;", '"')


def test_a_difference_has_signs_and_marks_the_lines_that_changed(shown):
    plotting.show_source(WRONG, against=RIGHT, title="bird")
    (bundle,) = shown
    old, new = "-         return 1  # one < two", "+         return 2  # one < two"
    assert bundle["text/plain"].splitlines() == [
        "bird", "  class A:", '      """Says 1."""', "", "      def f(self):", old, new,
    ]  # fmt: skip
    for tag, line in (("del", old), ("ins", new)):
        (marked,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", bundle["text/html"], re.S)
        assert text_of(marked).strip() == line


# --- lesson 08: blocks, tiles, what is measured --------------------------------------------

BLOCK_SCORES = np.array([1.0, 0.5, 2.0, 0.0, 3.0, 1.5, 2.5, 0.5])
VALUES = np.arange(1.0, 9.0)


def test_a_row_for_each_block_seen_and_in_the_end_both_ways_agree():
    plots = [plotting.online_softmax(BLOCK_SCORES, VALUES, 3, blocks) for blocks in range(4)]
    before, first, second, last = (plot.alt for plot in plots)
    assert before.startswith("No block of 3 seen")
    assert first.startswith("After 1 block of 3: maximum c = 2, sum t = 1.59")
    assert "before it: times 0.37" in second  # exp(2 - 3)
    at, whole = re.search(r"O / t = (\S+)\. The softmax .* gives (\S+)\.$", last).groups()
    assert at == whole
    assert [[row[0] for row in plot.table.rows] for plot in plots[:3]] == [
        [], ["block 0"], ["block 0", "block 1"],
    ]  # fmt: skip
    assert plots[2].table.rows[1][1] == "3"


@pytest.mark.parametrize("step", range(6))
def test_one_tile_exists_at_a_time_and_fast_memory_holds_what_it_needs(step):
    plot = plotting.tiles(2, 3, step)
    i, j = divmod(step, 3)
    words = words_of(plot)
    assert words.count("now") == 1 and words.count("done") == step
    slow, fast = words.index("slow memory"), words.index("fast memory, on the chip")
    assert {"Q0", "Q1", "K0", "K1", "K2", "O0", "O1"} < set(words) and slow < fast
    read = f"Q{i}, K{j}, V{j}" if j == 0 else f"K{j}, V{j}"  # the queries stay on the chip
    assert f"reads {read}" in words and (f"writes O{i}" in words) == (j == 2)
    after = words[fast:]
    assert {f"Q{i}", f"K{j}", f"V{j}", f"S{i}{j}", f"O{i}"} <= set(after)
    assert f"Tile {step + 1} of 6: fast memory holds Q{i}, K{j}, V{j}" in plot.alt
    assert ("Then the outputs of this block are written" in plot.alt) == (j == 2)
    assert "scores stored now: 1 of 6 tiles" in words
    last = plotting.tiles(2, 3, 6)
    assert "scores stored now: 0 of 6 tiles" in words_of(last)
    assert "now" not in words_of(last) and last.alt.startswith("All 6 tiles are done")


def test_weights_of_another_shape_are_refused_with_what_was_expected():
    with pytest.raises(ValueError, match=r"weights \(1, 1089, 3\); got \(1, 1089, 2\)"):
        plotting.query_plane(PLANE, attention=lambda q, *_: q)
