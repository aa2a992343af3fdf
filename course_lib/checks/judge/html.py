"""Pieces of HTML that reports, hints and the table of progress are made of.

They take text and background from the page around them, so they are legible in JupyterLab, VS Code,
Colab and on a page, light, dark or with forced colours; no script, style sheet or resource. The one
colour of their own is a bar at the side, visible on white and on black, that no meaning hangs on.
"""

import html
from collections.abc import Iterable, Sequence

# At least 3 to 1 against white and against the darkest editors; a test computes it.
BARS = {"good": "#1a7f37", "bad": "#b35900", "neutral": "#6e7781", "hint": "#0969da"}
_BLOCK = "padding:.3em .9em;margin:.4em 0;line-height:1.5;font-family:system-ui,sans-serif"
_LISTING = (
    "margin:.6em 0;padding:0;background:transparent;color:inherit;"
    "font-family:ui-monospace,monospace"
)
_CELL = "text-align:{};padding:.15em .8em .15em 0;vertical-align:top"


def block(bar: str, parts: Iterable[str], *, announced: bool = False) -> str:
    """A block with a bar at its side; a screen reader announces it where `announced` is true."""
    role = ' role="status"' if announced else ""
    return "\n".join(
        [
            f'<div lang="en"{role} style="border-left:4px solid {BARS[bar]};{_BLOCK}">',
            *parts,
            "</div>",
        ]
    )


def paragraph(content: str, *, small: bool = False) -> str:
    """A paragraph around HTML."""
    size = ";font-size:90%" if small else ""
    return f'<p style="margin:.3em 0{size}">{content}</p>'


def inline(text: str) -> str:
    """Text as HTML, with `code` set between backquotes."""
    pieces = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def hidden(symbol: str) -> str:
    """A symbol that repeats what words beside it say: a screen reader leaves it out."""
    return f'<span aria-hidden="true">{symbol}</span>'


def listing(text: str, label: str) -> str:
    """Lines that must not be wrapped; scrolled, by keyboard too, where they are too wide."""
    return (
        f'<pre tabindex="0" role="group" aria-label="{html.escape(label)}" '
        f'style="{_LISTING};overflow-x:auto">{html.escape(text)}</pre>'
    )


def numbers_beside(
    name: str,
    yours: Sequence[Sequence[str]],
    expected: Sequence[Sequence[str]],
    mark: str,
) -> str:
    """Two small tables of numbers side by side, or one below the other on a narrow page.

    Args:
        name: what the numbers are.
        yours: rows of the student's numbers; those that differ end in `mark`.
        expected: rows of what the definition gives; none if there is nothing to compare with.
        mark: set in bold with its number and framed, so that it does not hang on a colour.
    """
    tables = [_grid(f"{html.escape(name)}, yours:", yours, mark)]
    if expected:
        tables.append(_grid("by the definition:", expected, mark))
    inside = "\n".join(tables)
    return (
        f'<div tabindex="0" role="group" aria-label="{html.escape(name)}" '
        f'style="display:flex;flex-wrap:wrap;gap:.2em 2em;overflow-x:auto">{inside}</div>'
    )


def _grid(caption: str, rows: Sequence[Sequence[str]], mark: str) -> str:
    lines = [f'<table style="{_GRID}"><caption style="{_CAPTION}">{caption}</caption>']
    for row in rows:
        cells = []
        for number in row:
            differs = number.endswith(mark)
            text = f"<strong>{html.escape(number)}</strong>" if differs else html.escape(number)
            border = "1px solid currentColor" if differs else "1px solid transparent"
            cells.append(f'<td style="{_NUMBER};border:{border}">{text}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>"])


_GRID = (
    "border-collapse:separate;border-spacing:2px;margin:.3em 0;font-family:ui-monospace,monospace"
)
_CAPTION = "text-align:left;caption-side:top;white-space:nowrap;color:inherit;padding:0"
_NUMBER = "text-align:right;padding:.1em .45em;background:transparent;color:inherit"


def table(caption: str, columns: Sequence[str], groups: Iterable[Sequence[Sequence[str]]]) -> str:
    """A table of HTML cells.

    Args:
        caption: what it shows.
        columns: headings of the columns.
        groups: rows that belong together; the first cell of a group's first row names the group,
            the second cell of each row names the row.
    """
    left = _CELL.format("left")
    heads = "".join(f'<th scope="col" style="{left}">{name}</th>' for name in columns)
    lines = [
        '<table style="border-collapse:collapse">',
        f'<caption style="text-align:left;padding:.2em 0">{caption}</caption>',
        f"<thead><tr>{heads}</tr></thead>",
    ]
    for rows in groups:
        lines.append("<tbody>")
        for number, (group, name, *cells) in enumerate(rows):
            first = f'<th scope="rowgroup" rowspan="{len(rows)}" style="{left}">{group}</th>'
            line = "" if number else first
            line += f'<th scope="row" style="{left};font-weight:normal">{name}</th>'
            line += "".join(f'<td style="{left}">{cell}</td>' for cell in cells)
            lines.append(f"<tr>{line}</tr>")
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>"])
