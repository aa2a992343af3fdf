"""Bars and lines: a softmax before and after a shift, the leak of a fill value, and the like.

Series differ in hatching, marker and dash as well as in colour.
"""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from course_lib.plotting.display import Plot, new_figure
from course_lib.plotting.words import as_array, number

HATCHES = ("", "///", "...", "xxx")
MARKERS = ("o", "s", "^", "D", "v", "P")
POWERS = (0, -100, -200, -300)
EXACT_ZERO = -360
DASHES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)))


def bars(panels: Mapping[str, Mapping[str, Any]], *, x_label: str = "keys") -> Plot:
    """Panels of grouped bars with their values written above: title -> series -> values."""
    data = {
        title: {name: as_array(values).astype(float) for name, values in series.items()}
        for title, series in panels.items()
    }
    figure = new_figure(6.0, 2.6)
    grid = np.atleast_1d(figure.subplots(1, len(data)))
    for axes, (title, series) in zip(grid, data.items(), strict=True):
        _draw_bars(axes, series)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(x_label)
        if len(series) > 1:
            axes.legend(fontsize=7, frameon=False)
    return Plot(figure, ". ".join(_bars_sentence(*item) for item in data.items()) + ".")


def softmax_shift(scores: Any, shifted: Any, weights: Any, shifted_weights: Any) -> Plot:
    """A row of scores before and after its maximum is subtracted, and the softmax of both."""
    return bars(
        {
            "scores": {"as given": scores, "maximum subtracted": shifted},
            "softmax of the scores": {"as given": weights, "maximum subtracted": shifted_weights},
        }
    )


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    x_label: str,
    y_label: str,
    title: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Plot:
    """One chart of several lines over the same `x`; each has its own marker and dash."""
    across = as_array(x).astype(float)
    data = {name: as_array(values).astype(float) for name, values in series.items()}
    figure = new_figure(5.5, 3.2)
    axes = figure.subplots()
    _draw_lines(axes, across, data)
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    axes.set(xlabel=x_label, ylabel=y_label, title=title or "")
    axes.legend(fontsize=8, frameon=False)
    words = [_line_sentence(name, across, values) for name, values in data.items()]
    return Plot(figure, f"{title or y_label} over {x_label}: " + "; ".join(words) + ".")


def fill_leakage(fills: Any, panels: Mapping[str, Mapping[str, Any]]) -> Plot:
    """The weight that reaches a masked key, over the fill value, per dtype.

    Both axes are logarithmic, and the vertical one has a place of its own for an exact 0.

    Args:
        fills: the fill values, from small to large in size, all negative and finite.
        panels: title -> dtype name -> leaked weight for each fill.
    """
    sizes = -as_array(fills).astype(float)
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError("`fills` must be finite and < 0; got " + ", ".join(map(str, -sizes)))
    data = {t: {n: as_array(v).astype(float) for n, v in s.items()} for t, s in panels.items()}
    figure = new_figure(6.0, 3.0)
    grid = np.atleast_1d(figure.subplots(1, len(data), sharey=True))
    for axes, (title, series) in zip(grid, data.items(), strict=True):
        heights = {name: _log_or_zero(values) for name, values in series.items()}
        _draw_lines(axes, sizes, heights, nested=True)
        axes.set_xscale("log", base=2)
        axes.set_yticks([*POWERS, EXACT_ZERO], [*("1" if not p else f"1e{p}" for p in POWERS), "0"])
        axes.set_title(title, fontsize=9)
        ticks = sizes[:: max(1, len(sizes) // 4)]
        axes.set_xticks(ticks, [f"-{number(tick)}" for tick in ticks])
        axes.set_xlabel("fill value")
    grid[0].set_ylabel("weight of the masked key")
    grid[-1].legend(fontsize=7, frameon=False, loc="center left")
    words = []
    for title, series in data.items():
        parts = [_leak_sentence(name, sizes, values) for name, values in series.items()]
        words.append(f"{title}: " + "; ".join(parts))
    return Plot(figure, "Weight of a masked key over the fill value. " + ". ".join(words) + ".")


def _draw_bars(axes: Axes, series: Mapping[str, np.ndarray]) -> None:
    width = 0.8 / len(series)
    for position, (name, values) in enumerate(series.items()):
        at = np.arange(len(values)) + (position - (len(series) - 1) / 2) * width
        heights = np.where(np.isfinite(values), values, 0.0)
        drawn = axes.bar(
            at,
            heights,
            width,
            label=name,
            color=_colour(position, len(series)),
            hatch=HATCHES[position % 4],
        )
        for patch in drawn:
            patch.set_edgecolor("white")
        axes.bar_label(drawn, [number(value) for value in values], fontsize=6.5, padding=1)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(max(map(len, series.values()))))
    axes.margins(y=0.25)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_lines(
    axes: Axes, across: np.ndarray, series: Mapping[str, np.ndarray], *, nested: bool = False
) -> None:
    """Draw the lines; `nested` ones shrink in turn, so that equal lines stay visible."""
    for position, (name, values) in enumerate(series.items()):
        shrink = position if nested else len(series)
        axes.plot(
            across,
            values,
            label=name,
            color=_colour(position, len(series)),
            marker=MARKERS[position % len(MARKERS)],
            linestyle=DASHES[position % len(DASHES)],
            markersize=max(4.0, 8.5 - 1.5 * shrink),
            linewidth=max(1.4, 4.0 - 0.9 * shrink),
        )
    axes.tick_params(labelsize=8)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _log_or_zero(weights: np.ndarray) -> np.ndarray:
    """The power of ten of each weight; exact zeros go to a line of their own below all of them."""
    powers = np.full(weights.shape, float(EXACT_ZERO))
    np.log10(weights, out=powers, where=weights > 0)
    return powers


def _colour(position: int, total: int) -> Any:
    """Spread over the dark three quarters of viridis, which stand out on white."""
    return matplotlib.colormaps["viridis"](0.75 * position / max(1, total - 1))


def _bars_sentence(title: str, series: Mapping[str, np.ndarray]) -> str:
    parts = [
        f"{name} " + ", ".join(number(value) for value in values) for name, values in series.items()
    ]
    return f"Bars of {title}: " + "; ".join(parts)


def _line_sentence(name: str, across: np.ndarray, values: np.ndarray) -> str:
    finite = np.flatnonzero(np.isfinite(values))
    if not finite.size:
        return f"{name} has no finite value"
    first, last = finite[0], finite[-1]
    low = finite[int(np.argmin(values[finite]))]
    return (
        f"{name} goes from {number(values[first])} at {number(across[first])} "
        f"to {number(values[last])} at {number(across[last])}, "
        f"lowest {number(values[low])} at {number(across[low])}"
    )


def _leak_sentence(name: str, sizes: np.ndarray, values: np.ndarray) -> str:
    start = f"{name} {number(values[0])} at -{number(sizes[0])}"
    leaking = np.flatnonzero(values != 0)
    if not leaking.size:
        return f"{name} exactly 0 everywhere"
    last = leaking[-1]
    end = f"{number(values[last])} at -{number(sizes[last])}"
    after = "" if last + 1 == len(sizes) else f", exactly 0 from -{number(sizes[last + 1])} on"
    return f"{start}, {end}{after}" if last else f"{start}{after}"
