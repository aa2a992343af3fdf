"""What the map of attention is made of: boxes, arrows, frames, and the sheet they are put on.

All lengths are in the drawing's units; y goes down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from course_lib.plotting.colours import INK

SMALLEST = 11.2  # words, in units: 10 px where 360 units are 328 px wide


class Rows(NamedTuple):
    """How high a row of boxes is, how far it is to the next, and how large its words are."""

    box: float
    gap: float
    font: float


@dataclass(frozen=True)
class Box:
    """A named box: a tensor (round ends) or a step (corners); `small` puts a small map into it."""

    name: str
    words: str
    left: float
    top: float
    right: float
    bottom: float
    colour: str = INK
    tensor: bool = False
    font: float = 12
    small: bool = False

    @property
    def middle(self) -> tuple[float, float]:
        """The centre."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


class Arrow(NamedTuple):
    """From one box to another, "" for out of the picture; its shape goes to `at`."""

    source: str
    target: str
    points: Sequence[tuple[float, float]]
    at: tuple[float, float]
    anchor: str = "start"

    @property
    def name(self) -> str:
        """`source -> target`."""
        return f"{self.source} -> {self.target}"


class Frame(NamedTuple):
    """A line around boxes that belong together; `copies` more of it lie behind."""

    words: str
    left: float
    top: float
    right: float
    bottom: float
    copies: int = 0


@dataclass
class Sheet:
    """The parts of a level; `left` and `right` are where it is cut out."""

    left: float
    right: float
    boxes: dict[str, Box] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    height: float = 0

    def put(self, name: str, words: str, across: tuple[float, float], top: float, rows: Rows,
            colour: str = INK, *, tensor: bool = False) -> float:  # fmt: skip
        """Adds a box; returns where the next row begins."""
        bottom = top + rows.box
        self.boxes[name] = Box(name, words, across[0], top, across[1], bottom, colour, tensor,
                               rows.font)  # fmt: skip
        return bottom + rows.gap

    def down(self, source: str, target: str, *, low: bool = False) -> None:
        """An arrow straight down, in the middle of the narrower box.

        The shape on a long one is near its start, or with `low` near its end.
        """
        start, end = self.boxes[source], self.boxes[target]
        x = min(start, end, key=lambda box: box.right - box.left).middle[0]
        y = min((start.bottom + end.top) / 2, start.bottom + 9)
        if low:
            y = end.top - 9
        points = (x, start.bottom), (x, end.top)
        self.arrows.append(Arrow(source, target, points, (x + 6, y)))

    def across(self, source: str, target: str) -> None:
        """An arrow straight to the side."""
        start, end = self.boxes[source], self.boxes[target]
        y = start.middle[1]
        from_, to = (start.left, end.right) if end.right < start.left else (start.right, end.left)
        self.arrows.append(
            Arrow(source, target, ((from_, y), (to, y)), ((from_ + to) / 2, y - 8), "middle")
        )

    def around(self, source: str, target: str, x: float) -> None:
        """An arrow past what is in between, along `x`."""
        start, end = self.boxes[source], self.boxes[target]
        y, below = start.middle[1] + 4, end.middle[1] - 4
        side = "left" if x < start.left else "right"
        points = (getattr(start, side), y), (x, y), (x, below), (getattr(end, side), below)
        self.arrows.append(Arrow(source, target, points, (x + 5, (y + below) / 2)))

    def out(self, source: str, length: float) -> None:
        """The arrow that leaves the picture."""
        start = self.boxes[source]
        x = start.middle[0]
        points = (x, start.bottom), (x, start.bottom + length)
        self.arrows.append(Arrow(source, "", points, (x + 6, start.bottom + length / 2)))
        self.height = start.bottom + length
