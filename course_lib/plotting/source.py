"""Python source on a page: highlighted, and where there is something to compare, as a difference.

Keywords and names are bold, comments and docstrings italic, in the page's own ink; lines that are
new or gone have a sign in front and a tinted ground.
"""

import difflib
import html

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.style import Style
from pygments.token import Comment, Keyword, Name, Operator, String

from course_lib.plotting.colours import NEGATIVE, POSITIVE, rgb
from course_lib.plotting.display import put

_SIGNS = {" ": None, "-": ("del", NEGATIVE), "+": ("ins", POSITIVE)}


class _Quiet(Style):
    """No colours: those of the page hold in light and dark."""

    styles = {  # noqa: RUF012  (as Pygments has it)
        Keyword: "bold",
        Operator.Word: "bold",
        Name.Function: "bold",
        Name.Class: "bold",
        Comment: "italic",
        String.Doc: "italic",
    }


def show_source(source: str, *, against: str | None = None, title: str | None = None) -> None:
    """Display Python source below a title; with `against` as what has changed from that."""
    lines = _difference(source, against)
    plain = "\n".join(f"{sign} {line}".rstrip() for sign, line, _ in lines)
    if against is None:
        plain = source
    put(f"{title}\n{plain}" if title else plain, lambda: _page(lines, title))


def _difference(source: str, against: str | None) -> list[tuple[str, str, str]]:
    """Return `(sign, line, highlighted line)`, where the sign is a space, a plus or a minus."""
    against = source if against is None else against
    old, new = iter(_highlighted(against)), iter(_highlighted(source))
    lines = []
    for row in difflib.ndiff(against.splitlines(), source.splitlines()):
        sign, line = row[0], row[2:]
        if sign != "?":  # a hint at what differs within a line
            before = next(old) if sign in " -" else ""
            lines.append((sign, line, before if sign == "-" else next(new)))
    return lines


def _highlighted(source: str) -> list[str]:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    formatter = HtmlFormatter(nowrap=True, noclasses=True, style=_Quiet)
    made = highlight(source, lexer, formatter).removesuffix("\n")
    return made.split("\n")[: len(source.splitlines())]


def _page(lines: list[tuple[str, str, str]], title: str | None) -> str:
    rows = []
    for sign, _, markup in lines:
        if _SIGNS[sign] is None:
            rows.append(f"  {markup}\n")
            continue
        tag, colour = _SIGNS[sign]
        red, green, blue = (round(255 * part) for part in rgb(colour))
        style = f"text-decoration:none;background:rgb({red} {green} {blue}/0.18)"
        rows.append(f'<{tag} style="{style}">{sign} {markup}\n</{tag}>')
    words = f"<figcaption><b>{html.escape(title)}</b></figcaption>" if title else ""
    look = "white-space:pre-wrap;overflow-wrap:anywhere;background:none;margin:0;line-height:1.4"
    code = f'<pre style="{look}">{"".join(rows)}</pre>'
    return f'<figure class="course-source" style="margin:0.8em 0">{words}{code}</figure>'
