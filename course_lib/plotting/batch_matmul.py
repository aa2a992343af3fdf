"""Figures of lesson 03: matrices as boxes with their axes, and where each number came from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from course_lib.plotting.axes import clean, colour, draw_cells, name_ticks
from course_lib.plotting.colours import INK, KEY, QUERY
from course_lib.plotting.display import new_figure
from course_lib.plotting.figures import Plot
from course_lib.plotting.words import as_array, ranges

UNIT = 0.34
GAP = 2.1
DEPTH = 0.22
MAX_SHEETS = 3
FACES = {"input": (QUERY, 0.25), "made": (KEY, 0.45)}

Box = tuple[str, str, int, str, int]


def shape_flow(rows: Sequence[Sequence[Box | str]], *, batch: int = 1) -> Plot:
    """Matrices as boxes drawn to scale, one row of the figure for each product.

    Args:
        rows: each a list of boxes and of the signs between them ("×", "="). A box is
            `(name, row axis, row size, column axis, column size)`.
        batch: how many items there are; drawn as up to three sheets behind each other.
    """
    figure = new_figure(6.0, 3.0)
    axes = figure.subplots()
    top, right = 0.0, 0.0
    for row in rows:
        right = max(right, _draw_row(axes, row, top, min(batch, MAX_SHEETS)))
        top -= _row_height(row)
    low, high = top + 0.9, 0.6
    axes.set(xlim=(-1.2, right), ylim=(low, high), aspect="equal")
    axes.axis("off")
    figure.set_figheight(max(1.6, 6.0 * (high - low) / (right + 1.2)))
    return Plot(figure, _flow_sentence(rows, batch))


def cell_origins(panels: Mapping[str, tuple[Any, Any]], *, owner: str = "key") -> Plot:
    """Matrices side by side, each cell coloured and lettered by the row it came from.

    Args:
        panels: title -> `(numbers, owners)`, two matrices of one shape: what is in a cell,
            and the number of the row that it belonged to at first.
        owner: what such a row is called.
    """
    data = {name: (as_array(n), as_array(o).astype(int)) for name, (n, o) in panels.items()}
    total = 1 + max(int(owners.max()) for _, owners in data.values())
    tallest = max(numbers.shape[0] for numbers, _ in data.values())
    figure = new_figure(6.0, max(1.9, 0.9 + 0.45 * tallest))
    grid = np.atleast_1d(figure.subplots(1, len(data), sharey=False))
    for axes, (name, (numbers, owners)) in zip(grid, data.items(), strict=True):
        _draw_cells(axes, numbers, owners, total, owner[0])
        axes.set_title(name, fontsize=8.5)
    words = [_origin_sentence(name, owners, owner) for name, (_, owners) in data.items()]
    return Plot(figure, "Cells by the row they came from. " + " ".join(words))


def cell_by_cell(matrix: Any, step: int) -> Plot:
    """Where the numbers of a matrix go, one after the other: reshaped, and transposed.

    Args:
        matrix: `(rows, columns)`.
        step: how many numbers have gone, in the order in which they lie in memory.
    """
    numbers = as_array(matrix)
    num_rows, num_columns = numbers.shape
    order = np.arange(numbers.size).reshape(numbers.shape)
    panels = {
        f"x, shape ({num_rows}, {num_columns})": order,
        f"x.reshape({num_columns}, {num_rows})": order.reshape(num_columns, num_rows),
        "x.mT": order.T,
    }
    figure = new_figure(6.0, 2.4)
    for axes, (title, places) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        gone = places < step
        rows = np.array([to_rgba(colour(i), 0.4) for i in range(num_rows)])
        faint = np.where(gone, 1.0, 0.0 if title != next(iter(panels)) else 0.3)
        draw_cells(
            axes, rows[places // num_columns] * np.dstack([np.ones((*gone.shape, 3)), faint])
        )
        for (i, j), place in np.ndenumerate(places):
            if place < step or title == next(iter(panels)):
                weight = "bold" if place == step - 1 else "normal"
                words = f"{numbers.flat[place]:g}"
                axes.text(j, i, words, ha="center", va="center", fontsize=9, weight=weight)
            if place == step - 1:
                box = Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False)
                box.set(edgecolor=INK, linewidth=2)
                axes.add_patch(box)
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=9)
    return Plot(figure, _step_sentence(numbers, step))


def _step_sentence(numbers: np.ndarray, step: int) -> str:
    num_rows, num_columns = numbers.shape
    if not step:
        return f"A matrix of {num_rows} rows and {num_columns} columns; no number has gone yet."
    row, column = divmod(step - 1, num_columns)
    there = divmod(step - 1, num_rows)
    words = (
        f"Number {numbers.flat[step - 1]:g}, from row {row} and column {column}, goes to row "
        f"{there[0]} and column {there[1]} of the reshaped matrix, and to row {column} and "
        f"column {row} of the transposed one"
    )
    if step == numbers.size:
        words += "; only the transposed matrix has kept each row together, as a column"
    return words + "."


def _row_height(row: Sequence[Box | str]) -> float:
    return max(item[2] for item in row if not isinstance(item, str)) * UNIT + 1.5


def _draw_row(axes: Axes, row: Sequence[Box | str], top: float, sheets: int) -> float:
    """Draws one product with its upper edge at `top`; returns how far right it reaches."""
    middle = top - max(item[2] for item in row if not isinstance(item, str)) * UNIT / 2
    left = 0.0
    last = [item for item in row if not isinstance(item, str)][-1]
    for item in row:
        if isinstance(item, str):
            axes.text(left - GAP * 0.56, middle, item, ha="center", va="center", fontsize=11)
            continue
        name, row_axis, num_rows, column_axis, num_columns = item
        width, height = num_columns * UNIT, num_rows * UNIT
        upper = middle + height / 2
        for sheet in reversed(range(sheets)):
            shift = sheet * DEPTH
            face = FACES["made" if item is last else "input"]
            corner = (left + shift, upper - height + shift)
            box = Rectangle(corner, width, height, facecolor=face, edgecolor=INK, linewidth=0.9)
            axes.add_patch(box)
        axes.text(left + width / 2, upper - height / 2, name, ha="center", va="center", fontsize=9)
        axes.text(left - 0.12, upper - height / 2, f"{row_axis}={num_rows}", **_side("right"))
        below = upper - height - 0.14
        axes.text(left + width / 2, below, f"{column_axis}={num_columns}", **_side("center", "top"))
        left += width + GAP
    return left - GAP + 1.0


def _side(horizontal: str, vertical: str = "center") -> dict[str, Any]:
    return {"ha": horizontal, "va": vertical, "fontsize": 7.5}


def _flow_sentence(rows: Sequence[Sequence[Box | str]], batch: int) -> str:
    sentences = []
    for row in rows:
        words = []
        for item in row:
            if isinstance(item, str):
                words.append({"×": "times", "=": "gives"}.get(item, item))
            else:
                name, row_axis, num_rows, column_axis, num_columns = item
                words.append(f"{name} ({row_axis}={num_rows} by {column_axis}={num_columns})")
        sentences.append(" ".join(words))
    count = f"the same for each of {batch} items" if batch > 1 else "one item"
    return "Shapes: " + "; ".join(sentences) + f"; {count}."


def _draw_cells(
    axes: Axes, numbers: np.ndarray, owners: np.ndarray, total: int, letter: str
) -> None:
    draw_cells(axes, np.array([to_rgba(colour(i), 0.4) for i in range(total)])[owners])
    for (row, column), value in np.ndenumerate(numbers):
        place: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
        axes.text(column, row - 0.12, f"{value:g}", fontsize=9, **place)
        axes.text(column, row + 0.3, f"{letter}{owners[row, column]}", fontsize=6.5, **place)
    num_rows, num_columns = numbers.shape
    name_ticks(axes, [str(i) for i in range(num_columns)])
    name_ticks(axes, [str(i) for i in range(num_rows)], rows=True)
    clean(axes)
    axes.set_xlabel(f"{num_rows} rows, {num_columns} columns", fontsize=8)


def _origin_sentence(name: str, owners: np.ndarray, owner: str) -> str:
    rows_are_whole = all(len(set(row.tolist())) == 1 for row in owners)
    axis, lines = ("row", owners) if rows_are_whole else ("column", owners.T)
    parts = []
    for i, line in enumerate(lines):
        inside = sorted(set(line.tolist()))
        verb = f"is {owner}" if len(inside) == 1 else f"mixes {owner}s"
        parts.append(f"{axis} {i} {verb} {ranges(inside)}")
    return f"{name} ({owners.shape[0]} x {owners.shape[1]}): {', '.join(parts)}."
