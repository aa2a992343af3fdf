"""Maps with a row for each query and a column for each key: weights, masks, gradients.

Masked and non-finite cells are grey and hatched, so that colour is never the only cue.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from course_lib.plotting.display import Plot, new_figure
from course_lib.plotting.words import as_array, mask_sentence, number, values_sentence

NUMBERS_UP_TO = 8
TICKS_UP_TO = 16
BLOCKED_COLOUR = "#e4e4e4"
HATCH_COLOUR = "#9b9b9b"
ALLOWED_LEVEL = 0.85
SMALLEST_CELL = 0.16


def heatmap(
    weights: Any,
    *,
    mask: Any = None,
    title: str | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    quantity: str = "attention weight",
    limits: tuple[float, float] | None = (0.0, 1.0),
) -> Plot:
    """One map of `(num_queries, num_keys)` numbers, written in the cells up to 8 x 8.

    Args:
        weights: tensor, array or nested list.
        mask: True where attending is allowed; the other cells are hatched.
        title: a line above the map.
        query_labels, key_labels: names for the rows and columns; otherwise their numbers.
        quantity: what the numbers are, for the colour bar and the alt text.
        limits: the ends of the colour bar; None takes them from the data.
    """
    values, blocked = _values_and_blocked(weights, mask)
    num_queries, num_keys = values.shape
    width = min(6.0, max(4.0, 1.9 + 0.55 * num_keys))
    height = min(6.0, max(1.9, 1.2 + (width - 1.9) * num_queries / num_keys))
    figure = new_figure(width, height)
    axes = figure.subplots()
    image = _draw_values(axes, values, blocked, limits or _data_limits([values]))
    _label_axes(axes, values.shape, query_labels, key_labels)
    if title:
        axes.set_title(title, fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    bar.set_label(quantity)
    words = values_sentence(values, blocked, quantity)
    return Plot(figure, f"{title}: {words}." if title else f"{words}.")


def heatmap_grid(
    panels: Mapping[str, Any],
    *,
    masks: Mapping[str, Any] | None = None,
    quantity: str = "attention weight",
    limits: tuple[float, float] | None = (0.0, 1.0),
    columns: int = 3,
) -> Plot:
    """Several maps side by side under one colour bar: heads, batch items, before and after.

    Args:
        panels: title -> `(num_queries, num_keys)` numbers.
        masks: title -> mask (True = may attend) for the panels that have one.
        quantity, limits: as in `heatmap`.
        columns: panels in a row of the grid.
    """
    data = {
        name: _values_and_blocked(panel, (masks or {}).get(name)) for name, panel in panels.items()
    }
    ends = limits or _data_limits([values for values, _ in data.values()])
    figure, grid = _panels([values.shape for values, _ in data.values()], columns, extra=0.8)
    image = None
    for axes, (name, (values, blocked)) in zip(grid, data.items(), strict=True):
        image = _draw_values(axes, values, blocked, ends)
        _label_axes(axes, values.shape, None, None)
        axes.set_title(name, fontsize=9)
        _only_outer_label(axes)
    bar = figure.colorbar(image, ax=grid, shrink=0.9)
    bar.set_label(quantity)
    words = [
        f"{name}: {values_sentence(values, blocked, quantity)}"
        for name, (values, blocked) in data.items()
    ]
    return Plot(figure, ". ".join(words) + ".")


def mask_gallery(masks: Mapping[str, Any], *, columns: int = 3) -> Plot:
    """Masks side by side: a tick where the query may attend the key, hatching where not.

    Args:
        masks: title -> bool `(num_queries, num_keys)`, True = may attend.
        columns: masks in a row of the gallery.
    """
    data = {name: as_array(mask) for name, mask in masks.items()}
    for name, mask in data.items():
        if mask.ndim != 2 or mask.dtype != np.bool_:
            raise ValueError(
                f"mask {name!r} must be bool with 2 axes; got {mask.dtype} with {mask.ndim}"
            )
    figure, grid = _panels([mask.shape for mask in data.values()], columns, extra=0.0)
    for axes, (name, mask) in zip(grid, data.items(), strict=True):
        _draw_mask(axes, mask)
        _label_axes(axes, mask.shape, None, None)
        axes.set_title(name, fontsize=9)
        _only_outer_label(axes)
    words = [
        f"{name} ({mask.shape[0]} x {mask.shape[1]}): {mask_sentence(mask)}"
        for name, mask in data.items()
    ]
    return Plot(figure, "Masks, queries in rows and keys in columns. " + ". ".join(words) + ".")


def gradient_map(panels: Mapping[str, Any]) -> Plot:
    """Gradients with respect to the scores, side by side; nan cells are hatched and say so.

    Args:
        panels: title -> `(num_queries, num_keys)` gradient.
    """
    data = {name: as_array(panel).astype(float) for name, panel in panels.items()}
    finite = [np.abs(values[np.isfinite(values)]) for values in data.values()]
    top = max((part.max() for part in finite if part.size), default=0.0) or 1.0
    figure, grid = _panels([values.shape for values in data.values()], len(data), extra=0.8)
    image = None
    for axes, (name, values) in zip(grid, data.items(), strict=True):
        nothing = np.zeros(values.shape, dtype=bool)
        image = _draw_values(axes, np.abs(values), nothing, (0.0, top), written=values)
        _label_axes(axes, values.shape, None, None)
        axes.set_title(name, fontsize=9)
        _only_outer_label(axes)
    bar = figure.colorbar(image, ax=grid, shrink=0.9)
    bar.set_label("size of the gradient")
    words = [f"{name}: {_gradient_sentence(values)}" for name, values in data.items()]
    return Plot(figure, "Gradient of each score. " + ". ".join(words) + ".")


def _gradient_sentence(values: np.ndarray) -> str:
    bad = ~np.isfinite(values)
    parts = []
    if (~bad).any():
        sizes = np.where(bad, -1.0, np.abs(values))
        query, key = np.unravel_index(int(np.argmax(sizes)), values.shape)
        parts.append(f"largest size {number(sizes[query, key])} at query {query}, key {key}")
    if not bad.any():
        return f"all {values.size} entries finite, {parts[0]}"
    rows = [f"query {i} ({int(row.sum())} of {row.size})" for i, row in enumerate(bad) if row.any()]
    return "nan in the row of " + ", ".join(rows) + "".join(f"; {part}" for part in parts)


def _values_and_blocked(weights: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    values = as_array(weights).astype(float)
    if values.ndim != 2:
        raise ValueError(
            f"`weights` must have 2 axes (num_queries, num_keys); got shape {values.shape}"
        )
    if mask is None:
        return values, np.zeros(values.shape, dtype=bool)
    return values, ~np.broadcast_to(as_array(mask).astype(bool), values.shape)


def _data_limits(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    finite = np.concatenate([values[np.isfinite(values)] for values in arrays])
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low, low + 1.0)


def _panels(
    shapes: Sequence[tuple[int, ...]], columns: int, extra: float
) -> tuple[Any, list[Axes]]:
    """A 6 inch wide figure with one set of axes per shape; `extra` inches go to the colour bar."""
    columns = max(1, min(columns, len(shapes)))
    rows = -(-len(shapes) // columns)
    cell_width = (6.0 - extra) / columns - 0.55
    tallest = max(num_queries / num_keys for num_queries, num_keys in shapes)
    height = rows * (min(2.6, cell_width * tallest) + 0.75)
    figure = new_figure(6.0, max(2.05, height))
    grid = list(np.atleast_1d(figure.subplots(rows, columns)).flat)
    for unused in grid[len(shapes) :]:
        unused.remove()
    return figure, grid[: len(shapes)]


def _draw_values(
    axes: Axes,
    values: np.ndarray,
    blocked: np.ndarray,
    limits: tuple[float, float],
    written: np.ndarray | None = None,
) -> AxesImage:
    hatched = blocked | ~np.isfinite(values)
    image = axes.imshow(
        np.ma.masked_array(values, hatched), cmap="cividis", vmin=limits[0], vmax=limits[1]
    )
    _hatch(axes, hatched)
    if max(values.shape) <= NUMBERS_UP_TO:
        _write_numbers(axes, values if written is None else written, hatched, image)
    return image


def _draw_mask(axes: Axes, mask: np.ndarray) -> None:
    level = np.ma.masked_array(np.full(mask.shape, ALLOWED_LEVEL), ~mask)
    axes.imshow(level, cmap="cividis", vmin=0, vmax=1)
    _hatch(axes, ~mask)
    if max(mask.shape) <= TICKS_UP_TO:
        for query, key in np.argwhere(mask):
            axes.text(key, query, "\N{CHECK MARK}", ha="center", va="center", fontsize=9)


def _hatch(axes: Axes, hatched: np.ndarray) -> None:
    axes.set_facecolor(BLOCKED_COLOUR)
    for query, key in np.argwhere(hatched):
        cell = Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, hatch="////", linewidth=0)
        cell.set_edgecolor(HATCH_COLOUR)
        axes.add_patch(cell)
    num_queries, num_keys = hatched.shape
    axes.set_xticks(np.arange(num_keys + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(num_queries + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)


def _write_numbers(axes: Axes, written: np.ndarray, hatched: np.ndarray, image: AxesImage) -> None:
    cmap = matplotlib.colormaps["cividis"]
    room = _cell_inches(image.axes, written.shape)
    if room < SMALLEST_CELL:
        return
    size = 8 if room > 0.33 else 6
    for (query, key), value in np.ndenumerate(written):
        words = f"{value:.2f}" if np.isfinite(value) else str(value)
        if size < 8:  # no room for the leading zero
            words = words.replace("0.", ".")
        style: dict[str, Any] = {"color": "black"}
        if hatched[query, key]:
            style["bbox"] = {"facecolor": BLOCKED_COLOUR, "edgecolor": "none", "pad": 1}
        else:
            red, green, blue, _ = cmap(image.norm(abs(value) if image.norm.vmin == 0 else value))
            style["color"] = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
        axes.text(key, query, words, ha="center", va="center", fontsize=size, **style)


def _only_outer_label(axes: Axes) -> None:
    place = axes.get_subplotspec()
    if place is not None and not place.is_first_col():
        axes.set_ylabel("")


def _cell_inches(axes: Axes, shape: tuple[int, ...]) -> float:
    """About the width of a cell: the axes' share of the figure, less labels and colour bar."""
    place, figure = axes.get_subplotspec(), axes.figure
    columns = 1 if place is None else place.get_gridspec().ncols
    return ((figure.bbox.width / figure.dpi - 0.8) / columns - 0.55) / max(shape)


def _label_axes(
    axes: Axes,
    shape: tuple[int, ...],
    query_labels: Sequence[str] | None,
    key_labels: Sequence[str] | None,
) -> None:
    num_queries, num_keys = shape
    axes.set_xlabel("keys")
    axes.set_ylabel("queries")
    for set_ticks, count, labels in (
        (axes.set_xticks, num_keys, key_labels),
        (axes.set_yticks, num_queries, query_labels),
    ):
        if labels is not None or count <= TICKS_UP_TO:
            set_ticks(
                range(count), list(labels) if labels is not None else [str(i) for i in range(count)]
            )
    axes.tick_params(labelsize=8)
