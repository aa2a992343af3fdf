"""A figure of lesson 07, which compares what training and tests show of a module."""

from collections.abc import Mapping

import numpy as np
from matplotlib.patches import Rectangle

from course_lib.plotting.colors import INK, NEGATIVE, POSITIVE
from course_lib.plotting.display import CHART, new_figure
from course_lib.plotting.figures import Plot, Table


def verdicts(rows: Mapping[str, Mapping[str, bool]]) -> Plot:
    """Return a table of yes and no, with a row for each module and a column for each question.

    Args:
        rows: module -> question -> answer; every module has the same questions.
    """
    names, questions = list(rows), list(next(iter(rows.values())))
    figure = new_figure(CHART, 1.0 + 0.24 * len(names))
    axes = figure.subplots()
    for y, x in np.ndindex(len(names), len(questions)):
        yes = bool(rows[names[y]][questions[x]])
        color, hatch = (POSITIVE, "") if yes else (NEGATIVE, "//")
        box = Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, hatch=hatch)
        box.set(facecolor=(color, 0.1 if yes else 0.55), edgecolor=(color, 0.4))
        axes.add_patch(box)
        look = {"fontsize": 9, "weight": "normal" if yes else "bold", "color": INK}
        axes.text(x + 0.5, y + 0.5, "yes" if yes else "no", ha="center", va="center", **look)
    axes.set(xlim=(0, len(questions)), ylim=(len(names), 0))
    axes.set_xticks(np.arange(len(questions)) + 0.5, questions, rotation=40, ha="left")
    axes.set_yticks(np.arange(len(names)) + 0.5, names)
    axes.tick_params(length=0, labelsize=9, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    told = []
    for question in questions:
        no = [name for name, answers in rows.items() if not answers[question]]
        told.append(f"{question}: no for {', '.join(no)}, yes for the other {len(rows) - len(no)}")
        if len(no) in (0, len(rows)):
            told[-1] = f"{question}: {'no' if no else 'yes'} for all {len(rows)}"
    table = [[name, *("yes" if rows[name][q] else "no" for q in questions)] for name in names]
    return Plot(figure, f"Verdicts: {'; '.join(told)}.", Table(["", *questions], table))
