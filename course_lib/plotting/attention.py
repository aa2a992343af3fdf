"""Draw the attention viewer: arcs from each query to the keys it attends to, and a map beside them.

`attention_data` reads the arguments and says what they show. This module draws the picture that
remains without scripts, and attention.js replaces it where scripts run. All of them show the same
rounded weights.

Places are grouped by their level of colour into one `<path>` each, which keeps 60 x 60 weights
small. Hatching is a path, not a pattern, since patterns have identifiers that pages share.
"""

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.image import imsave

from course_lib.plotting import colours
from course_lib.plotting.attention_data import LEVELS, Attention, note, read, sentence
from course_lib.plotting.axes import NUMBERS_UP_TO
from course_lib.plotting.colours import KEY, PLAIN, QUERY, WEIGHT, of_values, rgb
from course_lib.plotting.figures import ROWS_SHOWN, Live, Plot, Table
from course_lib.plotting.svg import drawing, element, text

WIDTH = 660
ARCS = 330  # of the width
STEPS = 16  # of colour and width
MOST_ARCS = 600
FAINTEST_ARC = 0.02  # of the scale
MOST_DRAWN_CELLS = 400  # of a small map; beyond, it is an image with a pixel for each cell
SMALL = 92
FINE_HATCH_FROM = 12  # pixels of a cell
LETTER = 0.6  # the width of a letter, of its height

MASKED = 4095  # for attention.js, as are the digits
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def attention(
    weights: Any,
    queries: Sequence[Any] | None = None,
    keys: Sequence[Any] | None = None,
    *,
    mask: Any = None,
    title: str | None = None,
    heads: Sequence[str] | None = None,
    item: int | None = None,
) -> Plot:
    """Who looks at whom: an arc for each weight from a query's word to a key's, and a map beside.

    Where scripts run, pointing at a word, touching it or moving to it with the arrow keys leaves
    its weights alone and writes their numbers; Escape brings all back. Heads are chosen by their
    small maps. Without scripts a picture of the first head remains. Arcs and cells are as wide
    and as coloured as the weight, against 1, 0.5, 0.2 or 0.1, whichever the largest still fits.

    Args:
        weights: `(num_queries, num_keys)` or `(num_heads, num_queries, num_keys)` numbers from 0
            to 1, with a batch of 1 in front or not; or a module that keeps `attention_weights`,
            `(batch, num_queries, num_keys)` or `(batch, num_heads, num_queries, num_keys)`.
        queries, keys: words for the rows and columns, or a string for its characters; otherwise
            their numbers.
        mask: True = may attend, broadcastable to the weights of all heads; the other places are
            hatched and get no arc.
        title: a line above.
        heads: a name for each head; otherwise "head 0" and so on.
        item: which sequence of a batch; the first axis of `weights` is then the batch.

    Raises:
        ValueError: if shapes, names and numbers do not fit each other, a weight is nan or not
            between 0 and 1, a module has no weights yet, or there are more than 60 queries or
            keys or 12 heads.
    """
    shown = read(weights, queries, keys, mask=mask, title=title, heads=heads, item=item)
    return Plot(
        _picture(shown), sentence(shown), _table(shown), live=Live("attention", _data(shown))
    )


def _table(shown: Attention) -> Table:
    """Return the table: a row per query, for all heads if they are few, else for the first."""
    num_heads, num_queries, _ = shown.weights.shape
    rows = []
    for head in range(num_heads if num_heads * num_queries <= ROWS_SHOWN else 1):
        before = f"{shown.heads[head]}, " if num_heads > 1 else ""
        for i, name in enumerate(shown.queries.said):
            pairs = zip(shown.weights[head, i], shown.masked[head, i], strict=True)
            rows.append([before + name, *("masked" if m else f"{w:.2f}" for w, m in pairs)])
    return Table(["query", *shown.keys.said], rows)


