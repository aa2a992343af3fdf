"""Draw the saturation of a softmax: a row of weights beside its Jacobian."""

from typing import Any

import numpy as np

from course_lib.plotting.axes import clean, color_bar, draw_cells, write_cells
from course_lib.plotting.colors import WEIGHT, of_values
from course_lib.plotting.display import PANELS, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.words import as_array, number


def saturation(scores: Any, factor: float = 1.0) -> Plot:
    """Draw softmax(`factor * scores`) as bars, and its Jacobian diag(w) - w w^T.

    Args:
        scores: one row of scores, one for each key.
        factor: multiplies the scores; 0 makes all weights equal.
    """
    row = factor * as_array(scores).astype(float)
    exponentials = np.exp(row - row.max())
    weights = exponentials / exponentials.sum()
    jacobian = np.diag(weights) - np.outer(weights, weights)
    figure = new_figure(PANELS, 2.7)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.1))
    keys = [str(key) for key in range(len(weights))]
    drawn = left.bar(keys, weights, color=WEIGHT)
    left.bar_label(drawn, [f"{weight:.2f}" for weight in weights], fontsize=9, padding=1)
    left.set(xlabel="keys", ylim=(0, 1.1), title=f"weights, scores times {factor:g}")
    draw_cells(right, of_values(jacobian, (-0.25, 0.25)))
    write_cells(right, np.array([[f"{value:.2f}" for value in row] for row in jacobian]))
    right.set(xlabel="score of key", ylabel="weight of key", title="derivative of weight by score")
    right.set(xticks=range(len(keys)), yticks=range(len(keys)))
    color_bar(figure, right, (-0.25, 0.25), "derivative")
    for axes in (left, right):
        axes.title.set_fontsize(9)
        clean(axes)
    best = int(np.argmax(weights))
    listed = ", ".join(number(weight) for weight in weights)
    alt = (
        f"Scores times {factor:g}: weights {listed}, the largest on key {best}. The largest "
        f"derivative of a weight with respect to a score is {number(np.abs(jacobian).max())}."
    )
    rows = [
        [f"weight {key}, {number(weight)}", *map(number, row)]
        for key, (weight, row) in enumerate(zip(weights, jacobian, strict=True))
    ]
    return Plot(figure, alt, Table(["query", *(f"score {key}" for key in keys)], rows))
