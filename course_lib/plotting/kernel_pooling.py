"""Figures of lesson 01: fits of the readings, and one query with its weights.

All data has one input: `inputs` go across, and `targets` up.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from course_lib.plotting.axes import clean, grid_of
from course_lib.plotting.charts import lines_table
from course_lib.plotting.colors import OUTPUT, PLAIN, QUERY, VALUE, WEIGHT
from course_lib.plotting.display import CHART, PANELS, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, counted, curve_sentence, number

FIXED_TOP = 0.5


def kernel_fits(
    inputs: Any,
    targets: Any,
    places: Any,
    fits: Mapping[str, Any],
) -> Plot:
    """Plot the data as dots with one fit per panel, hatched where the fit is nan.

    Args:
        inputs, targets: the data, `(num_points,)`.
        places: the positions of the fits, ascending.
        fits: title -> prediction at each position.
    """
    x, y, at = (as_array(part).astype(float) for part in (inputs, targets, places))
    data = {name: as_array(values).astype(float) for name, values in fits.items()}
    columns = min(3, len(data))
    rows = -(-len(data) // columns)
    figure = new_figure(PANELS if columns > 1 else CHART, max(2.6, 1.0 + 1.7 * rows))
    grid = grid_of(figure, len(data), columns, sharex=True, sharey=True)
    for axes, (name, values) in zip(grid, data.items(), strict=False):
        axes.plot(x, y, "o", color=PLAIN, markersize=3.5, label="data")
        axes.plot(at, values, color=OUTPUT, linewidth=2, label="prediction")
        missing = np.flatnonzero(~np.isfinite(values))
        for gap in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
            if gap.size:  # half a step wider on both sides
                ends = at[gap[[0, -1]]] + (at[1] - at[0]) / 2 * np.array([-1, 1])
                axes.axvspan(*ends, facecolor="none", edgecolor=PLAIN, hatch="////", lw=0)
        axes.set_title(name, fontsize=9)
        clean(axes)
        axes.set(xlabel="hours", ylabel="reading (°C)")
        axes.label_outer()
        axes.tick_params(labelleft=True, labelbottom=True)
    words = []
    for name, values in data.items():
        parts = ["no prediction anywhere"]
        if (finite := np.isfinite(values)).any():
            parts = [curve_sentence("", at, values).strip()]
            steps = np.abs(np.diff(values))
            # The largest step of a level curve depends on rounding, and so on the processor.
            if np.nanmax(steps, initial=0.0) > 1e-5 * np.nanmax(np.abs(values)):
                jump = int(np.nanargmax(steps))
                between = f"between {number(at[jump])} and {number(at[jump + 1])}"
                parts.append(f"largest step {number(steps[jump])} {between}")
            if not finite.all():
                missing = counted(int((~finite).sum()), "place", "places")
                parts.append(f"no prediction at {missing} of {len(at)}")
        words.append(f"{name}: {', '.join(parts)}")
    points = f"{counted(len(x), 'data point', 'data points')} and their predictions"
    return Plot(figure, f"{points}. " + ". ".join(words) + ".", lines_table("hours", at, data))


def query_weights(keys: Any, values: Any, query: float, weights: Any, output: float) -> Plot:
    """Draw one query among the data, and below it the weight of each key.

    Args:
        keys, values, weights: one number for each key.
        query: where the prediction is made.
        output: the prediction.
    """
    x, y, w = (as_array(part).astype(float) for part in (keys, values, weights))
    figure = new_figure(CHART, 3.7)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.scatter(x, y, s=12 + 700 * w, color=VALUE, alpha=0.75, label="values")
    above.plot([query], [output], "D", color=OUTPUT, markersize=8, label="output")
    below.bar(x, w, width=0.012 * float(np.ptp(x)), color=WEIGHT)
    for axes in (above, below):
        axes.axvline(query, color=QUERY, linestyle="--", linewidth=1.4)
        clean(axes)
    above.set_ylabel("values: readings (°C)")
    above.legend(fontsize=9, frameon=False)
    below.set(xlabel="keys: hours (dashed: the query)", ylabel="attention weight")
    top = int(np.argmax(w))
    below.set_ylim(0, FIXED_TOP if w[top] <= FIXED_TOP else 1)  # constant during dragging
    words = (
        f"Query at {number(query)} over {counted(len(x), 'key', 'keys')}: the largest weight, "
        f"{number(w[top])}, is on the key at {number(x[top])}; "
        f"{counted(int((w > 0.01).sum()), 'key has', 'keys have')} a weight above 0.01, "
        f"the smallest weight is {number(w.min())}. The output is {number(output)}."
    )
    rows = [[number(part) for part in row] for row in zip(x, y, w, strict=True)]
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    handle = float(below.transData.transform((query, 0))[0] / figure.bbox.width)
    return Plot(figure, words, Table(["key", "value", "weight"], rows), handle)
