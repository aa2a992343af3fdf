"""Draw attention over blocks: the running numbers after each block, and the tiles by step.

Each figure shows one moment. `interactive` adds a slider for the moments.
"""

from typing import Any, NamedTuple

import numpy as np

from course_lib.plotting.axes import clean, color
from course_lib.plotting.colors import INK, KEY, OUTPUT, PLAIN, QUERY, VALUE, WEIGHT
from course_lib.plotting.display import PANELS, new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.svg import arrow, drawing, element, text
from course_lib.plotting.words import as_array, counted, number


class Running(NamedTuple):
    """The state of a row after a block, and the factor of the older sums."""

    maximum: float
    total: float
    output: float
    factor: float


def online_softmax(scores: Any, values: Any, block_size: int, blocks: int) -> Plot:
    """Draw one row of scores after some blocks: the maximum c, the sum t and the output O.

    Args:
        scores: `(num_keys,)`, finite.
        values: `(num_keys,)`, one number for each key.
        block_size: the number of keys in a block. The last one may be shorter.
        blocks: how many blocks have been processed.
    """
    row, v = as_array(scores).astype(float), as_array(values).astype(float)
    history = running(row, v, block_size)[:blocks]
    seen = min(blocks * block_size, len(row))
    figure = new_figure(PANELS, 2.8)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    bars = left.bar(range(len(row)), row, width=0.6, color=(PLAIN, 0.25), edgecolor=PLAIN)
    for key in range(seen):
        is_new = key >= (blocks - 1) * block_size
        bars[key].set(facecolor=(color(0), 1.0 if is_new else 0.4), hatch="" if is_new else "//")
    if history:
        left.plot([-0.5, seen - 0.5], [history[-1].maximum] * 2, color=color(1), linewidth=2)
        left.annotate("c", (seen - 0.5, history[-1].maximum), fontsize=9, xytext=(3, -3),
                      textcoords="offset points")  # fmt: skip
    left.axhline(0, color=INK, linewidth=0.8)
    left.set(xlabel="keys", ylabel="score", xlim=(-0.5, len(row) + 0.2))
    left.set_xticks(range(len(row)))
    clean(left)
    for line, words in enumerate(_running_lines(history)):
        place = (0, 0.95 - 0.14 * line)
        right.text(*place, words, fontsize=9, va="top", transform=right.transAxes, in_layout=False)
    right.axis("off")
    rows = [[f"block {i}", *map(number, state)] for i, state in enumerate(history)]
    table = Table(["block", "maximum c", "sum t", "output O", "factor for what was before"], rows)
    total = -(-len(row) // block_size)
    if not history:
        words = (
            f"No block of {total} seen: the maximum c is minus infinity, sum t and output O are 0"
        )
    else:
        words = f"After {counted(len(history), 'block', 'blocks')} of {total}: "
        words += ", ".join(_running_lines(history))
    if len(history) == total:
        weights = np.exp(row - row.max())
        at_once = float(weights @ v / weights.sum())
        words += f". The softmax over the whole row gives {number(at_once)}"
    return Plot(figure, f"{words}.", table)


def running(row: np.ndarray, values: np.ndarray, block_size: int) -> list[Running]:
    """Return the numbers after each block of a row `(num_keys,)`."""
    states, maximum, total, output = [], -np.inf, 0.0, 0.0
    for start in range(0, len(row), block_size):
        block = row[start : start + block_size]
        larger = max(maximum, float(block.max()))
        factor = float(np.exp(maximum - larger))
        exponentials = np.exp(block - larger)
        total = factor * total + float(exponentials.sum())
        output = factor * output + float(exponentials @ values[start : start + block_size])
        maximum = larger
        states.append(Running(maximum, total, output, factor))
    return states


def _running_lines(history: list[Running]) -> list[str]:
    if not history:
        return ["maximum c = −∞", "sum t = 0", "output O = 0", "Nothing seen yet."]
    now = history[-1]
    lines = [f"maximum c = {number(now.maximum)}", f"sum t = {number(now.total)}"]
    lines.append(f"output O = {number(now.output)}")
    if len(history) > 1:
        lines.append(f"before it: times {number(now.factor)}")
    return [*lines, f"O / t = {number(now.output / now.total)}"]


EDGE, SHOWN = 206, 1.2  # height of both panels, and pixels for a unit


def tiles(num_query_blocks: int, num_key_blocks: int, step: int) -> Plot:
    """Draw one step of blocked attention: both memories, and how many scores are stored.

    The outer loop goes over blocks of queries, the inner one over blocks of keys, as in
    FlashAttention-2 (Dao 2023).

    Args:
        num_query_blocks, num_key_blocks: numbers of blocks of queries and keys.
        step: the number of tiles that are done, from 0 to all of them.
    """
    n, m = num_query_blocks, num_key_blocks
    now = divmod(step, m) if step < n * m else None
    row, column = now or (None, None)
    is_last = column == m - 1  # of its row, so that the outputs are written
    start: dict[str, Any] = {"text_anchor": "start"}
    wide = max(316, 38 * (n + m) + 28)
    frame: dict[str, Any] = {"x": 1, "width": wide, "rx": 6, "fill": "none"}
    parts = [
        element("rect", y=1, height=92, stroke="currentColor", **frame),
        text("slow memory", 10, 16, 13, font_weight="bold", **start),
        element("rect", y=128, height=77, stroke="currentColor", stroke_width=2.5, **frame),
        text("fast memory, on the chip", 10, 144, 13, font_weight="bold", **start),
    ]
    for i in range(n):
        x, shade = 10 + 38 * i, OUTPUT if step >= (i + 1) * m or (is_last and i == row) else ""
        parts.append(_block(f"Q{i}", x, 28, 34, 26, QUERY, lit=i == row and column == 0))
        parts.append(_block(f"O{i}", x, 60, 34, 26, shade, lit=is_last and i == row))
    for j in range(m):
        for name, shade, y in (("K", KEY, 28), ("V", VALUE, 60)):
            x = wide - 8 - 38 * (m - j)
            parts.append(_block(f"{name}{j}", x, y, 34, 26, shade, lit=j == column))
    left = wide + 64  # of the scores
    stored = int(now is not None)
    gauge = f"scores stored now: {stored} of {n * m} tiles"
    parts.append(text(gauge, left - 28, 16, 13, font_weight="bold", **start))
    for j in range(m):
        parts.append(text(f"K{j}", left + 60 * j + 28, 38, 13))
    for i in range(n):
        y = 48 + 42 * i
        parts.append(text(f"Q{i}", left - 14, y + 19, 13))
        for j in range(m):
            here = (i, j) == now
            words = "now" if here else "done" if i * m + j < step else ""
            shade = WEIGHT if here else ""
            parts.append(_block(words, left + 60 * j, y, 56, 38, shade, lit=here))
    parts.append(text("dashed: nothing stored here", left, 60 + 42 * n, 13, **start))
    if now is None:
        parts.append(text("empty: done", wide / 2, 176, 13))
        alt = (
            f"All {n * m} tiles are done: every block of outputs is written once, and no matrix "
            "of scores was ever stored."
        )
    else:
        held = [(f"Q{row}", QUERY), (f"K{column}", KEY), (f"V{column}", VALUE)]
        held += [(f"S{row}{column}", WEIGHT), ("c, t", PLAIN), (f"O{row}", OUTPUT)]
        for place, (name, shade) in enumerate(held):
            parts.append(_block(name, 10 + 50 * place, 158, 46, 38, shade, lit=shade == WEIGHT))
        read = ", ".join(name for name, _ in held[0 if column == 0 else 1 : 3])
        parts += [arrow([(27, 93), (27, 127)], 2), text(f"reads {read}", 38, 110, 13, **start)]
        if is_last:
            parts += [
                arrow([(216, 128), (216, 94)], 2),
                text(f"writes O{row}", 227, 110, 13, **start),
            ]
        done = counted(step, "tile is", "tiles are")
        last = " Then the outputs of this block are written." if is_last else ""
        alt = (
            f"Tile {step + 1} of {n * m}: fast memory holds Q{row}, K{column}, V{column}, their "
            f"scores and the running c, t and O{row}; {done} done and forgotten, the others do not "
            f"exist yet. 1 of {n * m} tiles of scores is stored.{last}"
        )
    width = left + 60 * m
    panels = [(0, 0, wide + 3, EDGE), (left - 30, 0, width - left + 30, EDGE)]
    return Plot(drawing("".join(parts), width, EDGE, SHOWN * width, panels), alt)


def _block(
    words: str, x: float, y: float, width: float, height: float, shade: str, *, lit: bool
) -> str:
    """Draw a block of numbers. A dashed block without a shade is not stored."""
    look: dict[str, Any] = {"fill": "none", "stroke": PLAIN, "stroke_dasharray": "3 3"}
    if lit:
        look = {"fill": shade, "fill_opacity": 0.85, "stroke": "currentColor", "stroke_width": 2}
    elif shade:
        look = {"fill": shade, "fill_opacity": 0.25, "stroke": shade}
    box = element("rect", x=x, y=y, width=width, height=height, **look)
    return box + text(words, x + width / 2, y + height / 2, 13)
