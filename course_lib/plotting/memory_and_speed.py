"""Figures of lesson 08: a row of scores block by block, and what a machine allows.

And `live`, which measures where a reader waits for it and otherwise returns what was measured
before, so that nothing that depends on time is ever stored.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from course_lib.plotting.axes import clean, colour
from course_lib.plotting.charts import lines
from course_lib.plotting.colours import INK, PLAIN
from course_lib.plotting.display import _has_front_end, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, counted, number


def live(measure: Callable[[], Any], recorded: Any) -> Any:
    """What `measure()` finds on the reader's machine; without a front end, what is `recorded`."""
    return measure() if _has_front_end() else recorded


def growth(
    sizes: Any, series: Mapping[str, Any], *, x_label: str, y_label: str, title: str | None = None
) -> Plot:
    """How costs grow with a size: both axes logarithmic, a tick at each size that was tried."""
    labels = {"x_label": x_label, "y_label": y_label, "title": title}
    plot = lines(sizes, series, **labels, log_x=True, log_y=True)
    assert isinstance(plot.figure, Figure)
    axes = plot.figure.axes[0]
    across = as_array(sizes).astype(float)
    axes.set_xticks(across, [number(size) for size in across])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    return plot


def running_softmax(scores: Any, block_size: int) -> Plot:
    """One row of scores in blocks: each score, the running maximum, and the two sums.

    Below each block stand the sum as it is kept, shifted by the maximum so far, and the sum that
    one would have without ever rescaling it.

    Args:
        scores: `(num_keys,)`, finite.
        block_size: how many scores make a block; the last one may be shorter.
    """
    row = as_array(scores).astype(float)
    figure = new_figure(6.0, 3.0)
    axes = figure.subplots()
    axes.bar(range(len(row)), row, width=0.55, color=colour(0), label="score")
    states = _states(row, block_size)
    for position, (start, stop, largest, total, careless) in enumerate(states):
        if position % 2 == 0:
            axes.axvspan(start - 0.5, stop - 0.5, color=PLAIN, alpha=0.15, linewidth=0, zorder=-2)
        label = "maximum so far" if position == 0 else None
        edges = [start - 0.5, stop - 0.5]
        axes.plot(edges, [largest] * 2, color=colour(1), linewidth=2, linestyle="--", label=label)
        words = f"block {position}\nsum {total:.2f}\nnever rescaled {careless:.2f}"
        axes.annotate(
            words,
            ((start + stop - 1) / 2, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -18),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7.5,
        )
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(ylabel="score", xlim=(-0.5, len(row) - 0.5))
    axes.set_xticks(range(len(row)))
    clean(axes)
    axes.margins(y=0.2)
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    rows = [
        [f"block {i}", *map(number, (largest, total, careless))]
        for i, (_, _, largest, total, careless) in enumerate(states)
    ]
    table = Table(["block", "maximum so far", "sum", "sum never rescaled"], rows)
    return Plot(figure, _states_sentence(row, states), table)


def roofline(peak: float, bandwidth: float, points: Mapping[str, tuple[float, float]]) -> Plot:
    """What a machine could reach over how much it computes for each byte it moves, and what was.

    Args:
        peak: the most operations in a second, in units of 10^9.
        bandwidth: the most bytes in a second, in units of 10^9.
        points: name -> (operations for each byte, 10^9 operations reached in a second).
    """
    if not (0 < peak < np.inf and 0 < bandwidth < np.inf):
        raise ValueError(f"`peak` and `bandwidth` must be > 0; got {peak} and {bandwidth}.")
    ridge = peak / bandwidth
    intensities = [intensity for intensity, _ in points.values()]
    low, high = min([*intensities, ridge]) / 4, max([*intensities, ridge]) * 4
    across = np.geomspace(low, high, 200)
    figure = new_figure(6.0, 3.6)
    axes = figure.subplots()
    axes.plot(across, np.minimum(peak, across * bandwidth), color=INK, linewidth=2)
    axes.axvline(ridge, color=PLAIN, linewidth=0.8, linestyle=":")
    for position, (name, (intensity, reached)) in enumerate(points.items()):
        marker = "os^Dvp*X"[position % 8]
        style = {"color": colour(position), "marker": marker, "markersize": 8, "linestyle": "none"}
        axes.plot([intensity], [reached], label=name, **style)
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="operations for each byte moved", ylabel="10⁹ operations a second")
    bounds = {"fontsize": 8, "color": INK, "va": "bottom"}
    axes.text(low * 1.1, low * bandwidth * 2.8, f"{number(bandwidth)} GB/s", **bounds, rotation=35)
    axes.text(high / 1.1, peak * 1.08, f"{number(peak)} GFLOP/s", **bounds, ha="right")
    axes.margins(y=0.15)
    clean(axes, grid=True)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    rows = [[name, *map(number, point)] for name, point in points.items()]
    table = Table(["", "operations for each byte", "10⁹ operations a second"], rows)
    return Plot(figure, _roof_sentence(peak, bandwidth, ridge, points), table)


def _states(row: np.ndarray, block_size: int) -> list[tuple[int, int, float, float, float]]:
    """Start, end, running maximum, right sum and never rescaled sum after each block."""
    states, careless = [], 0.0
    for start in range(0, len(row), block_size):
        stop = min(start + block_size, len(row))
        largest = float(row[:stop].max())
        careless += float(np.exp(row[start:stop] - largest).sum())
        total = float(np.exp(row[:stop] - largest).sum())
        states.append((start, stop, largest, total, careless))
    return states


def _states_sentence(row: np.ndarray, states) -> str:
    parts = [
        f"block {i} ends with the maximum {number(largest)} and the sum {number(total)}, "
        f"{number(careless)} if never rescaled"
        for i, (_, _, largest, total, careless) in enumerate(states)
    ]
    blocks = counted(len(states), "block", "blocks")
    return f"{counted(len(row), 'score', 'scores')} in {blocks}: " + "; ".join(parts) + "."


def _roof_sentence(peak, bandwidth, ridge, points) -> str:
    parts = []
    for name, (intensity, reached) in points.items():
        roof = min(peak, intensity * bandwidth)
        side = "memory" if intensity < ridge else "arithmetic"
        parts.append(
            f"{name} at {number(intensity)} operations a byte reaches {number(reached)}, "
            f"{reached / roof:.0%} of what {side} allows"
        )
    return (
        f"Roofline: {number(bandwidth)} GB/s of memory and {number(peak)} GFLOP/s of arithmetic "
        f"meet at {number(ridge)} operations a byte; " + "; ".join(parts) + "."
    )
