"""Parts that the matplotlib figures share: clean axes, cells, color bars, styles of series."""

import re
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.plotting.colors import FAINT, INK, PLAIN, SERIES, of_values

HATCHES = ("", "///", "...", "xxx")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)))
NUMBERS_UP_TO = 8
MOST_CELLS = 1200  # a larger map is an image with a pixel for each cell
SMALLEST_CELL = 0.18  # inches, to write a number in it
BAR_STEPS = 12


def color(position: int) -> str:
    """Return the color of the series at a position."""
    return SERIES[position % len(SERIES)]


def style(position: int) -> dict[str, Any]:
    """Return the color, marker and dash of a series, which is recognizable without its color."""
    return {
        "color": color(position),
        "marker": MARKERS[position % len(MARKERS)],
        "linestyle": DASHES[position % len(DASHES)],
    }


def clean(axes: Axes, *, grid: bool = False) -> None:
    """Shrink labels, hide the frame at the top and right, and optionally add a grid."""
    axes.tick_params(labelsize=9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(9)
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(color=FAINT, linewidth=0.6)


def draw_cells(axes: Axes, colors: np.ndarray, hatched: np.ndarray | None = None) -> None:
    """Draw a map of cells, row 0 at the top, with some cells gray and hatched.

    Args:
        axes: where to draw. The center of cell (i, j) is at x = j, y = i.
        colors: `(rows, columns, 4)`, red, green, blue and opacity.
        hatched: bool `(rows, columns)`.
    """
    rows, columns = colors.shape[:2]
    if rows * columns > MOST_CELLS:
        axes.imshow(colors, interpolation="none")
    else:
        corners = [(j - 0.5, i - 0.5) for i in range(rows) for j in range(columns)]
        cells = PatchCollection([Rectangle(corner, 1, 1) for corner in corners])
        cells.set(facecolor=colors.reshape(-1, 4), edgecolor=FAINT, linewidth=0.6)
        axes.add_collection(cells)
    for i, j in np.argwhere(hatched) if hatched is not None else ():
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="////", linewidth=0)
        cell.set_edgecolor(PLAIN)
        axes.add_patch(cell)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal")
    axes.spines[:].set_visible(False)


def write_cells(axes: Axes, words: np.ndarray, hatched: np.ndarray | None = None) -> None:
    """Write a word into each cell that has room for it."""
    place, figure = axes.get_subplotspec(), axes.figure
    columns = 1 if place is None else place.get_gridspec().ncols
    # The width of a cell, from the axes' share of the figure without labels and color bar.
    room = ((figure.bbox.width / figure.dpi - 0.8) / columns - 0.55) / max(words.shape)
    if max(words.shape) > NUMBERS_UP_TO or room < SMALLEST_CELL:
        return
    wide = room > 0.33
    size = 9 if wide else 7.3
    for (i, j), word in np.ndenumerate(words):
        short = word if wide else re.sub(r"^(-?)0\.", r"\1.", word)  # no room for the leading zero
        short = re.sub(r"\.?0+$", "", short) if len(short) > 4 and not wide else short
        weight = "bold" if hatched is not None and hatched[i, j] else "normal"
        axes.text(j, i, short, ha="center", va="center", fontsize=size, weight=weight, color=INK)


def color_bar(
    figure: Figure, axes: Any, limits: tuple[float, float], label: str, **options: Any
) -> None:
    """Draw the color scale of a map as a short row of steps beside `axes`."""
    low, high = limits
    middles = low + (np.arange(BAR_STEPS) + 0.5) * (high - low) / BAR_STEPS
    steps = ListedColormap(of_values(middles, limits).tolist())
    bar = figure.colorbar(
        ScalarMappable(Normalize(low, high), steps), ax=axes, **{"shrink": 0.9, **options}
    )
    bar.set_label(label, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9)


def grid_of(figure: Figure, count: int, columns: int, **options: Any) -> list[Axes]:
    """Return `count` axes in rows of `columns`."""
    rows = -(-count // columns)
    every = list(np.atleast_1d(figure.subplots(rows, columns, **options)).flat)
    for unused in every[count:]:
        unused.remove()
    return every[:count]
