"""The figure of lesson 04: the features of every pair, one slice for each hidden feature."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from course_lib.plotting.axes import color_bar
from course_lib.plotting.display import PANELS, new_figure
from course_lib.plotting.figures import Plot
from course_lib.plotting.heatmaps import draw_values, map_table
from course_lib.plotting.words import as_array, counted, number


def feature_cube(projected_queries: Any, projected_keys: Any, w_v: Any) -> Plot:
    """Draw tanh(query + key) for every pair of one item, a slice per feature, then the scores.

    Each slice has the projected query in front of its row and the projected key below its
    column, so that a reader can add the two. The last map is the weighted sum of the slices.

    Args:
        projected_queries: `(num_queries, num_hiddens)`, at most 4 hidden features.
        projected_keys: `(num_keys, num_hiddens)`.
        w_v: `(num_hiddens,)`.
    """
    queries, keys, weights = (
        as_array(data).astype(float) for data in (projected_queries, projected_keys, w_v)
    )
    cube = np.tanh(queries[:, None, :] + keys[None, :, :])  # (num_queries, num_keys, num_hiddens)
    panels = len(weights) + 1
    height = 1.7 + (5.2 / panels) * len(queries) / len(keys)
    figure = new_figure(PANELS, height)
    grid = np.atleast_1d(figure.subplots(1, panels))
    for feature, axes in enumerate(grid[:-1]):
        _slice(axes, cube[:, :, feature], (-1.0, 1.0))
        axes.set_title(f"feature {feature}", fontsize=9)
        axes.set_xticks(range(len(keys)), _signed(keys[:, feature]))
        axes.set_yticks(range(len(queries)), _signed(queries[:, feature]))
    grid[0].set_ylabel("projected queries")
    wide = {"orientation": "horizontal", "shrink": 0.4, "pad": 0.06, "aspect": 40}
    label = "value of a feature"
    color_bar(figure, list(grid), (-1.0, 1.0), label, **wide)
    scores = cube @ weights
    bound = float(np.abs(weights).sum()) or 1.0
    _slice(grid[-1], scores, (-bound, bound))
    formula = " ".join(f"{weight:+g}·f{i}" for i, weight in enumerate(weights))
    grid[-1].set_title(f"scores = {formula}", fontsize=9)
    grid[-1].set_xlabel("keys")
    for axes in grid[:-1]:
        axes.set_xlabel("projected keys")
    nothing = np.zeros(scores.shape, dtype=bool)
    table = {f"feature {i}": (cube[:, :, i], nothing) for i in range(len(weights))}
    table["scores"] = (scores, nothing)
    n, m, num_hiddens = cube.shape
    parts = [
        f"Features of {n} queries and {m} keys in {counted(num_hiddens, 'slice', 'slices')}, "
        "tanh of projected query plus projected key"
    ]
    for feature in range(num_hiddens):
        values = cube[:, :, feature]
        query, key = np.unravel_index(int(np.argmax(values)), values.shape)
        parts.append(
            f"feature {feature}, weight {number(weights[feature])}, runs from "
            f"{number(values.min())} to {number(values.max())}, largest at query {query}, key {key}"
        )
    best = [f"query {i} key {int(np.argmax(row))}" for i, row in enumerate(scores)]
    parts.append("scores, the weighted sum of the slices, are largest for " + ", ".join(best))
    return Plot(figure, "; ".join(parts) + ".", map_table(table))


def _slice(axes: Axes, values: np.ndarray, limits: tuple[float, float]) -> None:
    draw_values(axes, values, np.zeros(values.shape, dtype=bool), limits)
    axes.set_xticks(range(values.shape[1]))
    axes.set_yticks(range(values.shape[0]))
    axes.tick_params(labelsize=8)


def _signed(numbers: np.ndarray) -> list[str]:
    return [f"{round(value, 1) + 0.0:+.1f}" for value in numbers]
