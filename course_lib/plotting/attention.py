"""Draw the attention viewer: keys in a row, queries below, and an arc for each weight.

`attention_data` reads the arguments and describes them. This module draws the still picture, and
attention.js replaces it if scripts run. All show the same rounded weights.

All cells of one color share a `<path>`, which keeps a map of 60 x 60 weights small. Hatching is a
path, not a pattern, because the identifiers of patterns could collide on a page.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from course_lib.plotting import colors
from course_lib.plotting.attention_data import LEVELS, SHOWN_FROM, Attention, note, read, sentence
from course_lib.plotting.colors import KEY, PLAIN, SHADE, WEIGHT, of_values, rgb
from course_lib.plotting.figures import ROWS_SHOWN, Live, Plot, Table
from course_lib.plotting.svg import drawing, element, source_of, text

WIDTH, PHONE = 800, 400  # including the names of both sides
SIDE = 58  # width for these names
LINE, GAP = 46, 110  # heights of a line of boxes with numbers, and of the arcs
BOX, SMALLEST_BOX, LARGEST_BOX = 30, 21.0, 34.0
STEPS = 16  # levels of color and width
WIDEST_ARC = 6
MOST_ARCS = 600
FAINTEST_ARC = 0.02  # relative to the scale
MAPS_FROM = 5  # queries; fewer rows are too flat to read
SMALL = 110
MOST_STROKES = 200  # hatching of a small map; beyond, masked cells are only gray
LETTER = 0.6  # width of a letter, relative to its height

MASKED = 4095  # code of a masked cell, in base 64
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def attention(
    weights: Any,
    queries: Sequence[Any] | None = None,
    keys: Sequence[Any] | None = None,
    *,
    mask: Any = None,
    title: str | None = None,
    heads: Sequence[str] | None = None,
    head: int = 0,
    sides: tuple[str, str] = ("keys", "queries"),
    width: float = WIDTH,
) -> Plot:
    """Draw the keys in a row, the queries below, and an arc for each weight.

    Each key has a box, which is shaded by its weight. If scripts run, pointing at a word, touching
    it or moving to it with the arrow keys shows its own weights, with their numbers from 0.01 up,
    and Escape shows all again. A second tab has the heat map. Heads are chosen by name, with small
    maps for five queries or more. Without scripts, a picture remains. The width and color of arcs,
    boxes and cells are proportional to the weight, relative to the smallest of 1, 0.5, 0.2 and 0.1
    that the largest weight does not exceed.

    Args:
        weights: `(num_queries, num_keys)` or `(num_heads, num_queries, num_keys)` numbers from 0 to
            1, optionally with a batch axis of size 1 in front.
        queries, keys: words for the rows and columns, or a string for its characters; their numbers
            by default.
        mask: True = may attend, broadcastable to the weights of all heads. Other cells are hatched
            and have no arc.
        title: the message, above.
        heads: a name for each head; "head 0" and so on by default.
        head: the head that is shown first.
        sides: the names of the two sides, the keys' first.
        width: the largest width of the still picture. Up to 400 fit a phone.

    Raises:
        ValueError: if shapes, names and numbers do not fit each other, a weight is nan or not
            between 0 and 1, or there are more than 60 queries or keys or 12 heads.
    """
    shown = read(weights, queries, keys, mask=mask, heads=heads)
    num_heads, num_queries, _ = shown.weights.shape
    rows = []  # of the data table: for all heads if they are few, else for `head`
    for of in range(num_heads) if num_heads * num_queries <= ROWS_SHOWN else [head]:
        before = f"{shown.heads[of]}, " if num_heads > 1 else ""
        for i, name in enumerate(shown.queries.said):
            pairs = zip(shown.weights[of, i], shown.masked[of, i], strict=True)
            rows.append([before + name, *("masked" if m else f"{w:.2f}" for w, m in pairs)])
    levels = np.where(shown.masked, MASKED, np.rint(shown.weights * LEVELS).astype(int))
    data = {
        "sides": {"key": sides[0], "query": sides[1]},
        "note": " ".join(note(shown)),
        "queries": shown.queries._asdict(),
        "keys": shown.keys._asdict(),
        "heads": shown.heads,
        "head": head,
        "levels": LEVELS,
        "scale": shown.scale,
        "weights": in_digits(levels),
        "colors": colors.ROLES,
    }
    table = Table(["query", *shown.keys.said], rows)
    live, picture = Live("attention", data), _picture(shown, width, sides, head)
    return Plot(picture, sentence(shown, head), table, live=live, title=title or "")


def in_digits(numbers: np.ndarray) -> str:
    """Return whole numbers from 0 to 4095 with two digits in base 64 for each."""
    return "".join(DIGITS[n // 64] + DIGITS[n % 64] for n in numbers.flat)


def _picture(shown: Attention, most: float, names: tuple[str, str], first: int) -> str:
    """Draw the arcs of the first head, and small maps of all heads if they have enough rows."""
    many, with_maps = len(shown.heads) > 1, most > PHONE and shown.weights.shape[1] >= MAPS_FROM
    sides = (_placed(tokens.shown, most - SIDE).width for tokens in (shown.keys, shown.queries))
    width = SIDE + max(*sides, min(340.0, most - SIDE))
    parts, bottom = [], 4.0
    for head in [first] if with_maps else range(len(shown.heads)):
        if many:
            name = shown.heads[head]
            parts.append(text(name, 0, bottom + 8, 12, text_anchor="start", font_weight="bold"))
            bottom += 14
        drawn, bottom = stage(shown, head, bottom, width, names)
        parts.append(drawn)
    for words in note(shown):
        parts.append(text(words, 0, bottom + 8, 12, text_anchor="start"))
        bottom += 15
    if with_maps:
        maps, bottom = _small_maps(shown, bottom + 6, width)
        parts.append(maps)
    return drawing("".join(parts), width, bottom + 4, width if most > PHONE else 1.2 * width)


class _Places(NamedTuple):
    """The positions of the boxes of one side: their centers, lines and widths, and all lines."""

    middles: list[float]
    lines: list[int]
    widths: list[float]
    width: float

    @property
    def height(self) -> float:
        return LINE * (self.lines[-1] + 1)


def _placed(names: list[str], room: float) -> _Places:
    """Put the boxes of one side in lines of nearly the same length."""
    letters = all(len(name) == 1 for name in names)
    widths = [SMALLEST_BOX if letters else min(130.0, 14 + 9.5 * len(name)) for name in names]
    gap = 0 if letters else 8
    lines = _wrapped([width + gap for width in widths], room)
    each = max(map(lines.count, lines))
    if letters:
        widths = [min(LARGEST_BOX, room / each)] * len(names)
    else:  # spread a few words across the width
        gap = max(gap, min(60, 360 / len(names), room / each - max(widths)))
    middles, ends = [], [0.0] * (lines[-1] + 1)
    for line, width in zip(lines, widths, strict=True):
        middles.append(ends[line] + (width + gap) / 2)
        ends[line] += width + gap
    return _Places(middles, lines, widths, max(ends))


def _wrapped(widths: list[float], room: float) -> list[int]:
    """Return the line of each box: about equally long lines, few enough, shorter ones first."""
    middles, lines = np.cumsum(widths) - np.array(widths) / 2, np.zeros(0, dtype=int)
    for count in range(1, len(widths) + 1):
        lines = np.floor(middles * count / sum(widths) + 1e-9).astype(int)
        if np.bincount(lines, widths).max() <= room + 1e-6:
            break
    return np.unique(lines, return_inverse=True)[1].tolist()


def stage(
    shown: Attention,
    head: int,
    top: float,
    width: float,
    sides: tuple[str, str] = ("keys", "queries"),
) -> tuple[str, float]:
    """Draw one head's keys, arcs and queries, and return the markup and its lower end."""
    keys = _placed(shown.keys.shown, width - SIDE)
    queries = _placed(shown.queries.shown, width - SIDE)
    weights = np.where(shown.masked[head], 0, shown.weights[head])
    blocked = shown.masked[head].all(axis=0)
    boxes = _boxes(shown.keys.shown, keys, top, width)
    below = _boxes(shown.queries.shown, queries, top + keys.height + GAP - 16, width)
    parts = [_arcs(shown, weights, boxes, below)]
    strongest = weights.max(axis=0) / shown.scale
    alone = len(weights) == 1
    for i, (x, y, wide) in enumerate(boxes):
        outline = {"x": x - wide / 2 + 1, "y": y, "width": wide - 2, "height": BOX, "rx": 6}
        shade = SHADE * float(min(strongest[i], 1))
        if shade >= 0.5 / STEPS:
            parts.append(element("rect", **outline, fill=WEIGHT, fill_opacity=shade))
        parts.append(element("rect", **outline, fill="none", stroke=KEY, stroke_opacity=0.6))
        if blocked[i]:
            strokes = "".join(f"M{x - wide / 2 + a:.4g} {y + BOX:.4g}l8-{BOX}" for a in (2, 10))
            parts.append(element("path", d=strokes, stroke=PLAIN, stroke_width=1))
        parts.append(_word(shown.keys.shown[i], x, y, wide, blocked=bool(blocked[i])))
        if alone and weights[0, i] >= SHOWN_FROM:
            told = f"{weights[0, i]:.2f}"
            parts.append(text(told.removeprefix("0") if wide < 36 else told, x, y - 8, 13))
    parts += [_word(shown.queries.shown[i], *place) for i, place in enumerate(below)]
    for name, places in zip(sides, (boxes, below), strict=True):
        y = places[0][1] + BOX / 2
        parts.append(text(name, 0, y, 13, text_anchor="start", font_style="italic"))
    return "".join(parts), top + keys.height + GAP - 16 + queries.height


