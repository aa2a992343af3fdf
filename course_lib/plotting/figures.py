"""Make the HTML of a figure: a picture, its words, its data, and controls if it has frames.

The markup is complete and loads nothing from other hosts. Without scripts (GitHub, a feedback page,
paper), the picture, its alt text and its data remain.
"""

import base64
import functools
import gzip
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import quote

from matplotlib.figure import Figure

from course_lib.plotting.svg import of_figure

ROWS_SHOWN = 40


class Table(NamedTuple):
    """The numbers of a figure: column names, and rows that begin with a name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Live(NamedTuple):
    """The script of a figure, `NAME.js` in this folder, and its data.

    The script finds its figures by `figure.course-figure[data-live=NAME]` and their data as JSON
    in `script.live` inside. It replaces the still picture.
    """

    name: str
    data: Mapping[str, Any]
    uses: tuple[str, ...] = ()  # further scripts whose functions it calls


@dataclass(frozen=True)
class Plot:
    """A finished figure and the words that stand for it."""

    figure: Figure | str  # a string is the markup of one `<svg>`
    alt: str  # a description of what the numbers show
    table: Table | None = None
    handle: float | None = None  # position of the first control's handle, relative to the width
    live: Live | None = None
    caption: str = ""
    title: str = ""  # the message, one statement without a period

    @property
    def words(self) -> str:
        """Return the title and the alt text, for where no picture is shown."""
        return f"{self.title}. {self.alt}" if self.title else self.alt

    @functools.cached_property
    def svg(self) -> str:
        """Return the figure as one `<svg>` element."""
        return self.figure if isinstance(self.figure, str) else of_figure(self.figure)


class Control(NamedTuple):
    """An argument of a drawing function: its name, its options, and where it starts."""

    name: str
    options: Sequence[Any]
    start: int

    @property
    def widget(self) -> str:
        """Return the class of ipywidgets with which a reader chooses an option."""
        if all(isinstance(o, int | float) and not isinstance(o, bool) for o in self.options):
            return "SelectionSlider"
        return "RadioButtons" if len(self.options) <= 3 else "Dropdown"

    @property
    def label(self) -> str:
        """Return the displayed name."""
        return self.name.replace("_", " ")

    @property
    def words(self) -> list[str]:
        """Return the displayed options."""
        return [
            f"{option:g}" if self.widget == "SelectionSlider" else str(option)
            for option in self.options
        ]


def figure_html(plot: Plot, *, inline: bool = False) -> str:
    """Return a `<figure>` with the picture, its caption and its data.

    With `inline`, the picture is an `<svg>`, for pages without sanitizer or scripts.
    """
    if inline:
        named = f'<svg role="img" aria-label="{html.escape(plot.alt)}" '
        return _figure(plot.svg.replace("<svg ", named, 1), plot)
    if plot.live is None:
        return _figure(_still(plot), plot) + script_of("figure.js")
    name, data, uses = plot.live
    packed = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    inside = f'<script type="application/json" class="live">{packed}</script>'
    figure = _figure(_still(plot) + inside, plot, marks=f' data-live="{name}"')
    return figure + script_of("figure.js", *(f"{each}.js" for each in ("elements", *uses, name)))


def stepper(
    frames: Sequence[Plot],
    controls: Sequence[Control],
    caption: str,
    *,
    plays: bool = False,
    loops: bool = False,
) -> Plot:
    """Return a figure whose picture changes with controls and needs no kernel.

    There is a frame for each combination of options, with the last control varying fastest. If it
    `plays`, a button moves the first control, which begins by itself at the first option. If it
    also `loops`, it never ends. The caption is shown if no script runs.
    """
    place = 0
    for control in controls:
        place = place * len(control.options) + control.start
    pictures = json.dumps(
        [
            {
                "svg": f.svg,
                "alt": f.alt,
                "title": f.title,
                "data": _rows_html(f.table),
                "handle": f.handle,
            }
            for f in frames
        ]
    )
    packed = gzip.compress(pictures.encode(), mtime=0)
    data = {
        "controls": [
            {"name": c.label, "options": c.words, "start": c.start, "widget": c.widget}
            for c in controls
        ],
        "plays": plays,
        "loops": loops,
        "frames": base64.b64encode(packed).decode("ascii"),
    }
    return replace(frames[place], live=Live("stepper", data), caption=caption)


def _figure(picture: str, plot: Plot, *, marks: str = "") -> str:
    if plot.title:
        look, title = "margin:0 0 4px;position:sticky;left:0", html.escape(plot.title)
        picture = f'<p class="title" style="{look}"><b>{title}</b></p>{picture}'
    words = f"<figcaption>{html.escape(plot.caption)}</figcaption>" if plot.caption else ""
    if plot.table is not None:
        count, step = len(plot.table.rows), _every(plot.table)
        note = f" ({-(-count // step)} of {count} rows)" if step > 1 else ""
        words += (
            f'<details class="data"><summary>Data{note}</summary><div style="overflow-x:auto" '
            'tabindex="0" role="region" aria-label="Data of the figure">'
            f"{_rows_html(plot.table)}</div></details>"
        )
    if _least(plot):
        marks += ' tabindex="0"'
    look = "margin:0.5em 0;max-width:100%" + (";overflow-x:auto" if _least(plot) else "")
    return f'<figure class="course-figure" style="{look}"{marks}>{picture}{words}</figure>'


def _still(plot: Plot) -> str:
    """Return the picture as an image, which sanitizers keep although they drop `<svg>`."""
    source = quote(plot.svg, safe=" =:;,/()+-.!*@'")
    width = plot.svg.split('width="', 1)[1].split('"', 1)[0]
    return (
        f'<img class="still" alt="{html.escape(plot.alt)}" width="{width}" '
        f'style="max-width:100%;height:auto{_least(plot)};background:#fff" '
        f'src="data:image/svg+xml,{source.replace(chr(39), "%27")}">'
    )


def _least(plot: Plot) -> str:
    """Return the style that keeps a wide picture readable by scrolling."""
    found = re.search(r'^<svg [^>]*(;min-width:\d+px)"', plot.svg)
    return found[1] if found else ""


def _every(table: Table) -> int:
    return max(1, -(-len(table.rows) // ROWS_SHOWN))


def _rows_html(table: Table | None) -> str:
    if table is None:
        return ""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.head)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in table.rows[:: _every(table)]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


@functools.cache
def script_of(*names: str) -> str:
    """Return a script element with the given files of this folder, in order."""
    folder = resources.files("course_lib.plotting")
    source = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    lines = [re.sub(r"(^|\s+)//\s.*", "", line.strip()) for line in source.splitlines()]
    code = "\n".join(filter(None, lines))
    return f"<script>(() => {{\n{code}\n}})();</script>"
