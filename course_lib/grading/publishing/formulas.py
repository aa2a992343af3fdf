"""Formulas of a feedback page as MathML, which browsers draw without script and network.

The page's Markdown comes from nbconvert with `$...$` and `$$...$$` as they were written, perhaps
by a student: what cannot be converted, or asks for more than drawing, stays as text.
"""

import functools
import html
import re
from xml.etree import ElementTree

import latex2mathml.converter

LONGEST = 2000  # characters of one formula
_MATHML = "http://www.w3.org/1998/Math/MathML"
_LOOKS = {  # the attributes that draw; `href`, `style`, `class` and the like do not pass
    "accent", "columnalign", "columnspacing", "depth", "display", "displaystyle", "fence", "form",
    "height", "largeop", "linethickness", "lspace", "mathsize", "mathvariant", "maxsize", "minsize",
    "movablelimits", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy", "symmetric",
    "voffset", "width", "xmlns",
}  # fmt: skip
_SKIP = r"<(?P<tag>pre|code)\b.*?</(?P=tag)>|<[^>]*>|\\\$"
_FORMULA = re.compile(
    rf"(?P<skip>{_SKIP})|\$\$(?P<display>[^$]+)\$\$|\$(?P<inline>[^$\s](?:[^$]*[^$\s])?)\$(?!\d)",
    re.DOTALL,
)


def with_formulas(page: str) -> str:
    """HTML with each formula outside of code drawn by MathML."""
    return _FORMULA.sub(_drawn, page)


def _drawn(found: re.Match[str]) -> str:
    if found["skip"]:
        return found[0]
    display = found["display"] is not None
    return _mathml(html.unescape(found["display" if display else "inline"]), display) or found[0]


@functools.lru_cache(maxsize=2000)
def _mathml(tex: str, display: bool) -> str | None:
    """The formula as a `<math>` element, or None if it is no formula that can be drawn."""
    if len(tex) > LONGEST:
        return None
    try:
        made = latex2mathml.converter.convert(tex, display="block" if display else "inline")
        root = ElementTree.fromstring(made)
    except Exception:  # whatever the library does with text that is no TeX
        return None
    for node in root.iter():
        if not set(node.attrib) <= _LOOKS or not node.tag.startswith(f"{{{_MATHML}}}m"):
            return None
    ElementTree.register_namespace("", _MATHML)
    return ElementTree.tostring(root, encoding="unicode")
