"""Display Python source with highlighting, optionally as a difference.

Keywords and names are bold, comments and docstrings italic, in the page's own color. Added and
removed lines have a sign in front and a tinted background.
"""

import difflib
import html

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.style import Style
from pygments.token import Comment, Keyword, Name, Operator, String

from course_lib.plotting.colors import NEGATIVE, POSITIVE, rgb
from course_lib.plotting.display import put

_SIGNS = {"-": ("del", NEGATIVE), "+": ("ins", POSITIVE)}


class _Quiet(Style):
    """A style without colors, because the page's own work in light and dark themes."""

    styles = {  # noqa: RUF012  (as Pygments has it)
        Keyword: "bold",
        Operator.Word: "bold",
        Name.Function: "bold",
        Name.Class: "bold",
        Comment: "italic",
        String.Doc: "italic",
    }


def show_source(source: str, *, against: str | None = None, title: str | None = None) -> None:
    """Display Python source below a title, as the difference from `against` if given."""
    before = source if against is None else against
    old, new = iter(_highlighted(before)), iter(_highlighted(source))
    plain, rows = [], []
    for row in difflib.ndiff(before.splitlines(), source.splitlines()):
        sign, line = row[0], row[2:]
        if sign == "?":  # marks differences within a line
            continue
        gone = next(old) if sign in " -" else ""
        markup = gone if sign == "-" else next(new)
        plain.append(f"{sign} {line}".rstrip())
        if sign == " ":
            rows.append(f"  {markup}\n")
            continue
        tag, color = _SIGNS[sign]
        red, green, blue = (round(255 * part) for part in rgb(color))
        style = f"text-decoration:none;background:rgb({red} {green} {blue}/0.18)"
        rows.append(f'<{tag} style="{style}">{sign} {markup}\n</{tag}>')
    words = f"<figcaption><b>{html.escape(title)}</b></figcaption>" if title else ""
    look = "white-space:pre-wrap;overflow-wrap:anywhere;background:none;margin:0;line-height:1.4"
    code = f'<pre style="{look}">{"".join(rows)}</pre>'
    page = f'<figure class="course-source" style="margin:0.8em 0">{words}{code}</figure>'
    said = source if against is None else "\n".join(plain)
    put(f"{title}\n{said}" if title else said, lambda: page)


def _highlighted(source: str) -> list[str]:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    formatter = HtmlFormatter(nowrap=True, noclasses=True, style=_Quiet)
    made = highlight(source, lexer, formatter).removesuffix("\n")
    return made.split("\n")[: len(source.splitlines())]
