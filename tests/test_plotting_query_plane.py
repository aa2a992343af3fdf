"""A query to drag: its words, its numbers, and the function that computes the weights."""

import numpy as np
import pytest
import torch

from course_lib import plotting
from course_lib.attention import scaled_dot_product_attention
from course_lib.plotting.attention import DIGITS

KEYS = [[1.5, 0.5], [-0.5, 1.5], [-1.0, -1.0]]


def weights_of(plot):
    """Return the weights by scale, row, column and key."""
    data = plot.live.data
    digits = [DIGITS.index(letter) for letter in data["weights"]]
    levels = np.array([64 * a + b for a, b in zip(digits[::2], digits[1::2], strict=True)])
    side = data["steps"] + 1
    return (levels / data["levels"]).reshape(len(data["scales"]), side, side, len(data["keys"]))


def test_the_words_say_which_key_gets_the_weight_and_where_the_average_is():
    plot = plotting.query_plane(KEYS, names=["drei", "und", "vierzig"], query=(1.5, 0.5))
    scores = np.array(KEYS) @ [1.5, 0.5]
    weights = np.exp(scores) / np.exp(scores).sum()
    x, y = weights @ np.array(KEYS)
    assert f"drei gets the weight {weights[0]:.2f}" in plot.alt
    assert plot.alt.endswith(f"The weighted average of the values is ({x:.2f}, {y:.2f}).")
    assert [row[0] for row in plot.table.rows] == ["drei", "und", "vierzig"]


def test_the_weights_of_every_place_come_from_the_given_function():
    scales = [0.5, 1, 4]
    plot = plotting.query_plane(KEYS, None, scaled_dot_product_attention, scales=scales, scale=1)
    found = weights_of(plot)
    ticks = torch.linspace(-2, 2, plot.live.data["steps"] + 1)
    keys = torch.tensor([KEYS])
    for (i, scale), row, column in zip(enumerate(scales), (0, 10, 32), (5, 20, 32), strict=True):
        query = scale * torch.stack([ticks[column], ticks[row]])
        _, weights = scaled_dot_product_attention(query[None, None], keys, keys)
        np.testing.assert_allclose(found[i, row, column], weights[0, 0], atol=2e-4)
    assert plot.live.data["scale"] == 1


def test_a_function_with_a_mistake_shows_its_own_weights():
    def uniform(queries, keys, _values):
        return torch.full((1, queries.shape[1], keys.shape[1]), 0.25)

    assert "gets the weight 0.25" in plotting.query_plane(KEYS, None, uniform).alt


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        ([1, 2], {}, r"`keys` must be \(num_keys, 2\) .* got shape \(2,\)"),
        ([[3, 0]], {}, "between -2 and 2"),
        (KEYS, {"values": [[0, 0]]}, "a row for each key, at most 6; got 3 keys and 1 values"),
        ([[0, 1]] * 7, {}, "at most 6; got 7 keys"),
        (
            KEYS,
            {"attention": lambda queries, *_: queries},
            r"`attention` must return weights \(1, 1089, 3\); got \(1, 1089, 2\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(keys, options, message):
    with pytest.raises(ValueError, match=message):
        plotting.query_plane(keys, **options)
