"""The attention viewer: arcs from each query to the keys it looks at, a map beside, head by head.

`attention_data` reads the arguments, `attention_still` draws the picture that remains without
scripts, `attention_words` says it, and attention.js is what it becomes where scripts run. All of
them show the same rounded weights.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from course_lib.plotting import colours
from course_lib.plotting.attention_data import LEVELS, Attention, read
from course_lib.plotting.attention_still import picture
from course_lib.plotting.attention_words import note, sentence
from course_lib.plotting.figures import ROWS_SHOWN, Live, Plot, Table

MASKED = 4095
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
        picture(shown), sentence(shown), _table(shown), live=Live("attention", _data(shown))
    )


def _table(shown: Attention) -> Table:
    """A row for each query: of all heads if they are few, otherwise of the first."""
    num_heads, num_queries, _ = shown.weights.shape
    rows = []
    for head in range(num_heads if num_heads * num_queries <= ROWS_SHOWN else 1):
        before = f"{shown.heads[head]}, " if num_heads > 1 else ""
        for i, name in enumerate(shown.queries.said):
            pairs = zip(shown.weights[head, i], shown.masked[head, i], strict=True)
            rows.append([before + name, *("masked" if m else f"{w:.2f}" for w, m in pairs)])
    return Table(["query", *shown.keys.said], rows)


def _data(shown: Attention) -> dict[str, Any]:
    """What attention.js reads: two letters a weight, 64 times the first digit plus the second."""
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
