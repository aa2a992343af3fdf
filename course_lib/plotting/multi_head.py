"""The figure of lesson 06 that shows the pattern of positions."""

from typing import Any

import numpy as np

from course_lib.plotting.axes import clean, color_bar, style
from course_lib.plotting.charts import name_ends
from course_lib.plotting.colors import of_values
from course_lib.plotting.display import PANELS, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, counted, number


def encoding_map(table: Any) -> Plot:
    """Return a table of positions: every entry as a color, and some columns as curves.

    Args:
        table: `(num_positions, embed_dim)` numbers in -1..1.
    """
    values = as_array(table).astype(float)
    embed_dim = values.shape[1]
    figure = new_figure(PANELS, 3.0)
    left, right = figure.subplots(1, 2)
    left.imshow(of_values(values, (-1, 1)), interpolation="none", aspect="auto")
    left.set(xlabel="column", ylabel="position")
    color_bar(figure, left, (-1.0, 1.0), "encoding")
    columns = sorted({0, embed_dim // 4 // 2 * 2, embed_dim // 2 // 2 * 2})
    for place, column in enumerate(columns):
        right.plot(values[:, column], label=f"column {column}", markersize=3, **style(place))
    right.set(xlabel="position", ylabel="encoding", ylim=(-1.1, 1.1))
    clean(left)
    clean(right)
    name_ends(right)
    rows = [[f"position {i}", *map(number, row)] for i, row in enumerate(values)]
    data = Table(["query", *(f"column {column}" for column in range(embed_dim))], rows)
    parts = []
    for column in columns:
        signs = np.sign(values[:, column][np.abs(values[:, column]) > 1e-9])
        turns = int((signs[1:] != signs[:-1]).sum())
        parts.append(f"column {column} changes its sign {counted(turns, 'time', 'times')}")
    last = values[:, -1]
    alt = (
        f"Encoding of {len(values)} positions in {embed_dim} columns: {', '.join(parts)}; "
        f"the last column goes from {number(last[0])} to {number(last[-1])}."
    )
    return Plot(figure, alt, data)
