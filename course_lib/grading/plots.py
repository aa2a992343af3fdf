"""The plots of the class report: what they show, in words and as the geometry of an SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NUM_BINS = 10
OUTCOMES = {
    "correct": ("✓", "right"),
    "incorrect": ("✗", "wrong"),
    "raised": ("!", "raised an error"),
    "stopped": ("∞", "stopped"),
    "not_attempted": ("–", "not attempted"),
    "not_graded": ("?", "not graded"),
}
STOPPED = {"timed_out": "out of time", "out_of_memory": "out of memory", "crashed": "crashed"}


@dataclass(frozen=True)
class Histogram:
    """Students by score: `counts[i]` of them got from 10 i % up to the next tenth."""

    counts: tuple[int, ...]

    @property
    def alt(self) -> str:
        """What there is to see, in words."""
        total = sum(self.counts)
        if not total:
            return "No student has a score yet."
        shown = [f"{n} at {self.label(i)}" for i, n in enumerate(self.counts) if n]
        return f"Scores of {total} student{'s' * (total != 1)}: {', '.join(shown)}."

    def label(self, bin_number: int) -> str:
        """The scores that a bar counts."""
        low, high = 10 * bin_number, 10 * (bin_number + 1)
        return f"{low} to {high} %" if high == 100 else f"{low} to {high - 1} %"

    def bars(self, width: float = 46, height: float = 120) -> list[dict]:
        """Geometry of the bars, the highest `height` high."""
        most = max([*self.counts, 1])
        return [
            {
                "x": i * width,
                "y": height - height * n / most,
                "height": height * n / most,
                "width": width - 6,
                "count": n,
                "label": self.label(i),
            }
            for i, n in enumerate(self.counts)
        ]


def histogram(shares: Sequence[float]) -> Histogram:
    """Count shares in 0..1 by tenths; 1 belongs to the last."""
    counts = [0] * NUM_BINS
    for share in shares:
        counts[min(math.floor(share * NUM_BINS + 1e-9), NUM_BINS - 1)] += 1
    return Histogram(tuple(counts))


@dataclass(frozen=True)
class OutcomeBars:
    """One bar an exercise: how many students got which outcome, side by side."""

    rows: tuple[tuple[str, Mapping[str, int]], ...]

    @property
    def alt(self) -> str:
        """What there is to see, in words."""
        told = [
            f"{name} {', '.join(f'{counts[key]} {OUTCOMES[key][1]}' for key in _present(counts))}"
            for name, counts in self.rows
        ]
        return f"Outcomes: {'; '.join(told)}." if told else "No exercise is graded yet."

    @property
    def present(self) -> list[str]:
        """The outcomes that occur, for the legend."""
        return [key for key in OUTCOMES if any(counts.get(key) for _, counts in self.rows)]

    def bars(self, width: float = 460) -> list[dict]:
        """Geometry of the bars' pieces, all bars `width` wide; small pieces go without a label."""
        found = []
        for name, counts in self.rows:
            pieces, x, total = [], 0.0, sum(counts.values())
            for key in _present(counts):
                wide = width * counts[key] / total
                label = f"{OUTCOMES[key][0]} {counts[key]}" if wide >= 26 else ""
                pieces.append({"outcome": key, "x": x, "width": wide, "label": label})
                x += wide
            found.append({"name": name, "pieces": pieces})
        return found


def _present(counts: Mapping[str, int]) -> list[str]:
    return [key for key in OUTCOMES if counts.get(key)]
