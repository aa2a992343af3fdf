"""Attention that never holds a whole row: the running numbers by block, the tiles by step.

Both are drawn for one moment; `interactive` puts the moments behind a slider.
"""

from typing import Any, NamedTuple

import numpy as np

from course_lib.plotting.axes import clean, colour
from course_lib.plotting.colours import INK, KEY, OUTPUT, PLAIN, QUERY, VALUE, WEIGHT
from course_lib.plotting.display import new_figure
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.svg import drawing, element, text
from course_lib.plotting.words import as_array, counted, number


class Running(NamedTuple):
    """What is remembered of a row after a block, and by what the older sums were multiplied."""

    maximum: float
    total: float
    output: float
    factor: float


def online_softmax(scores: Any, values: Any, block_size: int, blocks: int) -> Plot:
    """Draw one row of scores after some blocks: the maximum c, the sum t and the output O.

    Args:
        scores: `(num_keys,)`, finite.
        values: `(num_keys,)`, one number for each key.
        block_size: how many keys make a block; the last one may be shorter.
        blocks: how many blocks have been seen.
    """
    row, v = as_array(scores).astype(float), as_array(values).astype(float)
    history = running(row, v, block_size)[:blocks]
    seen = min(blocks * block_size, len(row))
    figure = new_figure(6.0, 2.8)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    bars = left.bar(range(len(row)), row, width=0.6, color=(PLAIN, 0.25), edgecolor=PLAIN)
    for key in range(seen):
        is_new = key >= (blocks - 1) * block_size
        bars[key].set(facecolor=(colour(0), 1.0 if is_new else 0.4), hatch="" if is_new else "//")
    if history:
        left.plot([-0.5, seen - 0.5], [history[-1].maximum] * 2, color=colour(1), linewidth=2)
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
    return Plot(figure, _running_sentence(row, v, history, block_size), table)


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


