"""Convert texts of a feedback page to HTML, in time proportional to their length.

Markdown goes through cmark, GitHub's parser, whose running time is linear, and then through the
sanitizer ammonia. If either step would cost too much, the text is shown as it was written.
"""

import functools

import cmarkgfm
import nh3
from cmarkgfm.cmark import Options
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course_lib.grading.clean_outputs import sanitize_prose
from course_lib.grading.publishing.formulas import with_formulas
from course_lib.workspace.text import plain_text

LONGEST = 10_000  # characters; longer text is only escaped, since pygments can be quadratic
# Nested quotations and wide tables can make a page that is hundreds of times as long as its text,
# and the sanitizer takes quadratic time for deep nesting. Ordinary Markdown grows up to tenfold.
_GROWTH = 12
_SANITIZER = nh3.Cleaner(
    tags={
        *("a", "b", "blockquote", "br", "code", "del", "details", "div", "em", "h1", "h2", "h3"),
        *("h4", "h5", "h6", "hr", "i", "li", "ol", "p", "pre", "s", "strong", "sub", "summary"),
        *("sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
    },
    attributes={"*": set(), "a": {"href"}, "ol": {"start"}, "td": {"align"}, "th": {"align"}},
    url_schemes={"http", "https", "mailto"},
)


def written(source: str) -> Markup:
    """Return a student's or an instructor's Markdown as HTML; tags in it are shown as text."""
    return lesson_text(sanitize_prose(source))


# Most texts of a lesson are the same for everyone, and cmarkgfm never frees what it has parsed.
@functools.lru_cache(maxsize=200)
def lesson_text(source: str) -> Markup:
    """Return Markdown as HTML in which only tags that format text remain."""
    try:
        if len(source) > LONGEST:
            raise OverflowError
        return Markup(with_formulas(source, _sanitized))
    except OverflowError:
        return as_written(source)


def _sanitized(source: str) -> str:
    page = cmarkgfm.markdown_to_html_with_extensions(
        source, Options.CMARK_OPT_UNSAFE, ["autolink", "strikethrough", "table"]
    )
    if len(page) > _GROWTH * len(source) + 1000:
        raise OverflowError  # a short text became a long page
    return _SANITIZER.clean(page)


@functools.lru_cache(maxsize=200)  # most cells of a lesson are the same for everyone
def highlighted(source: str) -> Markup:
    """Return Python code as HTML with the classes of pygments."""
    if len(source) > LONGEST:
        return as_written(source)
    code = highlight(plain_text(source), PythonLexer(), HtmlFormatter(nowrap=True))
    return Markup(f'<pre tabindex="0">{code}</pre>')


def as_written(source: str) -> Markup:
    """Return a text as it was written, without control characters."""
    return Markup('<pre class="as-written" tabindex="0">{}</pre>').format(plain_text(source))
