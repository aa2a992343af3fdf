"""Figures of lesson 01: kernels, the fits they give, and one query with its weights.

All data lies on a line: `inputs` across, `targets` up.
"""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from course_lib.plotting.charts import DASHES
from course_lib.plotting.display import Plot, new_figure
from course_lib.plotting.words import as_array, counted, number

POINT_COLOUR = "#8a8a8a"
FIT_COLOUR = matplotlib.colormaps["viridis"](0.05)
QUERY_COLOUR = matplotlib.colormaps["viridis"](0.55)


def kernel_shapes(distances: Any, kernels: Mapping[str, Any]) -> Plot:
    """Kernels over the distance in bandwidths, each with its own dash.

    Args:
        distances: distance divided by bandwidth, in ascending order.
        kernels: name -> kernel value at each distance.
    """
    across = as_array(distances).astype(float)
    data = {name: as_array(values).astype(float) for name, values in kernels.items()}
    figure = new_figure(5.0, 2.8)
    axes = figure.subplots()
    for place, (name, values) in enumerate(data.items()):
        colour = matplotlib.colormaps["viridis"](0.75 * place / max(1, len(data) - 1))
        style = DASHES[place % len(DASHES)]
        axes.plot(across, values, label=name, color=colour, linestyle=style, linewidth=2)
    axes.set(xlabel="distance / bandwidth", ylabel="kernel", ylim=(-0.05, 1.08))
    axes.legend(fontsize=8, frameon=False)
    _clean(axes)
    words = [_shape_sentence(name, across, values) for name, values in data.items()]
    return Plot(figure, "Kernels over distance / bandwidth. " + "; ".join(words) + ".")


def kernel_fits(
    inputs: Any,
    targets: Any,
    places: Any,
    fits: Mapping[str, Any],
    *,
    columns: int = 3,
    x_label: str = "hours",
    y_label: str = "reading",
) -> Plot:
    """The data as dots and one fit a panel; where a fit is nan the panel is hatched.

    Args:
        inputs, targets: the data, `(num_points,)`.
        places: where the fits were computed, ascending.
        fits: title -> prediction at each place.
        columns: panels in a row.
        x_label, y_label: what inputs and targets are, with their unit.
    """
    x, y, at = (as_array(part).astype(float) for part in (inputs, targets, places))
    data = {name: as_array(values).astype(float) for name, values in fits.items()}
    columns = min(columns, len(data))
    rows = -(-len(data) // columns)
    figure = new_figure(6.0 if columns > 1 else 5.0, max(2.8, 1.0 + 1.7 * rows))
    grid = list(np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).flat)
    for unused in grid[len(data) :]:
        unused.remove()
    for axes, (name, values) in zip(grid, data.items(), strict=False):
        axes.plot(x, y, "o", color=POINT_COLOUR, markersize=3.5, label="data")
        axes.plot(at, values, color=FIT_COLOUR, linewidth=2, label="prediction")
        for start, end in _gaps(at, values):
            axes.axvspan(start, end, facecolor="#eeeeee", edgecolor="#9b9b9b", hatch="////", lw=0)
        axes.set_title(name, fontsize=9)
        _clean(axes)
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel(x_label)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(y_label)
    words = [f"{name}: {_fit_sentence(at, values)}" for name, values in data.items()]
    points = f"{counted(len(x), 'data point', 'data points')} and their predictions"
    return Plot(figure, f"{points}. " + ". ".join(words) + ".")


def query_weights(keys: Any, values: Any, query: float, weights: Any, output: float) -> Plot:
    """One query among the data, and beneath it the weight of each key.

    Args:
        keys, values, weights: one number for each key.
        query: where the prediction is made.
        output: the prediction.
    """
    x, y, w = (as_array(part).astype(float) for part in (keys, values, weights))
    figure = new_figure(5.5, 4.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.scatter(x, y, s=12 + 700 * w, color=FIT_COLOUR, alpha=0.75, label="values")
    above.plot([query], [output], "D", color=QUERY_COLOUR, markersize=8, label="output")
    below.bar(x, w, width=0.012 * float(np.ptp(x)), color=FIT_COLOUR)
    for axes in (above, below):
        axes.axvline(query, color=QUERY_COLOUR, linestyle="--", linewidth=1.4)
        _clean(axes)
    above.set_ylabel("readings (values)")
    above.legend(fontsize=8, frameon=False)
    below.set(xlabel="hours (keys; dashed: the query)", ylabel="attention weight")
    top = int(np.argmax(w))
    words = (
        f"Query at {number(query)} over {counted(len(x), 'key', 'keys')}: the largest weight, "
        f"{number(w[top])}, is on the key at {number(x[top])}; "
        f"{counted(int((w > 0.01).sum()), 'key has', 'keys have')} a weight above 0.01, "
        f"the smallest weight is {number(w.min())}. The output is {number(output)}."
    )
    return Plot(figure, words)


def _clean(axes: Axes) -> None:
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _gaps(places: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """Stretches without a prediction, half a step longer on both sides."""
    missing = np.flatnonzero(~np.isfinite(values))
    if not missing.size:
        return []
    half = (places[1] - places[0]) / 2
    runs = np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1)
    return [(places[run[0]] - half, places[run[-1]] + half) for run in runs]


def _fit_sentence(places: np.ndarray, values: np.ndarray) -> str:
    finite = np.isfinite(values)
    if not finite.any():
        return "no prediction anywhere"
    parts = [f"from {number(values[finite].min())} to {number(values[finite].max())}"]
    steps = np.abs(np.diff(values))
    if np.isfinite(steps).any():
        jump = int(np.nanargmax(steps))
        between = f"between {number(places[jump])} and {number(places[jump + 1])}"
        parts.append(f"largest step {number(steps[jump])} {between}")
    gaps = _gaps(places, values)
    if gaps:
        missing = counted(int((~finite).sum()), "place", "places")
        parts.append(f"no prediction at {missing} of {len(places)}")
    return ", ".join(parts)


def _shape_sentence(name: str, across: np.ndarray, values: np.ndarray) -> str:
    sides = across[values <= 0]
    reach = f"0 from distance {number(np.abs(sides).min())} on" if sides.size else "never 0"
    one = int(np.argmin(np.abs(across - 0.5)))
    return f"{name}: {number(values[one])} at distance {number(across[one])}, {reach}"
