"""Make the pieces of HTML for reports, hints and the table of progress.

They inherit text and background colors, so they are legible in JupyterLab, VS Code, Colab and web
pages, whether light, dark or with forced colors. They use no scripts, style sheets or resources.
They color only a side bar, which is visible on white and black and has no meaning.
"""

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence

MARK = "\N{NARROW NO-BREAK SPACE}≠"  # follows a number that differs from the expected one
# At least 3 to 1 against white and against the darkest editors; a test computes it.
BARS = {"good": "#1a7f37", "bad": "#b35900", "neutral": "#6e7781", "hint": "#0969da"}
_BLOCK = "padding:.3em .9em;margin:.4em 0;line-height:1.5;font-family:system-ui,sans-serif"
_LISTING = (
    "margin:.6em 0;padding:0;background:transparent;color:inherit;"
    "font-family:ui-monospace,monospace"
)
_BAR = "display:inline-block;width:12em;height:.6em;border:1px solid currentColor"
_FILLED = f"display:block;height:100%;background:{BARS['good']}"
_CELL = "text-align:left;padding:.15em .8em .15em 0"


def block(bar: str, parts: Iterable[str], *, announced: bool = False) -> str:
    """Return a block with a colored left border, announced to screen readers on request."""
    role = ' role="status"' if announced else ""
    return "\n".join(
        [
            f'<div lang="en"{role} style="border-left:4px solid {BARS[bar]};{_BLOCK}">',
            *parts,
            "</div>",
        ]
    )


def paragraph(content: str, *, small: bool = False) -> str:
    """Return a paragraph around HTML."""
    size = ";font-size:90%" if small else ""
    return f'<p style="margin:.3em 0{size}">{content}</p>'


def inline(text: str) -> str:
    """Return text as HTML, with `code` set between backquotes."""
    pieces = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def hidden(symbol: str) -> str:
    """Return a decorative symbol that screen readers skip."""
    return f'<span aria-hidden="true">{symbol}</span>'


def listing(text: str, label: str) -> str:
    """Return lines that scroll instead of wrapping if they are too wide, also by keyboard."""
    return (
        f'<pre tabindex="0" role="group" aria-label="{html.escape(label)}" '
        f'style="{_LISTING};overflow-x:auto">{html.escape(text)}</pre>'
    )


def folded(summary: str, content: str) -> str:
    """Return HTML that one click opens."""
    return f'<details style="margin:.3em 0"><summary>{summary}</summary>{content}</details>'


def bar(done: float, total: float) -> str:
    """Return a progress bar that screen readers skip."""
    filled = f'<span style="{_FILLED};width:{done / total:.1%}"></span>'
    return f'<span aria-hidden="true" style="{_BAR}">{filled}</span>'


def numbers_beside(name: str, tables: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return small tables of numbers side by side, or stacked on a narrow page.

    A column is equally wide in all of them, so that stacked tables can be compared straight down.
    """
    columns = itertools.zip_longest(*itertools.chain(*tables.values()), fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    grids = (_grid(html.escape(caption), rows, widths) for caption, rows in tables.items())
    inside = "\n".join(grids)
    return (
        f'<div tabindex="0" role="group" aria-label="{html.escape(name)}" '
        f'style="display:flex;flex-wrap:wrap;gap:.2em 2em;overflow-x:auto">{inside}</div>'
    )


def _grid(caption: str, rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    # A <caption> that is wider than the numbers would move them to its right end, off a phone.
    lines = [f'<figure style="{_FIGURE}"><figcaption style="{_CAPTION}">{caption}</figcaption>']
    lines.append(f'<table style="{_GRID}">')
    for row in rows:
        cells = []
        for number, width in zip(row, widths, strict=False):
            differs = number.endswith(MARK)
            text = f"<strong>{html.escape(number)}</strong>" if differs else html.escape(number)
            border = "1px solid currentColor" if differs else "1px solid transparent"
            look = f"{_NUMBER};min-width:{width}ch;border:{border}"
            cells.append(f'<td style="{look}">{text}</td>')
        lines.append(f'<tr style="{_PLAIN}">{"".join(cells)}</tr>')
    return "\n".join([*lines, "</table></figure>"])


_PLAIN = "background:transparent!important"  # against Jupyter's stripes and hover color
_FIGURE = "margin:.3em 0;max-width:100%;font-family:ui-monospace,monospace"
_GRID = "border-collapse:separate;border-spacing:2px;margin:0"
_CAPTION = "text-align:left;color:inherit"
_NUMBER = f"text-align:right;padding:.1em .45em;{_PLAIN};color:inherit"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table of HTML cells. The first cell of a row is its header."""
    lines = ['<table style="border-collapse:collapse;margin:.3em 0">']
    for name, *cells in rows:
        line = f'<th scope="row" style="{_CELL};font-weight:normal">{name}</th>'
        line += "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
        lines.append(f'<tr style="{_PLAIN}">{line}</tr>')
    return "\n".join([*lines, "</table>"])
