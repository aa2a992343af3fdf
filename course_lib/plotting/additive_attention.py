"""The figure of lesson 04: the features of every pair, one slice for each hidden feature."""

from typing import Any

import numpy as np

from course_lib.plotting.axes import clean, color_bar
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
    scores = cube @ weights
    formula = " ".join(f"{weight:+g}·f{i}" for i, weight in enumerate(weights))
    panels = {f"feature {i}": cube[:, :, i] for i in range(len(weights))}
    panels[f"scores = {formula}"] = scores
    bound = float(np.abs(weights).sum()) or 1.0
    figure = new_figure(PANELS, 1.4 + (4.6 / len(panels)) * len(queries) / len(keys))
    grid = np.atleast_1d(figure.subplots(1, len(panels)))
    nothing = np.zeros(scores.shape, dtype=bool)
    for i, (axes, (name, values)) in enumerate(zip(grid, panels.items(), strict=True)):
        is_last = i == len(weights)
        draw_values(axes, values, nothing, (-bound, bound) if is_last else (-1.0, 1.0))
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("keys" if is_last else "projected keys")
        axes.set_xticks(range(len(keys)), None if is_last else _signed(keys[:, i]))
        axes.set_yticks(range(len(queries)), None if is_last else _signed(queries[:, i]))
        clean(axes)
    grid[0].set_ylabel("projected queries", fontsize=9)
    wide = {"orientation": "horizontal", "shrink": 0.4, "pad": 0.06, "aspect": 40}
    color_bar(figure, list(grid), (-1.0, 1.0), f"feature (score: times {bound:g})", **wide)
    table = map_table({name: (values, nothing) for name, values in panels.items()})
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
    return Plot(figure, "; ".join(parts) + ".", table)


def _signed(numbers: np.ndarray) -> list[str]:
    return [f"{round(value, 1) + 0.0:+g}" for value in numbers]
