"""A figure as it comes to a page: a picture, its words, its data, and controls if it has frames.

Everything a page needs is in the markup: no other host is asked, and without scripts (GitHub, a
feedback page, paper) the picture, its alt text and its data remain.
"""

import base64
import functools
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import quote

from matplotlib.figure import Figure

from course_lib.plotting.svg import of_figure

ROWS_SHOWN = 40


class Table(NamedTuple):
    """The numbers of a figure: what its columns are called, and its rows, first cell a name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Live(NamedTuple):
    """What a figure becomes where scripts run: `NAME.js` of this folder, and the data it reads.

    The script finds its figures by `figure.course-figure[data-live=NAME]` and their data as JSON
    in `script.live` inside; it replaces the still picture.
    """

    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Plot:
    """A finished figure and the words that stand for it.

    Args:
        figure: a matplotlib figure, or the markup of one `<svg>`.
        alt: what the figure shows, in words: its message first.
        table: its data, where it has some.
        live: the script that takes the picture's place, where it has one.
    """

    figure: Figure | str
    alt: str
    table: Table | None = None
    live: Live | None = None

    @functools.cached_property
    def svg(self) -> str:
        """The figure as one `<svg>` element."""
        return self.figure if isinstance(self.figure, str) else of_figure(self.figure)


class Control(NamedTuple):
    """An argument of a drawing function: its name, its options, and where it starts."""

    name: str
    options: Sequence[Any]
    start: int

    @property
    def slides(self) -> bool:
        """Whether the options are numbers, for which a slider is better than a list."""
        return all(isinstance(o, int | float) and not isinstance(o, bool) for o in self.options)

    @property
    def words(self) -> list[str]:
        """The options as they are shown."""
        return [f"{option:g}" if self.slides else str(option) for option in self.options]


def figure_html(plot: Plot, caption: str | None = None, *, inline: bool = False) -> str:
    """`<figure>` with the picture, an optional caption and the data.

    Args:
        plot: what to show.
        caption: a line beneath the picture.
        inline: put the picture in as `<svg>`, where no sanitizer and no script is in the way.
    """
    if inline:
        named = f'<svg role="img" aria-label="{html.escape(plot.alt)}" '
        return _figure(plot.svg.replace("<svg ", named, 1), plot, caption)
    if plot.live:
        name, data = plot.live
        inside = f'<script type="application/json" class="live">{_json(data)}</script>'
        figure = _figure(_still(plot) + inside, plot, caption, marks=f' data-live="{name}"')
        return figure + _script(f"{name}.js")
    return _figure(_still(plot), plot, caption) + _script("figure.js")


def stepper_html(frames: Sequence[Plot], controls: Sequence[Control], caption: str) -> str:
    """`<figure>` whose picture changes with controls that need no kernel.

    Args:
        frames: a plot for each choice of options, the last control's options innermost.
        controls: at least one.
        caption: what stands beneath the picture where no script runs.
    """
    place = 0
    for control in controls:
        place = place * len(control.options) + control.start
    pictures = json.dumps([{"svg": frame.svg, "alt": frame.alt} for frame in frames])
    packed = gzip.compress(pictures.encode(), mtime=0)
    data = {
        "controls": [
            {
                "name": c.name.replace("_", " "),
                "options": c.words,
                "start": c.start,
                "slides": c.slides,
            }
            for c in controls
        ],
        "frames": base64.b64encode(packed).decode("ascii"),
    }
    start = frames[place]
    inside = f'<script type="application/json" class="frames">{_json(data)}</script>'
    figure = _figure(_still(start) + inside, start, caption, marks=" data-frames")
    return figure + _script("stepper.js")


def _figure(picture: str, plot: Plot, caption: str | None, *, marks: str = "") -> str:
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure class="course-figure" style="margin:0.5em 0;max-width:100%"{marks}>'
        f"{picture}{words}{_table_html(plot.table)}</figure>"
    )


def _still(plot: Plot) -> str:
    """The picture as an image: sanitizers that drop `<svg>` let it pass."""
    source = quote(plot.svg, safe=" =:;,/()+-.!*@'")
    width = plot.svg.split('width="', 1)[1].split('"', 1)[0]
    return (
        f'<img class="still" alt="{html.escape(plot.alt)}" width="{width}" '
        'style="max-width:100%;height:auto;background:#fff" '
        f'src="data:image/svg+xml,{source.replace(chr(39), "%27")}">'
    )


def _table_html(table: Table | None) -> str:
    if table is None:
        return ""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.head)
    step = -(-len(table.rows) // ROWS_SHOWN)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in table.rows[::step]
    )
    note = f" ({len(table.rows[::step])} of {len(table.rows)} rows)" if step > 1 else ""
    return (
        f'<details class="data"><summary>Data{note}</summary>'
        '<div style="overflow-x:auto" tabindex="0" role="region" aria-label="Data of the figure">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _json(data: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


@functools.cache
def _script(name: str) -> str:
    source = resources.files("course_lib.plotting").joinpath(name).read_text(encoding="utf-8")
    lines = [line.strip() for line in source.splitlines()]
    code = "\n".join(line for line in lines if line and not line.startswith("//"))
    return f"<script>(() => {{\n{code}\n}})();</script>"
