"""Draw a student's own library, the parts of a Transformer with theirs filled, or a certificate.

Theirs have a thick border, a fill, bold words and a check mark; those that are still the course's
have a dashed border. Numbers go through the parts from top to bottom.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from course_lib.plotting.colours import SERIES
from course_lib.plotting.diagram_layout import SMALLEST
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.svg import arrow, drawing, element, text

OWN = SERIES[0]
WIDTH, SHOWN = 360.0, 1.15  # units, and pixels per unit if there is room
LETTER = SMALLEST * 0.61  # width of a letter in a monospaced font
BOLD = 8.4  # average width of a letter in a part's name
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
CHIP, GAP, INSET, BETWEEN = 19.0, 4.0, 9.0, 14.0
FRAMES = {1: "block × N", 2: "inside each attention"}
MARK = "✓"
MARGIN, HEAD = 20.0, 84.0  # around and above the certificate


class Part(NamedTuple):
    """A part of a Transformer.

    Attributes:
        name: what it is called.
        depth: 0 outside of the blocks, 1 in a block, 2 in its attention, -1 beside it all.
        exercises: those that make it.
    """

    name: str
    depth: int
    exercises: tuple[str, ...]


class _Chip(NamedTuple):
    words: str
    left: float
    top: float
    width: float
    is_own: bool


def library_map(parts: Sequence[Part], own: Collection[str], following: Sequence[str] = ()) -> Plot:
    """Draw the parts of a Transformer, with the student's own filled.

    Args:
        parts: in the order in which numbers go through them, equal depths next to each other.
        own: the exercises whose answers are the student's own.
        following: the exercises that come next.
    """
    drawn, y = _stack(parts, own)
    return Plot(
        drawing(drawn + _legend(y + 16), WIDTH, y + 30, WIDTH * SHOWN),
        _words(parts, own, following),
        _table(parts, own),
    )


def certificate(
    parts: Sequence[Part], own: Collection[str], title: str, lines: Sequence[str]
) -> Plot:
    """Draw the library's picture in a double frame, with a title.

    Args:
        parts, own: as for `library_map`.
        title: the large words above.
        lines: one or two smaller ones beneath it.
    """
    inner = library_map(parts, own)
    start, _, rest = inner.svg.partition(">")
    height = float(start.partition('viewBox="')[2].partition('"')[0].split()[3])
    width, whole = WIDTH + 2 * MARGIN, height + HEAD + MARGIN
    frames = "".join(
        element(
            "rect", x=inset, y=inset, width=width - 2 * inset, height=whole - 2 * inset, rx=6,
            fill="none", stroke=OWN, stroke_width=stroke,
        )
        for inset, stroke in ((3, 3.0), (8, 1.0))
    )  # fmt: skip
    words = text(title, width / 2, 32, 19, font_weight=700)
    words += "".join(text(line, width / 2, 54 + 16 * i, 12) for i, line in enumerate(lines))
    picture = element("g", rest.removesuffix("</svg>"), transform=f"translate({MARGIN:g} {HEAD:g})")
    alt = f"{title}. {' '.join(f'{line}.' for line in lines)} {inner.alt}"
    return replace(
        inner, figure=drawing(frames + words + picture, width, whole, width * SHOWN), alt=alt
    )


def _stack(parts: Sequence[Part], own: Collection[str]) -> tuple[str, float]:
    """Draw the parts below each other in their frames, and return where the last one ends."""
    drawn, y, tops = [], 4.0, []  # tops of the open frames
    depths = [max(part.depth, 0) for part in parts]
    for i, (part, depth) in enumerate(zip(parts, depths, strict=True)):
        if i > 0:
            y += BETWEEN if part.depth >= 0 else BETWEEN + GAP
            drawn += [_arrow(y - BETWEEN, y - 2)] if part.depth >= 0 else []
        while len(tops) < depth:
            tops.append(y)
            y += 17
        markup, y = _part(part, own, y)
        drawn.append(markup)
        following = depths[i + 1] if i + 1 < len(depths) else 0
        while len(tops) > following:
            y += INSET
            drawn.append(_frame(len(tops), tops.pop(), y - GAP))
    return "".join(drawn), y


def _part(part: Part, own: Collection[str], top: float) -> tuple[str, float]:
    """Draw a part's name and a chip for each exercise from `top` on; return where it ends, too."""
    inset = INSET * max(part.depth, 0)
    left, right = 2 + inset, WIDTH - 2 - inset
    chips = list(_chips(part, own, left + 8, right - 6, top + 5))
    bottom = chips[-1].top + CHIP + 5
    outline = element(
        "rect", x=left, y=top, width=right - left, height=bottom - top, rx=4, fill="currentColor",
        fill_opacity=0.05, stroke="currentColor", stroke_width=1.0, stroke_opacity=0.6,
    )  # fmt: skip
    title = text(part.name, left + 8, top + 5 + CHIP / 2, 12, text_anchor="start", font_weight=700)
    return element("g", outline + title + "".join(map(_chip, chips)), class_="part"), bottom


