"""Place the boxes and arrows of the map of attention, level by level.

Each level contains the previous one: "heads" puts it into every head, "block" puts the heads into
one box, and "encoder_decoder" stacks such blocks. All lengths are in the drawing's units, and y
goes down.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from course_lib.plotting.colors import INK, KEY, OUTPUT, PLAIN, QUERY, VALUE, WEIGHT

SMALLEST = 11.2  # font size in units, which is 10 px if 360 units are 328 px wide


class Rows(NamedTuple):
    """The height of a row of boxes, the distance to the next row, and the font size."""

    box: float
    gap: float
    font: float


@dataclass(frozen=True)
class Box:
    """A named box: a tensor (round ends) or a step (corners)."""

    name: str
    words: str
    left: float
    top: float
    right: float
    bottom: float
    color: str = INK
    tensor: bool = False
    font: float = 12

    @property
    def middle(self) -> tuple[float, float]:
        """Return the center."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


class Arrow(NamedTuple):
    """An arrow between boxes, where "" is outside the picture. Its shape is written at `at`."""

    source: str
    target: str
    points: Sequence[tuple[float, float]]
    at: tuple[float, float]
    anchor: str = "start"

    @property
    def name(self) -> str:
        """Return `source -> target`."""
        return f"{self.source} -> {self.target}"


class Frame(NamedTuple):
    """A frame around boxes that belong together, with `copies` more frames behind it."""

    words: str
    left: float
    top: float
    right: float
    bottom: float
    copies: int = 0


@dataclass
class Sheet:
    """The parts of a level. `left` and `right` are the edges of the picture."""

    left: float
    right: float
    boxes: dict[str, Box] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    height: float = 0

    def put(self, name: str, words: str, across: tuple[float, float], top: float, rows: Rows,
            color: str = INK, *, tensor: bool = False) -> float:  # fmt: skip
        """Add a box and return where the next row begins."""
        bottom = top + rows.box
        self.boxes[name] = Box(name, words, across[0], top, across[1], bottom, color, tensor,
                               rows.font)  # fmt: skip
        return bottom + rows.gap

    def down(self, source: str, target: str, *, low: bool = False) -> None:
        """Add an arrow straight down, in the middle of the narrower box."""
        start, end = self.boxes[source], self.boxes[target]
        x = min(start, end, key=lambda box: box.right - box.left).middle[0]
        y = min((start.bottom + end.top) / 2, start.bottom + 9)
        if low:
            y = end.top - 9
        points = (x, start.bottom), (x, end.top)
        self.arrows.append(Arrow(source, target, points, (x + 6, y)))

    def across(self, source: str, target: str) -> None:
        """Add an arrow straight to the side."""
        start, end = self.boxes[source], self.boxes[target]
        y = start.middle[1]
        from_, to = (start.left, end.right) if end.right < start.left else (start.right, end.left)
        self.arrows.append(
            Arrow(source, target, ((from_, y), (to, y)), ((from_ + to) / 2, y - 8), "middle")
        )

    def around(self, source: str, target: str, x: float) -> None:
        """Add an arrow along `x` past the boxes in between."""
        start, end = self.boxes[source], self.boxes[target]
        y, below = start.middle[1] + 4, end.middle[1] - 4
        side = "left" if x < start.left else "right"
        points = (getattr(start, side), y), (x, y), (x, below), (getattr(end, side), below)
        self.arrows.append(Arrow(source, target, points, (x + 5, (y + below) / 2)))

    def out(self, source: str, length: float) -> None:
        """Add the arrow that leaves the picture."""
        start = self.boxes[source]
        x = start.middle[0]
        points = (x, start.bottom), (x, start.bottom + length)
        self.arrows.append(Arrow(source, "", points, (x + 6, start.bottom + length / 2)))
        self.height = start.bottom + length


WIDTH = 360.0  # width of the widest level; others are cropped to their center
OWN = ("queries", "keys", "values", "outputs")  # inside a head they are "head queries", ...
LARGE, MEDIUM, SMALL = Rows(28, 24, 12.5), Rows(23, 18, 12), Rows(20, 16, 11.5)
FIRST, SECOND, THIRD = (30.0, 114.0), (122.0, 206.0), (246.0, 330.0)  # the three columns
SPINE, STEP = (44.0, 192.0), (78.0, 158.0)  # below the first two
ALL = (30.0, 330.0)


def of_attention(sheet: Sheet, top: float, rows: Rows, owner: str = "") -> float:
    """Add one attention from `top` on and return where the next row begins."""
    a, b, c = (owner + name for name in OWN[:3])
    sheet.put(a, "queries", FIRST, top, rows, QUERY, tensor=True)
    sheet.put(b, "keys", SECOND, top, rows, KEY, tensor=True)
    top = sheet.put(c, "values", THIRD, top, rows, VALUE, tensor=True)
    top = sheet.put("scores", "scores", (30, 206), top, rows)
    finer = rows._replace(font=SMALLEST)
    sheet.put("valid_lens", "valid_lens", (198, 280), top, finer, PLAIN, tensor=True)
    top = sheet.put("mask", "mask", STEP, top, rows, PLAIN)
    top = sheet.put("softmax", "softmax", STEP, top, rows)
    top = sheet.put("attention weights", "attention weights", SPINE, top, rows, WEIGHT, tensor=True)
    top = sheet.put("weighted sum", "weighted sum", (44, 330), top, rows)
    top = sheet.put(owner + "outputs", "outputs", SPINE, top, rows, OUTPUT, tensor=True)
    spine = "scores", "mask", "softmax", "attention weights", "weighted sum", owner + "outputs"
    sheet.down(a, "scores")
    sheet.down(b, "scores")
    sheet.across("valid_lens", "mask")
    for source, target in itertools.pairwise(spine):
        sheet.down(source, target)
    x, y = sheet.boxes[c].middle[0], sheet.boxes["scores"].middle[1]
    line = (x, sheet.boxes[c].bottom), (x, sheet.boxes["weighted sum"].top)
    sheet.arrows.append(Arrow(c, "weighted sum", line, (x - 6, y), "end"))
    return top


