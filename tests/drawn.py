"""Every drawing function of `course_lib.plotting`, with data of the kind that a lesson draws."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib import plotting
from course_lib.models import trained
from course_lib.plotting import Plot

_RNG = np.random.default_rng(0)
_X = np.linspace(0, 6, 40)
_WEIGHTS = torch.softmax(torch.tensor(_RNG.normal(size=(6, 8))), dim=-1)
_HEADS = torch.softmax(torch.tensor(_RNG.normal(0, 2, (8, 20, 20))), dim=-1)
_CELLS = np.arange(12).reshape(3, 4)
_ROW = [1.0, 0.5, 2.0, 0.0, 3.0, 1.5, 2.5, 0.5]

DRAWN: dict[str, Callable[[], Plot]] = {
    "attention": lambda: plotting.attention(_HEADS),
    "bars": lambda: plotting.bars(
        {"scores": {"as given": _ROW[:4], "shifted": _ROW[:4]}}, y_label="weight"
    ),
    "bottleneck": plotting.bottleneck,
    "cell_origins": lambda: plotting.cell_origins({"x": (_CELLS, _CELLS // 4)}),
    "diagram": lambda: plotting.diagram("heads", lit="scores"),
    "diagram_strip": lambda: plotting.diagram_strip("heads", lit="scores"),
    "feature_cube": lambda: plotting.feature_cube([[1, 2], [0, -1]], [[0, 1], [1, 1]], [1, -2]),
    "heatmap": lambda: plotting.heatmap(_WEIGHTS),
    "heatmap_grid": lambda: plotting.heatmap_grid({"a": _WEIGHTS, "b": _WEIGHTS}),
    "kernel_fits": lambda: plotting.kernel_fits(_X, np.sin(_X), _X, {"fit": np.sin(_X)}),
    "lines": lambda: plotting.lines(
        _X, {"a": _X, "b": -_X}, x_label="x", y_label="y", mark={"a": max}
    ),
    "live_translator": trained.live_translator,
    "mask_gallery": lambda: plotting.mask_gallery({"causal": np.tri(5, dtype=bool)}),
    "online_softmax": lambda: plotting.online_softmax(_ROW, _ROW, 3, 2),
    "query_plane": lambda: plotting.query_plane([[1.5, 0.5], [-1, 1], [0, -1.5]]),
    "query_weights": lambda: plotting.query_weights(_X, _X, 2.0, np.full(40, 0.025), 3.0),
    "saturation": lambda: plotting.saturation([1.0, 0.5, 0.0, -1.0], 2.0),
    "tiles": lambda: plotting.tiles(3, 4, 5),
    "training_moment": lambda: plotting.training_moment(
        [3.0, 2.0, 1.0], 9, plotting.Guess(["forty", "three"], np.eye(2, 14)), "dreiundvierzig"
    ),
    "verdicts": lambda: plotting.verdicts({"a": {"trains": True, "masks": False}}),
}
