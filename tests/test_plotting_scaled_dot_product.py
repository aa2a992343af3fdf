"""The picture of saturation says what it shows."""

import re

import numpy as np
import pytest

from course_lib import plotting

SCORES = [1.0, 0.5, 0.0, -1.0]


def largest_derivative(alt):
    return float(re.search(r"with respect to a score is ([0-9.e-]+)\.$", alt).group(1))


def test_alt_text_gives_the_weights():
    alt = plotting.saturation(SCORES, 1.0).alt
    exponentials = np.exp(SCORES)
    for weight in exponentials / exponentials.sum():
        assert f"{weight:.2f}" in alt
    assert "the largest on key 0" in alt


@pytest.mark.parametrize("factor", [0, 0.5, 1, 4])
def test_alt_text_gives_the_largest_derivative(factor):
    weights = np.exp(factor * np.array(SCORES))
    weights /= weights.sum()
    expected = max((weights * (1 - weights)).max(), weights[0] * weights[1])
    found = largest_derivative(plotting.saturation(SCORES, factor).alt)
    assert found == pytest.approx(expected, abs=0.005)


def test_a_large_factor_leaves_no_derivative():
    assert largest_derivative(plotting.saturation(SCORES, 32).alt) < 1e-6


def test_weights_are_drawn_as_bars():
    plot = plotting.saturation(SCORES, 2.0)
    heights = [patch.get_height() for patch in plot.figure.axes[0].patches]
    weights = np.exp(2 * np.array(SCORES))
    assert heights == pytest.approx(list(weights / weights.sum()))
    assert 4 <= plot.figure.get_figwidth() <= 6


def test_large_scores_do_not_overflow():
    assert "weights 1, 0" in plotting.saturation([1000.0, 0.0], 2.0).alt