def attention() -> Sheet:
    """Return the smallest level: one attention."""
    sheet = Sheet(left=20, right=340)
    of_attention(sheet, 4, LARGE)
    sheet.out("outputs", LARGE.gap)
    return sheet


def heads() -> Sheet:
    """Return the level with several attentions side by side and the layers before and after."""
    sheet, rows = Sheet(left=16, right=352), MEDIUM
    columns = list(zip(OWN[:3], ("W_q", "W_k", "W_v"), (FIRST, SECOND, THIRD),
                       (QUERY, KEY, VALUE), strict=True))  # fmt: skip
    split = 0.0
    for name, layer, place, color in columns:
        split = sheet.put(name, name, place, 4, rows, color, tensor=True)
        split = sheet.put(layer, layer, place, split, rows, color)
        sheet.down(name, layer)
    inside = sheet.put("split heads", "split heads", ALL, split, rows) + 16
    for _, layer, _, _ in columns:
        sheet.down(layer, "split heads")
    end = of_attention(sheet, inside, SMALL, "head ")
    for name in OWN[:3]:
        sheet.down("split heads", f"head {name}")
    bottom = end - SMALL.gap + 8
    sheet.frames.append(Frame("in each head", 22, inside - 18, 338, bottom, copies=2))
    top = sheet.put("merge heads", "merge heads", ALL, bottom + 8 + rows.gap, rows)
    top = sheet.put("W_o", "W_o", STEP, top, rows, OUTPUT)
    sheet.put("outputs", "outputs", SPINE, top, rows, OUTPUT, tensor=True)
    sheet.down("head outputs", "merge heads", low=True)
    sheet.down("merge heads", "W_o")
    sheet.down("W_o", "outputs")
    sheet.out("outputs", rows.gap)
    return sheet


def block() -> Sheet:
    """Return the level with attention and a small network, each with a residual connection."""
    sheet, top = Sheet(left=0, right=WIDTH), 4.0
    for name in BLOCK:
        top = _put(sheet, name, (90, 270), top, MEDIUM)
    for source, target in itertools.pairwise(BLOCK):
        sheet.down(source, target)
    sheet.around("inputs", "first add", 46)
    sheet.around("first add", "second add", 68)
    sheet.out("second add", MEDIUM.gap)
    return sheet


BLOCK = ("inputs", "first norm", "multi-head attention", "first add", "second norm", "feed-forward",
         "second add")  # fmt: skip
ENCODER, DECODER = (18.0, 166.0), (194.0, 342.0)
STACKS = {
    "": ("tokens", "embedding", "inputs", "first norm", "self-attention", "first add",
         "second norm", "feed-forward", "second add"),
    "decoder ": (
        "decoder tokens", "decoder embedding", "decoder inputs", "decoder first norm",
        "masked self-attention", "decoder first add", "decoder second norm", "cross-attention",
        "decoder second add", "decoder third norm", "decoder feed-forward", "decoder third add",
        "linear", "logits",
    ),
}  # fmt: skip
WORDS = {"embedding": "embed + positions", "decoder tokens": "tokens so far",
         "decoder embedding": "embed + positions", "linear": "norm, then linear"}  # fmt: skip


def _put(sheet: Sheet, name: str, across: tuple[float, float], top: float, rows: Rows) -> float:
    """Add a box with the words of WORDS, or its name without what tells it from others."""
    words = WORDS.get(name, re.sub("^(decoder )?(first |second |third )?", "", name))
    ends = {"tokens": PLAIN, "tokens so far": PLAIN, "inputs": PLAIN, "logits": OUTPUT}
    color = ends.get(words, INK)
    return sheet.put(name, words, across, top, rows, color, tensor=color != INK)


def encoder_decoder() -> Sheet:
    """Return the level from tokens to logits."""
    sheet, rows = Sheet(left=0, right=WIDTH), Rows(21, 15, 11.5)
    _stack(sheet, "", ENCODER, rows)
    end = _stack(sheet, "decoder ", DECODER, rows)
    sheet.across("second add", "cross-attention")
    two = ("inputs", "first add", "second add")
    for owner, x, ends in (("", 11, two), ("decoder ", 349, (*two, "third add"))):
        for source, target in itertools.pairwise(ends):
            sheet.around(owner + source, owner + target, x)
    for owner, left, first, last in (
        ("encoder", 4, "first norm", "second add"),
        ("decoder", 186, "decoder first norm", "decoder third add"),
    ):
        top, bottom = sheet.boxes[first].top - 7, sheet.boxes[last].bottom + 20
        sheet.frames.append(Frame(f"{owner} × N", left, top, left + 170, bottom))
    sheet.height = end - rows.gap
    return sheet


def _stack(sheet: Sheet, owner: str, across: tuple[float, float], rows: Rows) -> float:
    top = 4.0
    for name in STACKS[owner]:
        top += {"linear": 20, "first norm": 10, "decoder first norm": 10}.get(name, 0)
        top = _put(sheet, name, across, top, rows)
    for source, target in itertools.pairwise(STACKS[owner]):
        sheet.down(source, target)
    return top


LEVELS = {
    "attention": attention,
    "heads": heads,
    "block": block,
    "encoder_decoder": encoder_decoder,
}
