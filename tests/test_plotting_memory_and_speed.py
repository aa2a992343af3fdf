import pytest
import torch

from course_lib import plotting
from course_lib.plotting import memory_and_speed


def test_alt_text_says_maximum_and_sums_of_each_block():
    plot = plotting.running_softmax(torch.tensor([1.0, 0.0, 2.0]), block_size=2)
    assert plot.alt.startswith("3 scores in 2 blocks: block 0 ends with the maximum 1")
    assert "the sum 1.37, 1.37 if never rescaled" in plot.alt
    assert "maximum 2 and the sum 1.50, 2.37 if never rescaled." in plot.alt


def test_each_block_has_its_sums_written_below():
    scores = torch.tensor([1.0, 0.0, 2.0, 3.0, 0.5])
    figure = plotting.running_softmax(scores, block_size=2).figure
    written = [text.get_text().split("\n")[0] for text in figure.axes[0].texts]
    assert written == ["block 0", "block 1", "block 2"]


def test_alt_text_says_which_limit_holds_for_each_point():
    plot = plotting.roofline(100, 10, {"copy": (0.5, 4), "product": (40, 90)})
    assert "meet at 10 operations a byte" in plot.alt
    assert "copy at 0.50 operations a byte reaches 4, 80% of what memory allows" in plot.alt
    assert "product at 40 operations a byte reaches 90, 90% of what arithmetic allows." in plot.alt


@pytest.mark.parametrize(("peak", "bandwidth"), [(0, 1), (1, -1), (float("inf"), 1)])
def test_a_roof_must_be_finite_and_positive(peak, bandwidth):
    with pytest.raises(ValueError, match="`peak` and `bandwidth` must be > 0"):
        plotting.roofline(peak, bandwidth, {"x": (1, 1)})


def test_growth_has_a_tick_at_each_size():
    sizes = [128, 256, 512]
    plot = plotting.growth(sizes, {"plain": [1, 4, 16]}, x_label="n", y_label="MiB")
    assert [tick.get_text() for tick in plot.figure.axes[0].get_xticklabels()] == [
        "128",
        "256",
        "512",
    ]
    assert plot.alt == "MiB over n: plain starts at 1 at 128, rises to 16 at 512."


def test_nothing_is_measured_where_nobody_waits(monkeypatch):
    assert plotting.live(lambda: "measured", "recorded") == "recorded"
    monkeypatch.setattr(memory_and_speed, "_has_front_end", lambda: True)
    assert plotting.live(lambda: "measured", "recorded") == "measured"
