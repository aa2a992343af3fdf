"""Saturation: a row of weights beside the Jacobian of its softmax."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from course_lib.plotting.charts import HATCHES
from course_lib.plotting.display import Plot, new_figure
from course_lib.plotting.words import as_array, number


def saturation(scores: Any, factor: float = 1.0) -> Plot:
    """Softmax of `factor * scores` as bars, and what it lets through: diag(w) - w w^T.

    Args:
        scores: one row of scores, one for each key.
        factor: multiplies the scores; 0 makes all weights equal.
    """
    row = factor * as_array(scores).astype(float)
    exponentials = np.exp(row - row.max())
    weights = exponentials / exponentials.sum()
    jacobian = np.diag(weights) - np.outer(weights, weights)
    figure = new_figure(6.0, 2.7)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.1))
    _draw_weights(left, weights, f"weights, scores times {factor:g}")
    image = _draw_derivatives(right, jacobian)
    figure.colorbar(image, ax=right, shrink=0.9).set_label("derivative")
    for axes in (left, right):
        axes.set_xticks(range(len(weights)))
        axes.title.set_fontsize(9)
        axes.tick_params(labelsize=8)
    best = int(np.argmax(weights))
    listed = ", ".join(number(weight) for weight in weights)
    alt = (
        f"Scores times {factor:g}: weights {listed}, the largest on key {best}. The largest "
        f"derivative of a weight with respect to a score is {number(np.abs(jacobian).max())}."
    )
    return Plot(figure, alt)


def _draw_weights(axes: Axes, weights: np.ndarray, title: str) -> None:
    drawn = axes.bar(range(len(weights)), weights, color="#31688e", hatch=HATCHES[1])
    for patch in drawn:
        patch.set_edgecolor("white")
    axes.bar_label(drawn, [f"{weight:.2f}" for weight in weights], fontsize=7, padding=1)
    axes.set(xlabel="keys", ylim=(0, 1.1), title=title)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_derivatives(axes: Axes, jacobian: np.ndarray) -> AxesImage:
    """The map of a square matrix, with its numbers in the cells."""
    image = axes.imshow(jacobian, cmap="cividis", vmin=-0.25, vmax=0.25)
    middle = {"ha": "center", "va": "center", "fontsize": 7}
    for (out, into), value in np.ndenumerate(jacobian):
        words = f"{value:.2f}".replace("0.", ".").replace("-.00", ".00")
        axes.text(into, out, words, color="white" if value < 0.05 else "black", **middle)
    axes.set(xlabel="score of key", ylabel="weight of key", title="d weight / d score")
    axes.set_yticks(range(len(jacobian)))
    return image
