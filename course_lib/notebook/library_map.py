"""Show a student's own library as the parts of a Transformer, with theirs filled.

The student's own parts have a thick border, a fill, bold words and a check mark. Parts that are
still the course's have a dashed border. Data flows from top to bottom.
"""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

OWN = "#4c7d92"  # at least 3 to 1 against light and dark pages
FRAMES = {1: "block × N", 2: "inside each attention"}
MARK = "✓"
_DOWN = '<div aria-hidden="true" style="text-align:center;line-height:1.1">↓</div>'
_BOX = "border:1px solid #777;border-radius:5px;padding:4px 6px;margin:3px 0"
_CHIP = "display:inline-block;border-radius:4px;padding:0 5px;margin:2px;overflow-wrap:anywhere;"
_THEIRS = f"{_CHIP}border:2px solid {OWN};background:{OWN}59;font-weight:700"
_COURSES = f"{_CHIP}border:1px dashed #777"


class Part(NamedTuple):
    """A part of a Transformer.

    Attributes:
        name: what it is called.
        depth: 0 outside the blocks, 1 in a block, 2 in its attention, -1 outside the model.
        exercises: the exercises whose answers it consists of.
    """

    name: str
    depth: int
    exercises: tuple[str, ...]


def library_map(parts: Sequence[Part], own: Collection[str]) -> str:
    """Return HTML that shows the parts of a Transformer, with the student's own filled.

    Args:
        parts: the parts in the order of the computation, equal depths next to each other.
        own: the exercises whose answers are the student's own.
    """
    names = [name for part in parts for name in part.exercises]
    count = sum(name in own for name in names)
    label = f"The parts of a Transformer: {count} of {len(names)} are your own"
    legend = f'<span style="{_THEIRS}">{MARK} your own</span>'
    legend += f'<span style="{_COURSES}">still the course\'s</span>'
    return (
        f'<div role="group" aria-label="{label}" style="max-width:40em;font-size:12px">'
        f"{_stack(parts, own, 0)}<p>{legend}</p></div>"
    )


def _stack(parts: Sequence[Part], own: Collection[str], level: int) -> str:
    """Put the parts below each other, those that are deeper than `level` in a frame."""
    stacked = ""
    for is_deeper, group in groupby(parts, lambda part: part.depth > level):
        if is_deeper:
            inside = _stack(list(group), own, level + 1)
            title = f'<div style="text-align:right">{FRAMES[level + 1]}</div>'
            stacked += (_DOWN if stacked else "") + f'<div style="{_BOX}">{title}{inside}</div>'
            continue
        for part in group:
            chips = "".join(
                f'<code style="{_THEIRS}">{MARK} {name}</code>'
                if name in own
                else f'<code style="{_COURSES}">{name}</code>'
                for name in part.exercises
            )
            stacked += _DOWN if stacked and part.depth >= 0 else ""
            stacked += f'<div style="{_BOX}"><strong>{part.name}</strong> {chips}</div>'
    return stacked
