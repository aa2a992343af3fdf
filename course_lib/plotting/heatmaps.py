"""Maps with a row for each query and a column for each key: weights, masks, gradients.

Masked and non-finite cells are hatched, so that colour is never the only cue. Numbers of one sign
go from no colour to full colour, signed ones from 0 to a colour for each sign.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from course_lib.plotting.axes import clean, colour_bar, draw_cells, grid_of, write_cells
from course_lib.plotting.colours import VALUE, of_values
from course_lib.plotting.display import new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, mask_sentence, number, values_sentence

TICKS_UP_TO = 16
WIDTH = 6.0


def heatmap(
    weights: Any,
    *,
    mask: Any = None,
    title: str | None = None,
    quantity: str = "attention weight",
    limits: tuple[float, float] | None = (0.0, 1.0),
) -> Plot:
    """Draw one map of `(num_queries, num_keys)` numbers, written in the cells up to 8 x 8.

    Args:
        weights: tensor, array or nested list.
        mask: True where attending is allowed; the other cells are hatched.
        title: a line above the map.
        quantity: what the numbers are, for the colour bar and the alt text.
        limits: the ends of the colour bar; None takes them from the data.
    """
    values, blocked = _values_and_blocked(weights, mask)
    num_queries, num_keys = values.shape
    width = min(6.0, max(4.0, 1.9 + 0.55 * num_keys))
    height = min(6.0, max(1.9, 1.2 + (width - 1.9) * num_queries / num_keys))
    figure = new_figure(width, height)
    axes = figure.subplots()
    ends = limits or data_limits([values])
    draw_values(axes, values, blocked, ends)
    label_axes(axes, values.shape)
    if title:
        axes.set_title(title, fontsize=10)
    colour_bar(figure, axes, ends, map_of(ends), quantity)
    words = values_sentence(values, blocked, quantity)
    table = map_table({"": (values, blocked)})
    return Plot(figure, f"{title}: {words}." if title else f"{words}.", table)


def heatmap_grid(
    panels: Mapping[str, Any],
    *,
    masks: Mapping[str, Any] | None = None,
    quantity: str = "attention weight",
    limits: tuple[float, float] | None = (0.0, 1.0),
    columns: int = 3,
) -> Plot:
    """Draw several maps side by side under one colour bar: heads, batch items, before and after.

    Args:
        panels: title -> `(num_queries, num_keys)` numbers.
        masks: title -> mask (True = may attend) for the panels that have one.
        quantity, limits: as in `heatmap`.
        columns: panels in a row of the grid.
    """
    data = {
        name: _values_and_blocked(panel, (masks or {}).get(name)) for name, panel in panels.items()
    }
    ends = limits or data_limits([values for values, _ in data.values()])
    figure, grid = panels_for([values.shape for values, _ in data.values()], columns, extra=0.8)
    for axes, (name, (values, blocked)) in zip(grid, data.items(), strict=True):
        draw_values(axes, values, blocked, ends)
        panel_labels(axes, values.shape, name)
    colour_bar(figure, grid, ends, map_of(ends), quantity)
    words = [
        f"{name}: {values_sentence(values, blocked, quantity)}"
        for name, (values, blocked) in data.items()
    ]
    return Plot(figure, ". ".join(words) + ".", map_table(data))


def mask_gallery(masks: Mapping[str, Any]) -> Plot:
    """Draw masks side by side: a tick where the query may attend the key, hatching where not.

    Args:
        masks: title -> bool `(num_queries, num_keys)`, True = may attend.
    """
    data = {name: as_array(mask) for name, mask in masks.items()}
    for name, mask in data.items():
        if mask.ndim != 2 or mask.dtype != np.bool_:
            raise ValueError(
                f"mask {name!r} must be bool with 2 axes; got {mask.dtype} with {mask.ndim}"
            )
    figure, grid = panels_for([mask.shape for mask in data.values()], 3, extra=0.0)
    allowed = np.array(to_rgba(VALUE, 0.4))
    for axes, (name, mask) in zip(grid, data.items(), strict=True):
        draw_cells(axes, mask[..., None] * allowed, ~mask)
        if max(mask.shape) <= TICKS_UP_TO:
            for query, key in np.argwhere(mask):
                axes.text(key, query, "\N{CHECK MARK}", ha="center", va="center", fontsize=9)
        panel_labels(axes, mask.shape, name)
    words = [
        f"{name} ({mask.shape[0]} x {mask.shape[1]}): {mask_sentence(mask)}"
        for name, mask in data.items()
    ]
    return Plot(figure, "Masks, queries in rows and keys in columns. " + ". ".join(words) + ".")


def _values_and_blocked(weights: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    values = as_array(weights).astype(float)
    if values.ndim != 2:
        raise ValueError(
            f"`weights` must have 2 axes (num_queries, num_keys); got shape {values.shape}"
        )
    if mask is None:
        return values, np.zeros(values.shape, dtype=bool)
    return values, ~np.broadcast_to(as_array(mask).astype(bool), values.shape)


def data_limits(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest finite number of all arrays, made distinct."""
    finite = np.concatenate([values[np.isfinite(values)] for values in arrays])
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low, low + 1.0)


