"""Examine HTML in tests: its words, its colors, and what it would load or run."""

import html.parser
import re
from xml.etree import ElementTree

_RUNS = {"script", "iframe", "object", "embed", "link", "base", "form", "meta"}
_WITHIN_A_WORD = {"a", "code", "em", "span", "strong"}
_LOADS = {"src", "srcset", "href", "data", "poster", "background", "action"}


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.text, self.loads, self.inside = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        if tag not in _WITHIN_A_WORD:
            self.text.append(" ")
        if tag in _RUNS and not (tag == "meta" and "http-equiv" not in dict(attrs)):
            self.loads.append(f"<{tag}>")
        for name, value in attrs:
            away = name in _LOADS and not re.match(r"#|data:|[\w./%-]+(#\w+)?$", value or "")
            styled = name == "style" and re.search(r"url\(|@import|expression", value or "")
            if away or styled or name.startswith("on"):
                self.loads.append(f"{name}={value}")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "style":
            self.loads += re.findall(r"url\((?!['\"]?data:).*?\)|@import.*", data)
        else:
            self.text.append(data)


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    return reader


def words_of(page: str) -> set[str]:
    """Return the words of a page or plain text, without punctuation at their ends."""
    return {word.strip(":;,.") for word in "".join(_read(page).text).split()} - {""}


def what_it_loads(page: str) -> list[str]:
    """Return the scripts, event handlers and external resources of a page."""
    return _read(page).loads


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    """Return the elements of one kind in a picture, parsed as a browser would."""
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def contrast(*colors):
    """Return the contrast of two colors such as `#ff0000`, as WCAG 2 defines it, 1 to 21."""
    luminances = []
    for color in colors:
        parts = [part / 255 for part in bytes.fromhex(color[1:])]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        red, green, blue = linear
        luminances.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)
