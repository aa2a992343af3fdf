"""Cell ids that stay the same when cells are added elsewhere: section heading plus ordinal."""

import re

_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_NUMBER = re.compile(r"^\d+[.):]*\s+")
_FENCE = re.compile(r"^(```|~~~)")
_LONGEST = 48  # nbformat allows 64 in all


class CellIds:
    """Hands out an id for each narrative cell, in document order."""

    def __init__(self) -> None:
        self._sections: dict[str, int] = {}
        self._section, self._ordinal = "start", 0

    def next(self, markdown: str | None = None) -> str:
        """Returns the id of the next cell; a heading in `markdown` starts a new section."""
        heading = first_heading(markdown) if markdown else None
        if heading:
            slug = slugify(heading)
            self._sections[slug] = self._sections.get(slug, 0) + 1
            again = self._sections[slug]
            self._section, self._ordinal = (slug if again == 1 else f"{slug}_{again}"), 0
        self._ordinal += 1
        return f"{self._section}-{self._ordinal}"


def slugify(heading: str) -> str:
    """Returns `heading` as lower-case words joined by hyphens, without a section number."""
    words = re.findall(r"[a-z0-9]+", _NUMBER.sub("", heading.lower()))
    return "-".join(words)[:_LONGEST].strip("-") or "section"


def first_heading(markdown: str) -> str | None:
    """Returns the text of the first heading outside code fences."""
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.match(line)
        if found:
            return found[1]
    return None