def map_of(limits: tuple[float, float]) -> str:
    """Return the color map for numbers between `limits`: signed if some can be negative."""
    return "signed" if limits[0] < 0 else "weights"


def panels_for(
    shapes: Sequence[tuple[int, ...]], columns: int, extra: float
) -> tuple[Figure, list[Axes]]:
    """Return a figure 6 inches wide with axes for each shape and `extra` inches for a color bar."""
    columns = max(1, min(columns, len(shapes)))
    rows = -(-len(shapes) // columns)
    cell_width = (WIDTH - extra) / columns - 0.55
    tallest = max(num_queries / num_keys for num_queries, num_keys in shapes)
    height = rows * (min(2.6, cell_width * tallest) + 0.75)
    figure = new_figure(WIDTH, max(2.05, height))
    return figure, grid_of(figure, len(shapes), columns)


def draw_values(
    axes: Axes, values: np.ndarray, blocked: np.ndarray, limits: tuple[float, float]
) -> None:
    """Draw a map with its numbers written in, hatched where blocked or not finite.

    A blocked cell stays empty unless something other than 0 is in it.
    """
    hatched = blocked | ~np.isfinite(values)
    colours = of_values(np.where(hatched, np.nan, values), limits, map_of(limits))
    draw_cells(axes, colours, hatched)
    written = [f"{value:.2f}" if np.isfinite(value) else str(value) for value in values.flat]
    words = np.where(blocked & (values == 0), "", np.array(written).reshape(values.shape))
    write_cells(axes, words, hatched)


def label_axes(axes: Axes, shape: tuple[int, ...]) -> None:
    """Label the horizontal axis with key numbers and the vertical axis with query numbers."""
    clean(axes)
    axes.set(xlabel="keys", ylabel="queries")
    for set_ticks, count in ((axes.set_xticks, shape[1]), (axes.set_yticks, shape[0])):
        if count <= TICKS_UP_TO:
            set_ticks(range(count), list(map(str, range(count))))


def panel_labels(axes: Axes, shape: tuple[int, ...], title: str) -> None:
    """Label one map among several; only maps on the left name their queries."""
    label_axes(axes, shape)
    axes.set_title(title, fontsize=9)
    place = axes.get_subplotspec()
    if place is not None and not place.is_first_col():
        axes.set_ylabel("")


def map_table(
    panels: Mapping[str, tuple[np.ndarray, np.ndarray]],
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Table:
    """Return the numbers of maps, a row for each query; `masked` where a cell is blocked."""
    num_keys = max(values.shape[1] for values, _ in panels.values())
    keys = list(key_labels or (f"key {key}" for key in range(num_keys)))
    rows = []
    for name, (values, blocked) in panels.items():
        for i, row in enumerate(values):
            query = query_labels[i] if query_labels else f"query {i}"
            cells = ["masked" if b else number(v) for v, b in zip(row, blocked[i], strict=True)]
            cells += [""] * (num_keys - len(cells))
            rows.append([f"{name}, {query}" if name else query, *cells])
    return Table(["query", *keys], rows)
