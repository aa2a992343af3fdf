import pytest

from course_lib import plotting
from course_lib.plotting import memory_and_speed


def test_alt_text_says_which_limit_holds_for_each_point():
    plot = plotting.roofline(100, 10, {"copy": (0.5, 4), "product": (40, 90)})
    assert "meet at 10 operations a byte" in plot.alt
    assert "copy at 0.50 operations a byte reaches 4, 80% of what memory allows" in plot.alt
    assert "product at 40 operations a byte reaches 90, 90% of what arithmetic allows." in plot.alt


@pytest.mark.parametrize(("peak", "bandwidth"), [(0, 1), (1, -1), (float("inf"), 1)])
def test_a_roof_must_be_finite_and_positive(peak, bandwidth):
    with pytest.raises(ValueError, match="`peak` and `bandwidth` must be > 0"):
        plotting.roofline(peak, bandwidth, {"x": (1, 1)})


def test_nothing_is_measured_where_nobody_waits(monkeypatch):
    assert plotting.live(lambda: "measured", "recorded") == "recorded"
    monkeypatch.setattr(memory_and_speed, "_has_front_end", lambda: True)
    assert plotting.live(lambda: "measured", "recorded") == "measured"