def _boxes(
    names: list[str], places: _Places, top: float, width: float
) -> list[tuple[float, float, float]]:
    """Return the center, top and width of each box, with its lines centered."""
    left = SIDE + (width - SIDE - places.width) / 2
    return [
        (left + places.middles[i], top + 16 + LINE * places.lines[i], places.widths[i])
        for i in range(len(names))
    ]


def _word(name: str, x: float, y: float, wide: float, *, blocked: bool = False) -> str:
    size = min(18.0, wide * LETTER) if len(name) == 1 else 16.0
    return text(
        shortened(name, wide, size), x, y + BOX / 2, size, font_weight=600,
        text_decoration="line-through" if blocked else None,
    )  # fmt: skip


def _arcs(
    shown: Attention,
    weights: np.ndarray,
    keys: list[tuple[float, float, float]],
    queries: list[tuple[float, float, float]],
) -> str:
    """Draw an arc for each of the largest weights, from above its query to below its key.

    An arc passes lines of other words between two of their boxes.
    """
    least = shown.scale * max(FAINTEST_ARC, 0.5 / STEPS)
    if (weights >= least).sum() > MOST_ARCS:
        least = np.sort(weights, axis=None)[-MOST_ARCS]

    drawn: dict[int, str] = {}  # arcs by level of color
    shares = np.where(weights >= least, weights, 0) / shown.scale
    levels = np.ceil(np.minimum(shares, 1) * STEPS - 0.5).astype(int)
    lines = [*_lines(queries), *_lines(keys)]
    for query, key in np.argwhere(levels > 0):
        (x, y, _), (x2, y2, _) = queries[query], keys[key]
        passed = [
            (min(gaps, key=lambda gap, to=x if top >= queries[0][1] else x2: abs(gap - to)), top)
            for top, gaps in lines
            if y2 < top < y
        ]
        d = f"M{x:.0f} {y:.0f}"
        for to, top in [*passed, (x2, y2)]:
            up, bend = top + BOX - y, (top + BOX - y) * 0.55
            numbers = f"0 {bend:.0f} {to - x:.0f} {up - bend:.0f} {to - x:.0f} {up:.0f}"
            d += f"c{numbers.replace(' -', '-')}" + f"v-{BOX}" * (top != y2)
            x, y = to, top
        level = int(levels[query, key])
        drawn[level] = drawn.get(level, "") + d
    paths = [
        element(
            "path", d=d, stroke_width=max(0.6, WIDEST_ARC * level / STEPS), opacity=level / STEPS
        )
        for level, d in sorted(drawn.items())
    ]
    look: dict[str, Any] = {"fill": "none", "stroke": WEIGHT, "stroke_linecap": "round"}
    return element("g", "".join(paths), **look)


