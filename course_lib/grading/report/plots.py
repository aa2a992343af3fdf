"""The two plots of the class report, drawn by the course's figure engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from course_lib.plotting.colours import KEY, OUTPUT, PLAIN, QUERY, VALUE, WEIGHT
from course_lib.plotting.figures import Plot, Table
from course_lib.plotting.svg import drawing, element, text

NUM_BINS = 10
WIDTH, HEIGHT = 470, 180
OUTCOMES = {
    "correct": ("✓", "right"),
    "incorrect": ("✗", "wrong"),
    "raised": ("!", "raised an error"),
    "stopped": ("∞", "stopped"),
    "not_attempted": ("–", "not attempted"),
    "not_graded": ("?", "not graded"),
}
STOPPED = {"timed_out": "out of time", "out_of_memory": "out of memory", "crashed": "crashed"}
_COLOURS = dict(zip(OUTCOMES, (VALUE, KEY, OUTPUT, WEIGHT, PLAIN, QUERY), strict=True))
_ROOM = 26  # a piece needs this width for its label


def histogram(shares: Sequence[float], max_points: float) -> Plot:
    """Students by score: a bar for each tenth of the points; a score of all belongs to the last.

    Args:
        shares: points as shares of `max_points`, 0 to 1.
        max_points: what the machine can give.
    """
    counts = [0] * NUM_BINS
    for share in shares:
        counts[min(math.floor(share * NUM_BINS + 1e-9), NUM_BINS - 1)] += 1
    most, step, ground = max([*counts, 1]), 46, 140
    parts = [element("line", x1=5, y1=ground, x2=465, y2=ground, stroke="currentColor")]
    for i, count in enumerate(counts):
        middle, height = 5 + step * i + 20, 120 * count / most
        box = {"x": middle - 20, "y": ground - height, "width": 40, "height": height}
        parts.append(element("rect", **box, fill=QUERY))
        parts.append(text(count or "", middle, ground - height - 9, 13))
        parts.append(text(f"{10 * i}+", middle, ground + 14, 13))
    words = f"per cent of the {max_points:g} points that are graded by machine"
    parts.append(text(words, WIDTH / 2, 172, 13))
    table = Table(["per cent", "students"], [[_bin(i), str(n)] for i, n in enumerate(counts)])
    return Plot(drawing("".join(parts), WIDTH, HEIGHT), _histogram_sentence(counts), table)


def _bin(number: int) -> str:
    """The scores that a bar counts."""
    low, high = 10 * number, 10 * (number + 1)
    return f"{low} to {high} %" if high == 100 else f"{low} to {high - 1} %"


def _histogram_sentence(counts: Sequence[int]) -> str:
    total = sum(counts)
    if not total:
        return "No student has a score yet."
    shown = [f"{n} at {_bin(i)}" for i, n in enumerate(counts) if n]
    return f"Scores of {total} student{'s' * (total != 1)}: {', '.join(shown)}."


def outcome_bars(rows: Sequence[tuple[str, Mapping[str, int]]]) -> Plot:
    """A bar for each exercise: how many students got which outcome, side by side.

    Args:
        rows: exercise and how often each of `OUTCOMES` occurred; small pieces go without a label.
    """
    parts = []
    for place, (name, counts) in enumerate(rows):
        x, y, total = 5.0, 46 * place, sum(counts.values())
        mono = {"text_anchor": "start", "font_family": "ui-monospace, monospace"}
        parts.append(text(name, x, y + 10, 13, **mono))
        for key in _present(counts):
            wide = (WIDTH - 10) * counts[key] / total
            box = {"x": x, "y": y + 19, "width": max(1.0, wide - 2), "height": 22}
            fill = {"fill": _COLOURS[key], "fill_opacity": 0.4, "stroke": _COLOURS[key]}
            parts.append(element("rect", **box, **fill))
            if wide >= _ROOM:
                label = f"{OUTCOMES[key][0]} {counts[key]}"
                parts.append(text(label, x + wide / 2 - 1, y + 31, 13))
            x += wide
    present = [key for key in OUTCOMES if any(counts.get(key) for _, counts in rows)]
    table = Table(
        ["exercise", *(OUTCOMES[key][1] for key in present)],
        [[name, *(str(counts.get(key, 0)) for key in present)] for name, counts in rows],
    )
    picture = drawing("".join(parts), WIDTH, 46 * max(1, len(rows)))
    return Plot(picture, _outcomes_sentence(rows), table)


def _outcomes_sentence(rows: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    told = [
        f"{name} {', '.join(f'{counts[key]} {OUTCOMES[key][1]}' for key in _present(counts))}"
        for name, counts in rows
    ]
    return f"Outcomes: {'; '.join(told)}." if told else "No exercise is graded yet."


def _present(counts: Mapping[str, int]) -> list[str]:
    return [key for key in OUTCOMES if counts.get(key)]