def _data(shown: Attention) -> dict[str, Any]:
    """Return the data for attention.js. Two base-64 digits encode each weight."""
    levels = np.where(shown.masked, MASKED, np.rint(shown.weights * LEVELS).astype(int))
    return {
        "title": shown.title,
        "note": " ".join(note(shown)),
        "queries": shown.queries._asdict(),
        "keys": shown.keys._asdict(),
        "heads": shown.heads,
        "levels": LEVELS,
        "scale": shown.scale,
        "weights": "".join(DIGITS[n // 64] + DIGITS[n % 64] for n in levels.flat),
        "colours": {
            "query": colours.QUERY,
            "key": colours.KEY,
            "weight": colours.WEIGHT,
            "masked": colours.PLAIN,
        },
    }


def _picture(shown: Attention) -> str:
    """Draw the first head as arcs and as a map, the other heads as small maps, as one `<svg>`."""
    _, num_queries, num_keys = shown.weights.shape
    row = min(24.0, max(13.0, 600 / max(num_queries, num_keys)))
    top = 22.0 if shown.title else 0.0
    parts = [text(shown.title, WIDTH / 2, 10, 14, font_weight="bold")] if shown.title else []
    many = len(shown.heads) > 1
    if many:
        parts.append(text(shown.heads[0], 0, top + 10, 12, text_anchor="start"))
        top += 20
    arcs, least = _arcs(shown, row, top)
    map_, bottom = _map(shown, top)
    bottom = max(bottom, top + 24 + row * max(num_queries, num_keys)) + 18
    parts += [arcs, map_]
    for words in (*note(shown), f"Arcs from {least:.2g} on."):
        parts.append(text(words, 0, bottom, 11, text_anchor="start"))
        bottom += 15
    if many:
        small, bottom = _small_maps(shown, bottom + 6)
        parts.append(small)
    return drawing("".join(parts), WIDTH, bottom)


def _levels(weights: np.ndarray, scale: float, shape: Callable[[int, int], str]) -> dict[int, str]:
    """Join what `shape` draws at each (query, key), by colour level and without level 0."""
    found: dict[int, str] = {}
    levels = np.ceil(np.minimum(weights / scale, 1) * STEPS - 0.5).astype(int)
    for query, key in np.argwhere(levels > 0):
        level = int(levels[query, key])
        found[level] = found.get(level, "") + shape(int(query), int(key))
    return dict(sorted(found.items()))


def _arcs(shown: Attention, row: float, top: float) -> tuple[str, float]:
    """Draw the words on both sides and the arcs; return the smallest weight with an arc, too."""
    weights = np.where(shown.masked[0], 0, shown.weights[0])
    least = shown.scale * max(FAINTEST_ARC, 0.5 / STEPS)
    if (weights >= least).sum() > MOST_ARCS:
        least = np.sort(weights, axis=None)[-MOST_ARCS]
    size = min(13.0, row * 0.75)
    room = [_width(tokens.shown, size, 100) for tokens in (shown.queries, shown.keys)]
    left, right = room[0] + 6, ARCS - room[1] - 6
    first = top + 22 + row / 2
    drawn = _levels(  # arcs, two units wide and a row high for each place between their ends
        np.where(weights >= least, weights, 0),
        shown.scale,
        lambda query, key: f"M0 {query}C1 {query} 1 {key} 2 {key}",
    )
    widest = min(8.0, row * 0.5)
    paths = [
        element(
            "path",
            d=d,
            stroke_width=max(0.6, widest * level / STEPS),
            opacity=level / STEPS,
            vector_effect="non-scaling-stroke",
        )
        for level, d in drawn.items()
    ]
    place = f"translate({left:.2f} {first:.2f}) scale({(right - left) / 2:.2f} {row:.2f})"
    parts = [element("g", "".join(paths), fill="none", stroke=WEIGHT, transform=place)]
    sides = (("queries", shown.queries, left - 5, "end"), ("keys", shown.keys, right + 5, "start"))
    blocked = shown.masked[0].all(axis=0)
    for name, tokens, x, anchor in sides:
        parts.append(text(name, x, top + 10, 11, text_anchor=anchor, font_style="italic"))
        for i, word in enumerate(tokens.shown):
            struck = "line-through" if name == "keys" and blocked[i] else None
            word = _short(word, 100, size)
            at = first + row * i
            parts.append(text(word, x, at, size, text_anchor=anchor, text_decoration=struck))
    for x, colour in ((left - 1, QUERY), (right + 1, KEY)):
        count = shown.weights.shape[1 if colour == QUERY else 2]
        line = f"M{x:.0f} {first - row / 2:.4g}v{row * count:.4g}"
        parts.append(element("path", d=line, stroke=colour, stroke_width=2))
    return "".join(parts), float(least)


def _map(shown: Attention, top: float) -> tuple[str, float]:
    """Draw the first head's map, keys across and queries down, and return where it ends, too."""
    weights, masked = shown.weights[0], shown.masked[0]
    num_queries, num_keys = weights.shape
    left = ARCS + 30
    size = 11.0
    room = _width(shown.queries.shown, size, 80) + 6
    cell = min(30.0, (WIDTH - left - room) / num_keys, 600 / num_queries)
    named = cell >= size
    if not named:
        room = 16.0
        cell = min((WIDTH - left - room) / num_keys, 600 / num_queries)
    left += room
    above = top + 22 + (_width(shown.keys.shown, size, 80) if named else 0)
    inside = _cells(weights, masked, shown.scale) + _hatch(masked, cell)
    place = f"translate({left:.2f} {above:.2f}) scale({cell:.3f})"
    parts = [element("g", inside, transform=place)]
    wide, high = cell * num_keys, cell * num_queries
    parts.append(_frame(left, above, wide, high))
    parts.append(text("keys", left + wide / 2, top + 10, 11, font_style="italic"))
    if named:
        for i, word in enumerate(shown.queries.shown):
            y = above + cell * (i + 0.5)
            parts.append(text(_short(word, 80, size), left - 5, y, size, text_anchor="end"))
        parts.extend(
            _above(_short(word, 80, size), left + cell * (i + 0.5), above - 5, size)
            for i, word in enumerate(shown.keys.shown)
        )
    else:
        x, y = left - 9, above + high / 2
        turn = f"rotate(-90 {x:.2f} {y:.2f})"
        parts.append(text("queries", x, y, 11, font_style="italic", transform=turn))
    if max(weights.shape) <= NUMBERS_UP_TO and cell >= 22:
        for (i, j), weight in np.ndenumerate(weights):
            if not masked[i, j]:
                short = f"{weight:.2f}".removeprefix("0")
                parts.append(text(short, left + cell * (j + 0.5), above + cell * (i + 0.5), 10))
    return "".join(parts), above + high


def _above(word: str, x: float, y: float, size: float) -> str:
    """Write a column's name vertically from the bottom up; a single letter stays upright."""
    if len(word) == 1:
        return text(word, x, y - size / 2, size, text_anchor="middle")
    return text(word, x, y, size, text_anchor="start", transform=f"rotate(-90 {x:.2f} {y:.2f})")


def _cells(weights: np.ndarray, masked: np.ndarray, scale: float) -> str:
    """Draw a square of side 1 for each weight, with a matching opacity."""
    drawn = _levels(np.where(masked, 0, weights), scale, lambda i, j: f"M{j} {i}h1v1h-1z")
    paths = [element("path", d=d, opacity=level / STEPS) for level, d in drawn.items()]
    return element("g", "".join(paths), fill=WEIGHT)


def _hatch(masked: np.ndarray, cell: float) -> str:
    """Hatch each masked square with three strokes, or with one if the square is small."""
    if not masked.any():
        return ""
    finer = ("M{j} {k}.5l.5-.5", "M{j}.5 {i}l.5-.5") if cell > FINE_HATCH_FROM else ()
    shapes = "".join(("M{j} {i}l1-1", *finer))
    d = "".join(shapes.format(i=i + 1, j=j, k=i) for i, j in np.argwhere(masked))
    return element("path", d=d, stroke=PLAIN, stroke_width=1.2 / cell)


def _small_maps(shown: Attention, top: float) -> tuple[str, float]:
    """Draw a small map of each head except the first, and return where they end, too."""
    _, num_queries, num_keys = shown.weights.shape
    cell = SMALL / max(num_queries, num_keys)
    step, height = WIDTH / 6, num_queries * cell + 28
    parts = []
    for place, head in enumerate(range(1, len(shown.heads))):
        x, y = place % 6 * step, top + place // 6 * height
        weights, masked = shown.weights[head], shown.masked[head]
        name = _short(shown.heads[head], step - 8, 11)
        parts.append(text(name, x, y + 8, 11, text_anchor="start"))
        turn = f"translate({x:.2f} {y + 18:.2f}) scale({cell:.3f})"
        if weights.size <= MOST_DRAWN_CELLS:
            inside = _cells(weights, masked, shown.scale)
            squares = "".join(f"M{j} {i}h1v1h-1z" for i, j in np.argwhere(masked))
            inside += element("path", d=squares, fill=PLAIN, opacity=0.3) if squares else ""
        else:
            inside = _pixels(weights, masked, shown.scale)
        parts.append(element("g", inside, transform=turn))
        parts.append(_frame(x, y + 18, num_keys * cell, num_queries * cell))
    rows = -(-(len(shown.heads) - 1) // 6)
    return "".join(parts), top + rows * height


def _pixels(weights: np.ndarray, masked: np.ndarray, scale: float) -> str:
    """Draw the squares as an image with one pixel each."""
    steps = np.rint(np.where(masked, 0, weights) / scale * STEPS) / STEPS
    picture = of_values(steps, (0, 1), "weights")
    picture[masked] = (*rgb(PLAIN), 0.3)
    buffer = io.BytesIO()
    imsave(buffer, np.rint(picture * 255).astype(np.uint8), format="png")
    return element(
        "image",
        href="data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii"),
        width=weights.shape[1],
        height=weights.shape[0],
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
    )


def _frame(x: float, y: float, width: float, height: float) -> str:
    d = f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h{-width:.2f}z"
    return element("path", d=d, fill="none", stroke="currentColor", stroke_opacity=0.4)


def _width(words: list[str], size: float, most: float) -> float:
    """Estimate the width of the longest word, at least that of the axis name and at most `most`."""
    return min(most, max(42.0, max(map(len, words)) * size * LETTER))


def _short(word: str, room: float, size: float) -> str:
    """Shorten a word with an ellipsis if it does not fit."""
    letters = int(room / (size * LETTER))
    return word if len(word) <= letters else word[: letters - 1] + "\N{HORIZONTAL ELLIPSIS}"
