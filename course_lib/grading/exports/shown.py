"""How an export shows names and text from a file in its messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 80


def shown(text: str) -> str:
    """Text from a file or a gradebook on one line of a terminal."""
    line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names in one line, the many cut short."""
    names = [shown(name) for name in names]
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def nearest(wanted: str, names: Iterable[str]) -> str:
    """A sentence "Did you mean X? " where something is near, else nothing."""
    by_folded = {name.casefold(): name for name in names}
    found = difflib.get_close_matches(wanted.casefold(), by_folded, n=1)
    found = found or [name for name in by_folded if wanted.casefold() in name]
    return f"Did you mean {shown(by_folded[found[0]])!r}? " if found else ""
