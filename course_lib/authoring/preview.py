"""Draw arcs from words to letters for a link's preview and for the README's animation.

These pictures stand outside the course's pages, so they have a background and colors of their own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve
from PIL import Image

from course_lib.models.numerals import Numerals
from course_lib.models.trained import trained_translator
from course_lib.models.whole_game import translate
from course_lib.plotting.colors import KEY, WEIGHT

SIZE = (1200, 630)  # pixels, as `og:image` and `twitter:card` want
MARGIN = 0.04  # of the width, on each side
LEAST = 0.02  # fainter arcs are left out


class Look(NamedTuple):
    """The colors of a page, and of arcs on it."""

    paper: str
    ink: str
    weight: str


LIGHT = Look("#ffffff", "#1f2328", WEIGHT)
DARK = Look("#0d1117", "#e6edf3", "#b794f6")


def preview() -> Image.Image:
    """Return the preview picture of the site: the course's translator at work."""
    numerals, letters = Numerals(), "dreiundvierzig"
    words, weights = translate(trained_translator(numerals), numerals, letters)
    title, says = "Build attention yourself", "You write the model. The checks name your mistakes."
    return arcs(letters, words, weights.numpy(), LIGHT, above=title, below=says, lit=True)


def arcs(
    letters: Sequence[str],
    words: Sequence[str],
    weights: np.ndarray,
    look: Look,
    *,
    size: tuple[int, int] = SIZE,
    above: str = "",
    below: str = "",
    lit: bool = False,
) -> Image.Image:
    """Return a picture of letters, of words beneath them, and of an arc for each weight.

    Args:
        weights: `(len(words), len(letters))` numbers from 0 to 1.
        size: the width and height in pixels.
        above, below: lines of text, of which the first one is large.
        lit: whether to draw only the largest weight of each word.
    """
    if lit:
        weights = np.where(weights == weights.max(axis=1, keepdims=True), weights, 0.0)
    wide, high = size
    figure = Figure(figsize=(wide / 100, high / 100), dpi=100, facecolor=look.paper)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(high, 0))
    axes.axis("off")
    point = 0.72  # of a pixel, at 100 dots per inch

    def write(words: str, x: float, y: float, pixels: float, **style) -> None:
        style = {"color": look.ink, "ha": "center", "va": "center", **style}
        axes.text(x, y, words, fontsize=pixels * point, **style)

    top = 0.12 * high
    if above:
        write(above, wide / 2, 0.13 * high, 0.06 * wide, fontweight="bold")
        top = 0.28 * high
    bottom = high - (0.2 * high if below else 0.1 * high)
    if below:
        write(below, wide / 2, 0.925 * high, 0.031 * wide)
    each = wide * (1 - 2 * MARGIN) / len(letters)
    box = 0.82 * each
    across = [wide * MARGIN + each * (i + 0.5) for i in range(len(letters))]
    apart = wide * (1 - 2 * MARGIN) / max(2, len(words))
    places = [wide / 2 + apart * (i - (len(words) - 1) / 2) for i in range(len(words))]
    begin, end = bottom - 0.75 * box, top + 0.5 * box
    for word, row in zip(places, weights, strict=True):
        for i, weight in enumerate(row):
            if weight < LEAST:
                continue
            bend = 0.55 * (begin - end)
            points = [(word, begin), (word, begin - bend), (across[i], end + bend)]
            curve = Curve([*points, (across[i], end)], [Curve.MOVETO, *[Curve.CURVE4] * 3])
            thick = (1.5 + (13 if lit else 9) * weight) * wide / 1200
            style: dict[str, Any] = {"ec": look.weight, "alpha": 0.15 + 0.85 * weight}
            axes.add_patch(
                PathPatch(curve, fill=False, lw=thick * point, capstyle="round", **style)
            )
    strongest = weights.max(axis=0) if len(words) else np.zeros(len(letters))
    for x, letter, weight in zip(across, letters, strongest, strict=True):
        place = (x - box / 2, top - box / 2)
        frame: dict[str, Any] = {"boxstyle": f"round,pad=0,rounding_size={box / 6}", "ec": KEY}
        axes.add_patch(FancyBboxPatch(place, box, box, fc=look.paper, lw=1.5, **frame))
        fill = {**frame, "fc": look.weight, "alpha": 0.65 * float(weight), "lw": 0}
        axes.add_patch(FancyBboxPatch(place, box, box, **fill))
        write(letter, x, top, 0.68 * box, fontfamily="monospace", fontweight="bold")
    for x, word in zip(places, words, strict=True):
        write(word, x, bottom, min(0.85 * each, 1.5 * apart / max(4, len(word))), weight="bold")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
