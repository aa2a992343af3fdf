"""Figures of lesson 03 that show where each number of a matrix came from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from course_lib.plotting.axes import color
from course_lib.plotting.colors import INK
from course_lib.plotting.display import CHART, PANELS, new_figure
from course_lib.plotting.figures import Plot
from course_lib.plotting.words import as_array, ranges

BLOCK_GAP = 0.7


def cell_origins(panels: Mapping[str, tuple[Any, Any]], *, owner: str = "key") -> Plot:
    """Draw tensors side by side, with each cell colored and lettered by the owner of its number.

    Args:
        panels: title -> `(numbers, owners)` of one shape: a matrix, or blocks
            `(num_blocks, rows, columns)`, drawn below each other. `owners` holds the index of the
            original owner of each number, such as its key.
        owner: the noun for an owner and for a block.
    """
    data = {name: (as_array(n), as_array(o).astype(int)) for name, (n, o) in panels.items()}
    blocks = [len(n) if n.ndim == 3 else 1 for n, _ in data.values()]
    rows = [n.shape[-2] for n, _ in data.values()]
    heights = [b * row + (b - 1) * BLOCK_GAP for b, row in zip(blocks, rows, strict=True)]
    figure = new_figure(PANELS if len(data) > 1 else CHART, max(1.9, 0.6 + 0.36 * max(heights)))
    ratios = [numbers.shape[-1] + 1.5 for numbers, _ in data.values()]
    grid = np.atleast_1d(figure.subplots(1, len(data), width_ratios=ratios))
    for axes, (name, (numbers, owners)) in zip(grid, data.items(), strict=True):
        high, stacked = numbers.shape[-2], numbers.ndim == 3
        shape = (-1, high, numbers.shape[-1])
        for (i, row, column), value in np.ndenumerate(numbers.reshape(shape)):
            whose = int(owners.reshape(shape)[i, row, column])
            top = i * (high + BLOCK_GAP) + row
            look: dict[str, Any] = {"facecolor": (color(whose), 0.4), "edgecolor": "none"}
            axes.add_patch(Rectangle((column + 0.03, top + 0.03), 0.94, 0.94, **look))
            middle: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
            axes.text(column + 0.5, top + 0.32, f"{value:g}", fontsize=10, **middle)
            axes.text(column + 0.5, top + 0.76, f"{owner[0]}{whose}", fontsize=9, **middle)
        for i in range(len(numbers) if stacked else 0):
            centre = i * (high + BLOCK_GAP) + high / 2
            turned: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "center"}
            axes.text(-0.45, centre, f"{owner} {i}", fontsize=9, **turned)
        axes.axis("off")
        axes.set(xlim=(-1.2, numbers.shape[-1] + 0.1), ylim=(max(heights), -0.1))
        axes.set_title(name, fontsize=9)
    words = [_origin_sentence(name, owners, owner) for name, (_, owners) in data.items()]
    return Plot(figure, f"Numbers by the {owner} they belong to. " + " ".join(words))


def _origin_sentence(name: str, owners: np.ndarray, owner: str) -> str:
    if owners.ndim == 3:
        axis, lines = owner, owners
    else:
        rows_are_whole = all(len(set(row.tolist())) == 1 for row in owners)
        axis, lines = ("row", owners) if rows_are_whole else ("column", owners.T)
    parts = []
    for i, line in enumerate(lines):
        inside = sorted(set(line.ravel().tolist()))
        verb = f"is {owner}" if len(inside) == 1 else f"mixes {owner}s"
        if owners.ndim == 3:
            verb = f"holds numbers of {owner}{'s' * (len(inside) > 1)}"
        parts.append(f"{axis} {i} {verb} {ranges(inside)}")
    return f"{name} ({' x '.join(map(str, owners.shape))}): {', '.join(parts)}."