def _running_sentence(
    row: np.ndarray, values: np.ndarray, history: list[Running], block_size: int
) -> str:
    total = -(-len(row) // block_size)
    if not history:
        return (
            f"No block of {total} seen: the maximum c is minus infinity, sum t and output O are 0."
        )
    now = history[-1]
    words = (
        f"After {counted(len(history), 'block', 'blocks')} of {total}: maximum c "
        f"{number(now.maximum)}, sum t {number(now.total)}, output O {number(now.output)}"
    )
    if len(history) > 1:
        words += f"; what was before was multiplied by {number(now.factor)}"
    if len(history) == total:
        weights = np.exp(row - row.max())
        at_once = float(weights @ values / weights.sum())
        words += (
            f". The result O / t is {number(now.output / now.total)}; "
            f"softmax over the whole row gives {number(at_once)}"
        )
    return words + "."


CELL, LEFT, TOP = 22, 44, 64


def tiles(num_query_blocks: int, num_key_blocks: int, step: int) -> Plot:
    """Draw one step of blocked attention: what lies in slow memory and what is in fast memory.

    The outer loop goes over blocks of queries, the inner one over blocks of keys, as in
    FlashAttention-2 (Dao 2023).

    Args:
        num_query_blocks, num_key_blocks: how many blocks the queries and the keys have.
        step: how many tiles are done before this one, 0 to their number; at the end none is left.
    """
    total = num_query_blocks * num_key_blocks
    if not 0 <= step <= total:
        raise ValueError(f"`step` must be 0..{total}; got {step}")
    now = divmod(step, num_key_blocks) if step < total else None
    size = 2 * CELL
    width = LEFT + (num_key_blocks + 1) * size + 150
    height = TOP + num_query_blocks * size + 40
    parts = [
        text("slow memory", LEFT, 14, 12, text_anchor="start", font_weight="bold"),
        *_strips(num_query_blocks, num_key_blocks, now, step),
        *_scores(num_query_blocks, num_key_blocks, now, step),
        *_fast_memory(LEFT + (num_key_blocks + 1) * size + 20, now, num_key_blocks),
    ]
    return Plot(
        drawing("".join(parts), width, height, 1.5 * width),
        _tiles_sentence(num_query_blocks, num_key_blocks, now, step),
    )


def _block(x: float, y: float, width: float, height: float, shade: str, *, lit: bool) -> str:
    strong = {"fill_opacity": 0.85, "stroke": "currentColor", "stroke_width": 2}
    calm = {"fill_opacity": 0.25, "stroke": shade, "stroke_width": 1}
    box = {"x": x, "y": y, "width": width, "height": height, "fill": shade}
    return element("rect", **box, **(strong if lit else calm))


def _strips(n: int, m: int, now: tuple[int, int] | None, step: int) -> list[str]:
    """Draw the blocks of Q at the left, of K and V above, and of O at the right."""
    size, parts = 2 * CELL, []
    for i in range(n):
        y = TOP + i * size
        parts.append(_block(LEFT - 26, y, 20, size - 4, QUERY, lit=now is not None and now[0] == i))
        done = step >= (i + 1) * m
        parts.append(_block(LEFT + m * size + 6, y, 20, size - 4, OUTPUT, lit=done))
        parts.append(text(f"Q{i}", LEFT - 16, y + size / 2 - 2, 10))
        parts.append(text(f"O{i}", LEFT + m * size + 16, y + size / 2 - 2, 10))
    for j in range(m):
        x, lit = LEFT + j * size, now is not None and now[1] == j
        parts.append(_block(x, TOP - 40, size - 4, 15, KEY, lit=lit))
        parts.append(_block(x, TOP - 22, size - 4, 15, VALUE, lit=lit))
        parts.append(text(f"K{j}", x + size / 2 - 2, TOP - 32, 10))
        parts.append(text(f"V{j}", x + size / 2 - 2, TOP - 14, 10))
    return parts


def _scores(n: int, m: int, now: tuple[int, int] | None, step: int) -> list[str]:
    """Draw the matrix of scores, of which one tile exists at a time."""
    size, parts = 2 * CELL, []
    for index in range(n * m):
        i, j = divmod(index, m)
        box = {"x": LEFT + j * size, "y": TOP + i * size, "width": size - 4, "height": size - 4}
        middle = (box["x"] + size / 2 - 2, box["y"] + size / 2 - 2)
        if (i, j) == now:
            parts.append(_block(box["x"], box["y"], size - 4, size - 4, WEIGHT, lit=True))
            parts.append(text("now", *middle, 10))
        else:
            dashes = {"fill": "none", "stroke": PLAIN, "stroke_dasharray": "3 3"}
            parts.append(element("rect", **box, **dashes))
            parts.append(text("done" if index < step else "", *middle, 9))
    below = TOP + n * size + 14
    words = "scores: dashed tiles exist nowhere"
    return [*parts, text(words, LEFT, below, 10.5, text_anchor="start")]


def _fast_memory(x: float, now: tuple[int, int] | None, m: int) -> list[str]:
    parts = [
        text("fast memory", x, 14, 12, text_anchor="start", font_weight="bold"),
        element("rect", x=x, y=24, width=124, height=150, rx=6, fill="none", stroke="currentColor"),
    ]
    if now is None:
        return [*parts, text("empty: done", x + 62, 99, 11)]
    i, j = now
    held = [(f"Q{i}", QUERY), (f"K{j}", KEY), (f"V{j}", VALUE), (f"S{i}{j}", WEIGHT)]
    held += [("c, t", PLAIN), (f"O{i}", OUTPUT)]
    for place, (name, shade) in enumerate(held):
        column, line = place % 2, place // 2
        left, top = x + 10 + 54 * column, 34 + 46 * line
        parts.append(_block(left, top, 48, 38, shade, lit=name.startswith("S")))
        parts.append(text(name, left + 24, top + 19, 11))
    return parts


def _tiles_sentence(n: int, m: int, now: tuple[int, int] | None, step: int) -> str:
    if now is None:
        return (
            f"All {n * m} tiles are done: every block of outputs is written once, and no matrix "
            "of scores was ever stored."
        )
    i, j = now
    done = counted(step, "tile is", "tiles are")
    last = " Then the outputs of this block are written." if j == m - 1 else ""
    return (
        f"Tile {step + 1} of {n * m}: fast memory holds Q{i}, K{j}, V{j}, their scores and the "
        f"running c, t and O{i}; {done} done and forgotten, the others do not exist yet.{last}"
    )
