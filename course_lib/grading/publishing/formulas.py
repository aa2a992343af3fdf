"""Convert formulas of a feedback page to MathML, which browsers draw without scripts or network.

Markdown must not see formulas, because it would take their underscores for emphasis. They are
therefore set aside before it is parsed, and put back into the sanitized HTML.
"""

import functools
import html
import re
from collections.abc import Callable
from xml.etree import ElementTree

import latex2mathml.converter

LONGEST = 1000  # characters of one formula
MOST = 100  # formulas drawn in one text; the rest stays as it was written
_MATHML = "http://www.w3.org/1998/Math/MathML"
_ATTRIBUTES = {  # safe ones, without `href`, `style` or `class`
    "accent", "columnalign", "columnspacing", "depth", "display", "displaystyle", "fence", "form",
    "height", "largeop", "linethickness", "lspace", "mathsize", "mathvariant", "maxsize", "minsize",
    "movablelimits", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy", "symmetric",
    "voffset", "width", "xmlns",
}  # fmt: skip
# A formula contains no backquote or blank line, so `$HOME` in code is not a formula.
_TEX = r"(?:[^$`\n]|\n(?!\s*\n))++"
_FORMULA = re.compile(
    rf"\\[\\$]|\$\$(?P<display>{_TEX})\$\$|\$(?!\s)(?P<inline>{_TEX})(?<![\s\\])\$(?!\d)"
)
_START, _END = "\ue000", "\ue001"  # Markdown does not change private-use characters
_MARK = re.compile(rf"{_START}(?P<number>\d{{1,5}}){_END}")
_CODE_TAG_OR_MARK = re.compile(
    rf"<(?P<tag>pre|code)\b.*?</(?P=tag)>|<[^>]*>|{_MARK.pattern}", re.DOTALL
)


def with_formulas(source: str, render: Callable[[str], str]) -> str:
    """Return the HTML that `render` makes of a text, with the formulas outside of code drawn."""
    formulas: dict[int, re.Match[str]] = {}

    def set_aside(found: re.Match[str]) -> str:
        if found[0].startswith("\\"):  # an escaped dollar or backslash
            return found[0]
        formulas[len(formulas)] = found
        return f"{_START}{len(formulas) - 1}{_END}"

    def as_written(mark: re.Match[str]) -> str:
        # A student could write such characters as entities. Each formula is put back only once, so
        # that a short text cannot become a long page.
        formula = formulas.pop(int(mark["number"]), None)
        return html.escape(formula[0]) if formula else ""

    def put_back(found: re.Match[str]) -> str:
        if found["number"] is None:
            return _MARK.sub(as_written, found[0])
        number = int(found["number"])
        drawn = None
        if number < MOST and (formula := formulas.get(number)):
            tex, display = formula["inline"], formula["display"]
            drawn = _mathml(display or tex, "block" if display else "inline")
        written = as_written(found)
        return drawn or written

    text = source.replace(_START, "").replace(_END, "")
    return _CODE_TAG_OR_MARK.sub(put_back, render(_FORMULA.sub(set_aside, text)))


@functools.lru_cache(maxsize=500)
def _mathml(tex: str, display: str) -> str | None:
    """Return the formula as a `<math>` element, or None if it cannot be converted or is unsafe."""
    if len(tex) > LONGEST:
        return None
    try:
        root = ElementTree.fromstring(latex2mathml.converter.convert(tex, display=display))
    except Exception:  # the library raises many types of errors
        return None
    for node in root.iter():
        if not set(node.attrib) <= _ATTRIBUTES or not node.tag.startswith(f"{{{_MATHML}}}m"):
            return None
    ElementTree.register_namespace("", _MATHML)
    return ElementTree.tostring(root, encoding="unicode")