def _chips(
    part: Part, own: Collection[str], left: float, right: float, top: float
) -> Iterator[_Chip]:
    x = left + BOLD * len(part.name) + 8
    for name in part.exercises:
        words = f"{MARK} {name}" if name in own else name
        width = LETTER * len(words) + 9
        if x + width > right:
            x, top = left, top + CHIP + GAP
        yield _Chip(words, x, top, width, name in own)
        x += width + GAP


def _chip(chip: _Chip) -> str:
    kind = (
        {"fill": OWN, "fill_opacity": 0.35, "stroke": OWN, "stroke_width": 2.2}
        if chip.is_own
        else {
            "fill": "none", "stroke": "currentColor", "stroke_width": 1.0, "stroke_opacity": 0.6,
            "stroke_dasharray": "3 2",
        }
    )  # fmt: skip
    outline = element("rect", x=chip.left, y=chip.top, width=chip.width, height=CHIP, rx=4, **kind)
    weight = 700 if chip.is_own else None
    words = text(
        chip.words, chip.left + chip.width / 2, chip.top + CHIP / 2, SMALLEST, font_family=MONO,
        font_weight=weight,
    )  # fmt: skip
    return element("g", outline + words, class_="own" if chip.is_own else "course")


def _frame(level: int, top: float, bottom: float) -> str:
    inset = INSET * (level - 1)
    line = element(
        "rect", x=2 + inset, y=top, width=WIDTH - 4 - 2 * inset, height=bottom - top, rx=6,
        fill="none", stroke="currentColor", stroke_width=1.0, stroke_opacity=0.5,
    )  # fmt: skip
    words = text(FRAMES[level], WIDTH - 10 - inset, top + 9, SMALLEST, text_anchor="end")
    return line + element("g", words, opacity=0.8)


def _arrow(top: float, bottom: float) -> str:
    return element("g", arrow([(WIDTH / 2, top), (WIDTH / 2, bottom)], 1.0), opacity=0.6)


def _legend(y: float) -> str:
    own = _Chip(f"{MARK} your own", 2, y - CHIP / 2, LETTER * 10 + 9, True)
    left = own.left + own.width + 2 * GAP
    courses = _Chip("still the course's", left, y - CHIP / 2, LETTER * 18 + 9, False)
    return element("g", _chip(own) + _chip(courses), class_="legend")


def _words(parts: Sequence[Part], own: Collection[str], following: Sequence[str]) -> str:
    names = [name for part in parts for name in part.exercises]
    count = sum(name in own for name in names)
    each = [f"{part.name} {_count(part, own)} of {len(part.exercises)}" for part in parts]
    following_words = f" Next: {', '.join(following)}." if following else ""
    return (
        f"The parts of a Transformer: {count} of {len(names)} are your own.{following_words} "
        f"Part by part: {', '.join(each)}."
    )


def _count(part: Part, own: Collection[str]) -> int:
    return sum(name in own for name in part.exercises)


def _table(parts: Sequence[Part], own: Collection[str]) -> Table:
    rows = [
        (
            part.name,
            ", ".join(name for name in part.exercises if name in own) or "none",
            ", ".join(name for name in part.exercises if name not in own) or "none",
        )
        for part in parts
    ]
    return Table(("Part", "Your own", "Still the course's"), rows)
