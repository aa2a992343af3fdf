"""Draw maps of weights, masks or gradients, with a row per query and a column per key.

Masked and non-finite cells are hatched, so that color is never the only cue. Numbers of one sign
range from no color to full color. Signed numbers have a color for each sign.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from course_lib.plotting.axes import clean, color_bar, draw_cells, grid_of, write_cells
from course_lib.plotting.colors import VALUE, of_values
from course_lib.plotting.display import CHART, PANELS, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, mask_sentence, number, values_sentence

TICKS_UP_TO = 16


def heatmap(weights: Any, *, mask: Any = None, title: str = "", **options: Any) -> Plot:
    """Draw one map of `(num_queries, num_keys)` numbers with the `options` of `heatmap_grid`."""
    masks = {} if mask is None else {title: mask}
    return heatmap_grid({title: weights}, masks=masks, columns=1, **options)


def heatmap_grid(
    panels: Mapping[str, Any],
    *,
    masks: Mapping[str, Any] | None = None,
    quantity: str = "attention weight",
    limits: tuple[float, float] | None = (0.0, 1.0),
    columns: int = 3,
) -> Plot:
    """Draw maps under one color bar, with their numbers in the cells up to 8 x 8.

    Args:
        panels: title -> `(num_queries, num_keys)` numbers.
        masks: title -> mask, True where attending is allowed. Other cells are hatched.
        quantity: what the numbers are, for the color bar and the alt text.
        limits: the ends of the color bar, by default from the data.
        columns: panels in a row of the grid.
    """
    data = {}
    for name, panel in panels.items():
        values = as_array(panel).astype(float)
        if values.ndim != 2:
            raise ValueError(
                f"`weights` must have 2 axes (num_queries, num_keys); got shape {values.shape}"
            )
        mask = as_array((masks or {}).get(name, True)).astype(bool)
        data[name] = values, ~np.broadcast_to(mask, values.shape)
    if limits is None:
        finite = np.concatenate([values[np.isfinite(values)] for values, _ in data.values()])
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
        limits = float(low), float(high if low < high else low + 1.0)
    figure, grid = _panels_for([values.shape for values, _ in data.values()], columns, extra=0.8)
    told = []
    for axes, (name, (values, blocked)) in zip(grid, data.items(), strict=True):
        draw_values(axes, values, blocked, limits)
        _label_axes(axes, values.shape, name)
        words = values_sentence(values, blocked, quantity)
        told.append(f"{name}: {words}" if name else words)
    color_bar(figure, grid, limits, quantity)
    return Plot(figure, ". ".join(told) + ".", map_table(data))


def mask_gallery(masks: Mapping[str, Any], *, first: Mapping[str, int] | None = None) -> Plot:
    """Draw masks side by side, with ticks where queries may attend to keys and hatching elsewhere.

    Args:
        masks: title -> bool `(num_queries, num_keys)`, True = may attend.
        first: title -> the position of the first query, if it is not 0.
    """
    first = first or {}
    data = {name: as_array(mask) for name, mask in masks.items()}
    figure, grid = _panels_for([mask.shape for mask in data.values()], 3, extra=0.0)
    allowed = np.array(to_rgba(VALUE, 0.4))
    for axes, (name, mask) in zip(grid, data.items(), strict=True):
        draw_cells(axes, mask[..., None] * allowed, ~mask)
        if max(mask.shape) <= TICKS_UP_TO:
            for query, key in np.argwhere(mask):
                axes.text(key, query, "\N{CHECK MARK}", ha="center", va="center", fontsize=9)
        _label_axes(axes, mask.shape, name, first.get(name, 0))
    words = [
        f"{name} ({mask.shape[0]} x {mask.shape[1]}): {mask_sentence(mask, first.get(name, 0))}"
        for name, mask in data.items()
    ]
    return Plot(figure, "Masks, queries in rows and keys in columns. " + ". ".join(words) + ".")


def _panels_for(
    shapes: Sequence[tuple[int, ...]], columns: int, extra: float
) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes for each shape, and `extra` inches for a color bar.

    The cells of all panels are about equally large.
    """
    columns = min(columns, len(shapes))
    rows = -(-len(shapes) // columns)
    width = PANELS if columns > 1 else CHART
    cell_width = (width - extra) / columns - 0.55
    tallest = max(num_queries / num_keys for num_queries, num_keys in shapes)
    height = rows * (min(2.6, cell_width * tallest) + 0.9)
    figure = new_figure(width, max(2.05, height))
    wide = [max(keys for _, keys in shapes[i::columns]) for i in range(columns)]
    lines = range(0, len(shapes), columns)
    high = [max(queries for queries, _ in shapes[i : i + columns]) for i in lines]
    return figure, grid_of(figure, len(shapes), columns, width_ratios=wide, height_ratios=high)


def draw_values(
    axes: Axes, values: np.ndarray, blocked: np.ndarray, limits: tuple[float, float]
) -> None:
    """Draw a map with its numbers, hatched where masked or not finite."""
    hatched = blocked | ~np.isfinite(values)
    colors = of_values(np.where(hatched, np.nan, values), limits)
    draw_cells(axes, colors, hatched)
    written = [f"{value:.2f}" if np.isfinite(value) else str(value) for value in values.flat]
    words = np.where(blocked & (values == 0), "", np.array(written).reshape(values.shape))
    write_cells(axes, words, hatched)


def _label_axes(axes: Axes, shape: tuple[int, ...], title: str, first: int = 0) -> None:
    """Label the axes of a map, with a few tick numbers."""
    clean(axes)
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="keys", ylabel="queries")
    for set_ticks, count, at in (
        (axes.set_xticks, shape[1], 0),
        (axes.set_yticks, shape[0], first),
    ):
        if count <= TICKS_UP_TO:
            set_ticks(range(count), [str(at + i) for i in range(count)])


def map_table(panels: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Table:
    """Return the numbers of maps with a row for each query, and `masked` for masked cells."""
    num_keys = max(values.shape[1] for values, _ in panels.values())
    rows = []
    for name, (values, blocked) in panels.items():
        for i, row in enumerate(values):
            cells = ["masked" if b else number(v) for v, b in zip(row, blocked[i], strict=True)]
            cells += [""] * (num_keys - len(cells))
            rows.append([f"{name}, query {i}" if name else f"query {i}", *cells])
    return Table(["query", *(f"key {key}" for key in range(num_keys))], rows)
