"""Draw charts with bars and lines.

Series differ in hatching, marker and dash as well as in color.
"""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from course_lib.plotting.axes import HATCHES, clean, color, style
from course_lib.plotting.colors import INK
from course_lib.plotting.display import CHART, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, curve_sentence, number

MOST_TICKS = 9  # on a logarithmic axis
LINE_POINTS = 13  # between the lines of a name
NAME_LETTERS, TICK_LETTERS = 16, 42  # in a line of a name, and of the words of all ticks


def bars(
    panels: Mapping[str, Mapping[str, Any]],
    *,
    y_label: str,
    x_label: str = "keys",
    ticks: Sequence[str] | None = None,
) -> Plot:
    """Draw panels of grouped bars with their values above, from title -> series -> values."""
    data = {
        title: {name: as_array(values).astype(float) for name, values in series.items()}
        for title, series in panels.items()
    }
    figure = new_figure(CHART, 0.6 + 1.8 * len(data))
    grid = np.atleast_1d(figure.subplots(len(data), 1))
    told, rows = [], []
    for axes, (title, series) in zip(grid, data.items(), strict=True):
        width, parts = 0.8 / len(series), []
        for position, (name, values) in enumerate(series.items()):
            at = np.arange(len(values)) + (position - (len(series) - 1) / 2) * width
            heights = np.where(np.isfinite(values), values, 0.0)
            look = {"color": (color(position), 0.55), "edgecolor": color(position)}
            drawn = axes.bar(at, heights, width, label=name, hatch=HATCHES[position % 4], **look)
            numbers = [number(value) for value in values]
            labels = [number(round(value, 2)) for value in values]
            if len(values) * len(series) > 7:  # little room
                digits = 2 if (top := np.nanmax(values)) <= 1 else int(top < 10)
                labels = [f"{v:.{digits}f}".removeprefix("0" * (digits == 2)) for v in values]
            axes.bar_label(drawn, labels, fontsize=9, padding=1)
            rows.append([", ".join(filter(None, (title, name))), *numbers])
            listed = [f"{n} at {t}" for n, t in zip(numbers, ticks or numbers, strict=True)]
            parts.append(f"{name} {', '.join(listed if ticks else numbers)}".strip())
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xticks(range(max(map(len, series.values()))))
        axes.margins(y=0.25)
        if y_label.startswith("%"):
            axes.set_yticks(range(0, 101, 25))
        clean(axes)
        axes.set_title(title, fontsize=9, pad=24 if len(series) > 1 else None)
        axes.set(xlabel=x_label, ylabel=y_label)
        if ticks:
            room = TICK_LETTERS // len(ticks)
            axes.set_xticks(range(len(ticks)), [fill(tick, room) for tick in ticks])
        if len(series) > 1:
            above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(series)}
            axes.legend(fontsize=9, frameon=False, **above)
        told.append(f"Bars of {', '.join(filter(None, (y_label, title)))}: {'; '.join(parts)}")
    head = ticks or [str(place) for place in range(max(map(len, rows)) - 1)]
    return Plot(figure, ". ".join(told) + ".", Table([x_label, *head], rows))


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    x_label: str,
    y_label: str,
    mark: Mapping[str, Callable[[Any], float]] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    y_limits: tuple[float, float] | None = None,
) -> Plot:
    """Draw several lines over the same `x`, each with its own marker and dash.

    Args:
        x: `(num_points,)`. On a logarithmic axis, each gets a tick if they are few.
        series: name -> values.
        x_label, y_label: the words at the axes.
        mark: name -> `min` or `max`, the point of its line that gets its numbers.
        log_x, log_y: which axes are logarithmic.
        y_limits: the ends of the vertical axis, if they must not depend on the data.
    """
    across = as_array(x).astype(float)
    data = {name: as_array(values).astype(float) for name, values in series.items()}
    figure = new_figure(CHART, 2.9)
    axes = figure.subplots()
    for position, (name, values) in enumerate(data.items()):
        look = {**style(position), "lw": max(1.4, 4.0 - 0.9 * len(data))}
        axes.plot(across, values, label=name, markersize=max(4.0, 8.5 - 1.5 * len(data)), **look)
    clean(axes, grid=True)
    axes.set_xscale("log" if log_x else "linear")
    axes.set_yscale("log" if log_y else "linear")
    axes.set(xlabel=x_label, ylabel=y_label)
    if log_x and len(across) <= MOST_TICKS:
        axes.set_xticks(across)
        axes.xaxis.set_minor_locator(NullLocator())
    if y_limits:
        axes.set_ylim(y_limits)
    plain_ticks(axes)
    for name, extreme in (mark or {}).items():
        peak = data[name].tolist().index(extreme(data[name].tolist()))
        at, y = across[peak], data[name][peak]
        axes.plot([at], [y], "o", color=INK, markersize=11, fillstyle="none", label="_mark")
        is_min = extreme is min
        where = f"at {x_label.split(' (')[0]} {number(at)}"
        said = f"{extreme.__name__} {number(y)}" + "\n "[is_min] + where
        side = {"va": "top", "ha": "right"} if is_min else {"va": "bottom", "ha": "center"}
        place: dict[str, Any] = {"xytext": (0, -10 if is_min else 10), **side}
        axes.annotate(said, (at, y), fontsize=9, textcoords="offset points", **place)
    name_ends(axes)
    words = [curve_sentence(name, across, values, log=log_y) for name, values in data.items()]
    alt = f"{y_label} over {x_label}: " + "; ".join(words) + "."
    return Plot(figure, alt, lines_table(x_label, across, data))


