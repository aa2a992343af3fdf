"""`course bench figures`: what a figure costs to draw and to send, beside a plain matplotlib PNG.

Every drawing function of `course_lib.plotting` is called on a lesson's kind of data. Counted is the
processor time from data to a page's markup; for those that draw with matplotlib, also the time that
the same figure takes as a PNG, in turns with ours.
"""

from __future__ import annotations

import io
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from course_lib import plotting
from course_lib.attention import (
    CausalSelfAttention,
    LanguageModel,
    masked_softmax,
    positional_encoding,
)
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
    "bars": lambda: plotting.bars({"scores": {"as given": _ROW, "shifted": _ROW}}),
    "bottleneck": plotting.bottleneck,
    "cell_by_cell": lambda: plotting.cell_by_cell(_CELLS, 5),
    "cell_origins": lambda: plotting.cell_origins({"x": (_CELLS, _CELLS // 4)}),
    "clickable_mask": lambda: plotting.clickable_mask(_WEIGHTS[:4, :4], masked_softmax),
    "diagram": lambda: plotting.diagram("heads", lit="scores"),
    "diagram_strip": lambda: plotting.diagram_strip("heads", lit="scores"),
    "encoding_map": lambda: plotting.encoding_map(np.sin(_RNG.normal(size=(50, 32)))),
    "feature_cube": lambda: plotting.feature_cube([[1, 2], [0, -1]], [[0, 1], [1, 1]], [1, -2]),
    "heatmap": lambda: plotting.heatmap(_WEIGHTS),
    "heatmap_grid": lambda: plotting.heatmap_grid({"a": _WEIGHTS, "b": _WEIGHTS}),
    "kernel_fits": lambda: plotting.kernel_fits(_X, np.sin(_X), _X, {"fit": np.sin(_X)}),
    "lines": lambda: plotting.lines(_X, {"a": _X, "b": -_X}, x_label="x", y_label="y"),
    "live_induction": lambda: trained.live_induction(
        trained.trained_induction(
            LanguageModel(
                26, [CausalSelfAttention(64, 4) for _ in range(2)], positional_encoding(32, 64)
            )
        )
    ),
    "live_translator": trained.live_translator,
    "mask_gallery": lambda: plotting.mask_gallery({"causal": np.tri(5, dtype=bool)}),
    "online_softmax": lambda: plotting.online_softmax(_ROW, _ROW, 3, 2),
    "query_plane": lambda: plotting.query_plane([[1.5, 0.5], [-1, 1], [0, -1.5]]),
    "query_weights": lambda: plotting.query_weights(_X, _X, 2.0, np.full(40, 0.025), 3.0),
    "roofline": lambda: plotting.roofline(100, 12, {"a": (2, 20), "b": (50, 90)}),
    "saturation": lambda: plotting.saturation([1.0, 0.5, 0.0, -1.0], 2.0),
    "tiles": lambda: plotting.tiles(3, 4, 5),
    "training_moment": lambda: plotting.training_moment(
        [3.0, 2.0, 1.0], 9, plotting.Guess(["forty", "three"], np.eye(2, 14)), "dreiundvierzig"
    ),
    "verdicts": lambda: plotting.verdicts({"a": {"trains": True}, "b": {"trains": False}}),
}


@dataclass(frozen=True)
class Row:
    """A figure: seconds to its markup, seconds to a PNG (None if it is no matplotlib), bytes."""

    figure: str
    seconds: float
    png_seconds: float | None
    size: int


@dataclass(frozen=True)
class Measured:
    """All rows, and what ran them."""

    rows: list[Row]
    machine: str

    @property
    def median(self) -> float:
        """Return the seconds of the median figure."""
        return statistics.median(row.seconds for row in self.rows)

    @property
    def ratio(self) -> float:
        """Return the median ratio of our drawing time to the PNG's, over matplotlib's figures."""
        return statistics.median(r.seconds / r.png_seconds for r in self.rows if r.png_seconds)

    def text(self) -> str:
        """Return a table with a line per figure, then the median and the ratio."""
        lines = [f"{'figure':<16} {'ms':>6} {'as PNG':>7} {'kB':>6}"]
        for row in self.rows:
            png = f"{1000 * row.png_seconds:.0f}" if row.png_seconds else "-"
            lines.append(
                f"{row.figure:<16} {1000 * row.seconds:>6.0f} {png:>7} {row.size / 1000:>6.0f}"
            )
        return "\n".join(
            [
                *lines,
                "",
                f"Processor time of the median figure: {1000 * self.median:.0f} ms, "
                f"{self.ratio:.2f} times that of a matplotlib PNG. {self.machine}.",
            ]
        )


def measure(repeats: int = 5) -> Measured:
    """Draw each figure `repeats` times and keep the median."""
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    return Measured([_row(name, draw, repeats) for name, draw in DRAWN.items()], machine)


def to_json(measured: Measured) -> str:
    """Return the rows, the median and the ratio as one JSON document."""
    return json.dumps(asdict(measured) | {"median": measured.median, "ratio": measured.ratio})


def _row(name: str, draw: Callable[[], Plot], repeats: int) -> Row:
    ours, pngs = [], []
    draw()  # imports and fonts
    page = ""
    for _ in range(repeats):
        start = time.process_time()
        page = plotting.figure_html(draw())
        ours.append(time.process_time() - start)
        start = time.process_time()
        figure = draw().figure
        if isinstance(figure, Figure):
            figure.savefig(io.BytesIO(), format="png", dpi=110)
            pngs.append(time.process_time() - start)
    png = statistics.median(pngs) if pngs else None
    return Row(name, statistics.median(ours), png, len(page.encode()))
