"""Lesson 04's figure: the slices hold the numbers, and the words are true."""

import numpy as np
import pytest

from course_lib import plotting

QUERIES = np.array([[-1.5, 0.5], [0.25, -2.0], [1.0, 1.0]])  # (num_queries, num_hiddens)
KEYS = np.array([[1.0, -1.0], [-0.5, 0.75], [0.0, 2.0], [-2.0, 0.1]])
W_V = np.array([2.0, -1.5])


def written(axes, shape):
    return np.array([float(text.get_text()) for text in axes.texts]).reshape(shape)


@pytest.fixture
def plot():
    return plotting.feature_cube(QUERIES, KEYS, W_V)


def panels(plot):
    return [axes for axes in plot.figure.axes if axes.get_title()]


def test_each_slice_holds_tanh_of_the_sums(plot):
    for feature, axes in enumerate(panels(plot)[:2]):
        wanted = np.tanh(QUERIES[:, None, feature] + KEYS[None, :, feature])
        np.testing.assert_allclose(written(axes, wanted.shape), wanted, atol=0.00501)


def test_the_last_map_is_the_weighted_sum(plot):
    wanted = np.tanh(QUERIES[:, None] + KEYS[None]) @ W_V
    np.testing.assert_allclose(written(panels(plot)[-1], wanted.shape), wanted, atol=0.00501)
    assert panels(plot)[-1].get_title() == "scores = +2·f0 -1.5·f1"
    rows = [row for row in plot.table.rows if row[0].startswith("scores")]
    assert [float(cell) for cell in rows[1][1:]] == pytest.approx(wanted[1], abs=0.00501)


def test_ticks_are_the_projections_to_add(plot):
    first = panels(plot)[0]
    assert [t.get_text() for t in first.get_yticklabels()] == ["-1.5", "+0.2", "+1.0"]
    assert [t.get_text() for t in first.get_xticklabels()] == ["+1.0", "-0.5", "+0.0", "-2.0"]
    assert (first.get_xlabel(), first.get_ylabel()) == ("projected keys", "projected queries")


def test_alt_text_names_the_best_key_of_each_query_and_the_range_of_each_feature(plot):
    cube = np.tanh(QUERIES[:, None] + KEYS[None])
    for query, key in enumerate((cube @ W_V).argmax(axis=1)):
        assert f"query {query} key {key}" in plot.alt
    for feature, weight in ((0, "2"), (1, "-1.50")):
        low, high = cube[..., feature].min(), cube[..., feature].max()
        assert f"feature {feature}, weight {weight}, runs from {low:.2f} to {high:.2f}" in plot.alt
    assert plot.alt.startswith("Features of 3 queries and 4 keys in 2 slices")
    assert plot.alt.endswith(".")


def test_it_refuses_more_slices_than_fit_and_sizes_that_disagree():
    with pytest.raises(ValueError, match=r"1\.\.4 hidden features"):
        plotting.feature_cube(np.zeros((2, 5)), np.zeros((3, 5)), np.zeros(5))
    with pytest.raises(ValueError, match=r"\(2,\), \(2, 3\) and \(3, 2\)"):
        plotting.feature_cube(np.zeros((2, 3)), np.zeros((3, 2)), np.zeros(2))
