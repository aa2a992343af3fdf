"""Place the boxes and arrows of the map of attention, level by level.

Each level contains the previous one, with the same boxes and columns but shorter rows: "heads" puts
it into every head, and "block" and "encoder_decoder" put the heads into a frame. All lengths are in
the drawing's units, and y goes down.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    """A named box: a tensor (round ends) or a step (corners), with a map inside if `small`."""

    name: str
    words: str
    left: float
    top: float
    right: float
    bottom: float
    color: str = INK
    tensor: bool = False
    font: float = 12
    small: bool = False

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


def of_heads(sheet: Sheet, top: float, rows: Rows) -> float:
    """Add multi-head attention from `top` on and return where the next row begins."""
    columns = list(zip(OWN[:3], ("W_q", "W_k", "W_v"), (FIRST, SECOND, THIRD),
                       (QUERY, KEY, VALUE), strict=True))  # fmt: skip
    for name, layer, place, color in columns:
        below = sheet.put(name, name, place, top, rows, color, tensor=True)
        sheet.put(layer, layer, place, below, rows, color)
        sheet.down(name, layer)
    split = sheet.boxes["W_q"].bottom + rows.gap
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
    top = sheet.put("outputs", "outputs", SPINE, top, rows, OUTPUT, tensor=True)
    sheet.down("head outputs", "merge heads", low=True)
    sheet.down("merge heads", "W_o")
    sheet.down("W_o", "outputs")
    return top


def attention() -> Sheet:
    """Return the smallest level: one attention."""
    sheet = Sheet(left=20, right=340)
    of_attention(sheet, 4, LARGE)
    sheet.out("outputs", LARGE.gap)
    return sheet


def heads() -> Sheet:
    """Return the level with several attentions side by side and the layers before and after."""
    sheet = Sheet(left=16, right=352)
    of_heads(sheet, 4, MEDIUM)
    sheet.out("outputs", MEDIUM.gap)
    return sheet


def block() -> Sheet:
    """Return the level with attention and a small network, each with a residual connection."""
    sheet, rows = Sheet(left=0, right=WIDTH), Rows(21, 16, 11.5)
    top = sheet.put("inputs", "inputs", ALL, 4, rows, PLAIN, tensor=True)
    top = sheet.put("first norm", "norm", ALL, top, rows)
    sheet.down("inputs", "first norm")
    end = of_heads(sheet, top + 18, rows)
    for name in OWN[:3]:
        sheet.down("first norm", name)
    sheet.frames.append(Frame("multi-head attention", 14, top, 354, end - rows.gap + 8))
    after = ("first add", "second norm", "feed-forward", "second add")
    for name in after:
        words = name.removeprefix("first ").removeprefix("second ")
        end = sheet.put(name, words, SPINE, max(end, sheet.frames[-1].bottom + rows.gap + 3), rows)
    sheet.down("outputs", "first add", low=True)
    for source, target in itertools.pairwise(after):
        sheet.down(source, target)
    sheet.around("inputs", "first add", 6)
    sheet.around("first add", "second add", 28)
    sheet.out("second add", rows.gap)
    return sheet


ENCODER, DECODER = (18.0, 166.0), (194.0, 342.0)
TALL = 66  # height of a box with a small map in it
STACKS = {
    "": (
        ("tokens", "tokens", PLAIN),
        ("embedding", "embed + positions", INK),
        ("inputs", "inputs", PLAIN),
        ("first norm", "norm", INK),
        ("self-attention", "self-attention", INK),
        ("first add", "add", INK),
        ("second norm", "norm", INK),
        ("feed-forward", "feed-forward", INK),
        ("second add", "add", INK),
    ),
    "decoder ": (
        ("decoder tokens", "tokens so far", PLAIN),
        ("decoder embedding", "embed + positions", INK),
        ("decoder inputs", "inputs", PLAIN),
        ("decoder first norm", "norm", INK),
        ("masked self-attention", "masked self-attention", INK),
        ("decoder first add", "add", INK),
        ("decoder second norm", "norm", INK),
        ("cross-attention", "cross-attention", INK),
        ("decoder second add", "add", INK),
        ("decoder third norm", "norm", INK),
        ("decoder feed-forward", "feed-forward", INK),
        ("decoder third add", "add", INK),
        ("linear", "norm, then linear", INK),
        ("logits", "logits", OUTPUT),
    ),
}


def encoder_decoder(*, inside: bool = True) -> Sheet:
    """Return the level from tokens to logits, optionally with the inside of an attention below."""
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
    if not inside:
        sheet.height = end - rows.gap
        return sheet
    end += 6
    title = Frame("inside each attention", 14, end + 4, 354, 0)
    bottom = of_heads(sheet, end + 26, rows) - rows.gap + 8
    sheet.frames.append(title._replace(bottom=bottom))
    sheet.height = bottom
    return sheet


def _stack(sheet: Sheet, owner: str, across: tuple[float, float], rows: Rows) -> float:
    top, names = 4.0, [name for name, _, _ in STACKS[owner]]
    for name, words, color in STACKS[owner]:
        tall = name.endswith("attention")
        tensor = color != INK
        top += {"linear": 20, "first norm": 10, "decoder first norm": 10}.get(name, 0)
        height = rows._replace(box=TALL) if tall else rows
        top = sheet.put(name, words, across, top, height, color, tensor=tensor)
        if tall:
            sheet.boxes[name] = replace(sheet.boxes[name], small=True)
    for source, target in itertools.pairwise(names):
        sheet.down(source, target)
    return top


LEVELS = {
    "attention": attention,
    "heads": heads,
    "block": block,
    "encoder_decoder": encoder_decoder,
}