def _lines(boxes: list[tuple[float, float, float]]) -> list[tuple[float, list[float]]]:
    """Return the top of each line of boxes and the gaps between them, from the lowest line up."""
    edges: dict[float, list[tuple[float, float]]] = {}
    for x, y, wide in boxes:
        edges.setdefault(y, []).append((x - wide / 2, x + wide / 2))
    return [
        (y, [line[0][0] - 3, *((a[1] + b[0]) / 2 for a, b in pairwise(line)), line[-1][1] + 3])
        for y, line in sorted(edges.items(), reverse=True)
    ]


def _small_maps(shown: Attention, top: float, width: float) -> tuple[str, float]:
    """Draw a small map of each head, queries down and keys across, and return its lower end."""
    _, num_queries, num_keys = shown.weights.shape
    cell = SMALL / max(num_queries, num_keys)
    across = max(1, int(width // (SMALL + 20)))
    parts, height = [], num_queries * cell + 28
    for head, name in enumerate(shown.heads):
        x, y = head % across * (SMALL + 20), top + head // across * height
        weights, masked = shown.weights[head], shown.masked[head]
        words = name if len(shown.heads) > 1 else "as a map"
        parts.append(text(shortened(words, SMALL, 11), x, y + 8, 11, text_anchor="start"))
        place: dict[str, Any] = {
            "x": x,
            "y": y + 18,
            "width": num_keys * cell,
            "height": num_queries * cell,
        }
        steps = np.rint(np.where(masked, 0, weights) / shown.scale * STEPS) / STEPS
        picture = of_values(steps, (0, 1))
        picture[masked] = (*rgb(PLAIN), 0.3)
        sharp = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated"}
        parts.append(element("image", href=source_of(picture), **place, **sharp))
        if 0 < masked.sum() <= MOST_STROKES:
            d = "".join(
                f"M{x + j * cell:.1f} {y + 18 + (i + 1) * cell:.1f}l{cell:.1f}-{cell:.1f}"
                for i, j in np.argwhere(masked)
            )
            parts.append(element("path", d=d, stroke=PLAIN))
        line = {"fill": "none", "stroke": "currentColor", "stroke_opacity": 0.4}
        parts.append(element("rect", **place, **line))
    return "".join(parts), top + -(-len(shown.heads) // across) * height


def shortened(word: str, room: float, size: float) -> str:
    """Shorten a word with an ellipsis if it does not fit."""
    letters = max(2, int(room / (size * LETTER)))
    return word if len(word) <= letters else word[: letters - 1] + "\N{HORIZONTAL ELLIPSIS}"