def name_ends(axes: Axes) -> None:
    """Write the name of each line at its right end, without overlaps and beside the axes."""
    drawn = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    ends = []
    for line in drawn:
        points = as_array(line.get_xydata())
        ends += [point for point in points if np.isfinite(point[1])][-1:]
    if len(drawn) < 2 or len(ends) < len(drawn):
        axes.legend(fontsize=9, frameon=False)
        return
    axes.autoscale_view()
    axes.set_ylim(axes.get_ylim())
    names = [
        axes.annotate(fill(str(line.get_label()), NAME_LETTERS), end, xytext=(7, 0), fontsize=9,
                      textcoords="offset points", va="center", color=line.get_color(),
                      annotation_clip=False)
        for line, end in zip(drawn, ends, strict=True)
    ]  # fmt: skip
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # fixes the axes' height, which limits the names
    low, high = (72 / figure.dpi * side for side in (axes.bbox.y0, axes.bbox.y1))
    heights = 72 / figure.dpi * axes.transData.transform(ends)[:, 1]
    order = np.argsort(heights, kind="stable")
    half = LINE_POINTS / 2 * np.array([1 + names[i].get_text().count("\n") for i in order])
    # Least height of each name above the lowest, so that none overlap.
    least = 2 * np.cumsum(half) - half - half[0]
    free = heights[order] - least
    # Names may move up or down as long as they keep the order of the lines. Take the middle.
    up, down = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
    places = ((up + down) / 2).clip(low + half[0], high - half[-1] - least[-1]) + least
    for i, place in zip(order, places, strict=True):
        names[i].xyann = (7, place - heights[i])


def plain_ticks(axes: Axes) -> None:
    """Write 1, 10, 100 on a logarithmic axis, and powers only if numbers would be long."""
    for axis, scale, limits in (
        (axes.xaxis, axes.get_xscale(), axes.get_xlim()),
        (axes.yaxis, axes.get_yscale(), axes.get_ylim()),
    ):
        if scale == "log" and limits[0] >= 1e-3 and limits[1] <= 1e7:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axis.set_minor_formatter(NullFormatter())


def lines_table(x_label: str, across: np.ndarray, series: Mapping[str, np.ndarray]) -> Table:
    """Return a row for each position on the horizontal axis, and a column for each line."""
    rows = [
        [number(x), *(number(values[i]) for values in series.values())]
        for i, x in enumerate(across)
    ]
    return Table([x_label, *series], rows)
