"""Convert matplotlib figures to SVG that follows the page's theme, and make SVG elements.

Text stays text. Matplotlib's markup is made small and independent of the page: it has no prolog,
comments or identifiers except those of shared definitions, numbers have two decimals, and the color
INK becomes `currentColor`.
"""

import base64
import html
import io
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.transforms import Bbox

from course_lib.plotting.colors import FAINT, INK

PIXELS_PER_INCH = 128  # so that 9 points, the size of a chart's words, are 16 pixels
SMALLEST_TEXT = 9  # pixels; a figure that would have smaller text scrolls instead
PHONE = 300  # pixels for a figure on a page of 360 pixels
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "course"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
Box = tuple[float, float, float, float]

_FONT_SIZE = re.compile(r"font(?:-size)?(?:: |=\")([\d.]+)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_FONT_FAMILY = re.compile(r"font-family: [^;\"]*(; )?")


def of_figure(figure: Figure) -> str:
    """Return the figure as one `<svg>` that shrinks on narrow pages."""
    if figure.get_layout_engine() is not None:  # a second layout would shift parts a little
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    buffer = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    width, height = (float(size) for size in figure.get_size_inches())
    _prolog, _, rest = buffer.getvalue().partition("<svg ")
    markup = rest.partition(">")[2].rpartition("</svg>")[0]
    markup = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", markup, flags=re.DOTALL)
    markup = re.sub(r"<g id=\"[^\"]*\"", "<g", markup)
    markup = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", markup, flags=re.DOTALL)
    markup = _FONT_FAMILY.sub("", markup)
    markup = re.sub(r" transform=\"rotate\(-0 [^)]*\)\"", "", markup)
    markup = re.sub(r"<[^<>]*>", _rounded, markup)  # not the words between tags
    for name in ("fill", "stroke"):
        markup = markup.replace(f"{name}: {FAINT}", f"{name}: currentColor; {name}-opacity: 0.18")
        markup = markup.replace(f"{name}: {INK}", f"{name}: currentColor")
    markup = re.sub(r"(stroke|fill)=\"#000000\"", r'\1="currentColor"', markup)
    markup = re.sub(r"\s*\n\s*", " ", markup)
    markup = re.sub(r"> <", "><", markup).strip()
    shown = width * PIXELS_PER_INCH
    return drawing(markup, width * 72, height * 72, shown, _panels(figure))


def _rounded(tag: re.Match[str]) -> str:
    """Return a tag whose numbers have two decimals."""
    return _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), tag[0])


def _panels(figure: Figure) -> list[Box]:
    """Return the areas of panels side by side, in points from the left and top."""
    points, height = 72 / figure.dpi, figure.bbox.height
    boxes: list[Bbox] = []
    bars: list[Bbox] = []
    for axes in figure.axes:
        is_bar = axes.get_label() == "<colorbar>"
        (bars if is_bar else boxes).append(axes.get_tightbbox() or axes.get_window_extent())
    if len({round(box.x0 / figure.bbox.width, 1) for box in boxes}) < 2:
        return []
    for bar in bars:
        left = [i for i, box in enumerate(boxes) if box.x1 <= bar.x0 and box.y1 > bar.y0]
        nearest = max(left, key=lambda i: boxes[i].x1, default=None)
        if nearest is None or bar.height > 1.5 * boxes[nearest].height:
            boxes.append(bar)
        else:
            boxes[nearest] = Bbox.union([boxes[nearest], bar])
    return [
        (box.x0 * points - 4, (height - box.y1) * points - 4, box.width * points + 8,
         box.height * points + 8)
        for box in boxes
    ]  # fmt: skip


def drawing(
    inside: str,
    width: float,
    height: float,
    shown: float | None = None,
    panels: Sequence[Box] = (),
) -> str:
    """Wrap `inside` in an `<svg>` of `width` x `height` units whose text stays readable.

    If a phone is too narrow for `SMALLEST_TEXT`, the figure keeps a minimum width and scrolls.

    Args:
        inside: markup.
        width, height: the size in its own units.
        shown: its maximum width in pixels; by default as many as units.
        panels: left, top, width and height of the parts that figure.js stacks on a narrow page.
    """
    shown = width if shown is None else shown
    parts = " ".join(f"{number:.0f}" for panel in panels for number in panel)
    apart = f' data-panels="{parts}"' if panels else ""
    sizes = map(float, _FONT_SIZE.findall(inside))
    least = min(math.ceil(SMALLEST_TEXT * width / min(sizes, default=SMALLEST_TEXT)), shown)
    smallest = f";min-width:{least:.0f}px" if least > PHONE else ""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{shown:.0f}" height="{height * shown / width:.0f}" '
        f'viewBox="0 0 {width:g} {height:g}" fill="currentColor" stroke-linejoin="round" '
        f'font-family="{FONT}" style="max-width:100%;height:auto{smallest}"{apart}>{inside}</svg>'
    )


def element(tag: str, inside: str | None = None, **attributes: object) -> str:
    """Return an element. `_` in an attribute's name becomes a hyphen, and None omits it."""
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(_short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{pairs}/>" if inside is None else f"<{tag}{pairs}>{inside}</{tag}>"


def text(words: object, x: float, y: float, size: float = 11, **attributes: object) -> str:
    """Return text centered at (x, y) unless `text_anchor` says otherwise."""
    style = {"text_anchor": "middle", "dominant_baseline": "central", **attributes}
    return element("text", html.escape(str(words)), x=x, y=y, font_size=size, **style)


def arrow(
    points: Sequence[tuple[float, float]], width: float = 1.4, color: str = "currentColor"
) -> str:
    """Return a line through the points with an arrowhead at the last one."""
    (x0, y0), (x, y) = points[-2:]
    length = max(float(np.hypot(x - x0, y - y0)), 1e-6)
    dx, dy = (x - x0) / length, (y - y0) / length
    size = 5 + width / 2
    base, side = (x - size * dx, y - size * dy), 0.58 * size
    head = [(x, y), (base[0] - side * dy, base[1] + side * dx)]
    head.append((base[0] + side * dy, base[1] - side * dx))
    line = {"stroke": color, "stroke_width": width, "fill": "none"}
    drawn = element("polyline", points=joined([*points[:-1], base]), **line)
    return drawn + element("polygon", points=joined(head), fill=color)


def source_of(picture: np.ndarray) -> str:
    """Return the pixels `(height, width, 4)`, 0 to 1 with opacity, as the address of a PNG."""
    buffer = io.BytesIO()
    imsave(buffer, np.rint(picture * 255).astype(np.uint8), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def joined(points: Sequence[tuple[float, float]]) -> str:
    """Return the points as the value of the attribute `points`."""
    return " ".join(f"{round(x, 2):g},{round(y, 2):g}" for x, y in points)


def _short(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else str(value)
