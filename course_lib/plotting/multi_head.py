"""Figures of lesson 06: features dealt out to heads, and the pattern of positions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course_lib.plotting.axes import clean, colour, colour_bar, style
from course_lib.plotting.colours import INK, of_values
from course_lib.plotting.display import new_figure
from course_lib.plotting.figures import Plot
from course_lib.plotting.heatmaps import map_table
from course_lib.plotting.words import as_array, counted, number, ranges

BLOCK_GAP = 0.7


def head_blocks(panels: Mapping[str, tuple[Any, Any]], *, block: str = "head") -> Plot:
    """Tensors side by side, each cell coloured and lettered by the head its number belongs to.

    Args:
        panels: title -> `(numbers, owners)` of one shape: a matrix `(positions, features)`, or
            blocks `(num_heads, positions, head_dim)`, drawn below each other. `owners` holds the
            number of the head in whose block of features a number stood at first.
        block: what such a block is called in its label.
    """
    data = {name: (as_array(n), as_array(o).astype(int)) for name, (n, o) in panels.items()}
    heights = [_height(numbers) for numbers, _ in data.values()]
    widths = [numbers.shape[-1] for numbers, _ in data.values()]
    figure = new_figure(6.0, max(1.9, 0.6 + 0.36 * max(heights)))
    ratios = [width + 1.5 for width in widths]
    grid = np.atleast_1d(figure.subplots(1, len(data), width_ratios=ratios))
    for axes, (name, (numbers, owners)) in zip(grid, data.items(), strict=True):
        _draw_blocks(axes, numbers, owners, block)
        axes.set(xlim=(-1.2, numbers.shape[-1] + 0.1), ylim=(max(heights), -0.1))
        axes.set_title(name, fontsize=8.5)
    words = [_blocks_sentence(name, owners, block) for name, (_, owners) in data.items()]
    return Plot(figure, "Numbers by the head they belong to. " + " ".join(words))


def encoding_map(table: Any) -> Plot:
    """A table of positions: every entry as a colour, and some columns as curves.

    Args:
        table: `(num_positions, embed_dim)` numbers in -1..1.
    """
    values = as_array(table).astype(float)
    embed_dim = values.shape[1]
    figure = new_figure(6.0, 3.0)
    left, right = figure.subplots(1, 2)
    left.imshow(of_values(values, (-1, 1), "signed"), interpolation="none", aspect="auto")
    left.set(xlabel="column", ylabel="position")
    colour_bar(figure, left, (-1.0, 1.0), "signed", "encoding")
    columns = sorted({0, embed_dim // 4 // 2 * 2, embed_dim // 2 // 2 * 2})
    for place, column in enumerate(columns):
        right.plot(values[:, column], label=f"column {column}", markersize=3, **style(place))
    right.set(xlabel="position", ylabel="encoding", ylim=(-1.1, 1.1))
    right.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    clean(left)
    clean(right)
    table = map_table(
        {"": (values, np.zeros(values.shape, dtype=bool))},
        key_labels=[f"column {column}" for column in range(embed_dim)],
        query_labels=[f"position {position}" for position in range(len(values))],
    )
    return Plot(figure, _encoding_sentence(values, columns), table)


def _height(numbers: np.ndarray) -> float:
    blocks = numbers.shape[0] if numbers.ndim == 3 else 1
    return blocks * numbers.shape[-2] + (blocks - 1) * BLOCK_GAP


def _draw_blocks(axes: Axes, numbers: np.ndarray, owners: np.ndarray, block: str) -> None:
    stacked = numbers.ndim == 3
    numbers = numbers if stacked else numbers[None]
    owners = owners if stacked else owners[None]
    for (i, row, column), value in np.ndenumerate(numbers):
        owner = int(owners[i, row, column])
        top = i * (numbers.shape[1] + BLOCK_GAP) + row
        face = (colour(owner), 0.4)
        cell = Rectangle((column + 0.03, top + 0.03), 0.94, 0.94, facecolor=face, edgecolor="none")
        axes.add_patch(cell)
        middle: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
        axes.text(column + 0.5, top + 0.36, f"{value:g}", fontsize=7.5, **middle)
        axes.text(column + 0.5, top + 0.78, f"h{owner}", fontsize=5.5, **middle)
    for i in range(len(numbers) if stacked else 0):
        centre = i * (numbers.shape[1] + BLOCK_GAP) + numbers.shape[1] / 2
        turned: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 7.5}
        axes.text(-0.45, centre, f"{block} {i}", **turned)
    axes.axis("off")


def _blocks_sentence(name: str, owners: np.ndarray, block: str) -> str:
    shape = " x ".join(str(size) for size in owners.shape)
    if owners.ndim == 2:
        inside = [np.flatnonzero((owners == h).all(axis=0)) for h in range(owners.max() + 1)]
        whole = sum(len(columns) for columns in inside) == owners.shape[1]
        parts = [f"columns {ranges(c.tolist())} belong to head {h}" for h, c in enumerate(inside)]
        words = ", ".join(parts) if whole else "every column mixes heads"
        return f"{name} ({shape}): {words}."
    parts = []
    for i, part in enumerate(owners):
        heads = sorted(set(part.ravel().tolist()))
        verb = "holds numbers of head" + ("" if len(heads) == 1 else "s")
        parts.append(f"{block} {i} {verb} {ranges(heads)}")
    return f"{name} ({shape}): {', '.join(parts)}."


def _encoding_sentence(values: np.ndarray, columns: list[int]) -> str:
    num_positions, embed_dim = values.shape
    parts = []
    for column in columns:
        signs = np.sign(values[:, column][np.abs(values[:, column]) > 1e-9])
        turns = int((signs[1:] != signs[:-1]).sum())
        parts.append(f"column {column} changes its sign {counted(turns, 'time', 'times')}")
    last = values[:, embed_dim - 1]
    return (
        f"Encoding of {num_positions} positions in {embed_dim} columns: {', '.join(parts)}; "
        f"the last column goes from {number(last[0])} to {number(last[-1])}."
    )
