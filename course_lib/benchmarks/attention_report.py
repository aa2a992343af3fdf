"""How the numbers of `course bench attention` are shown: tables, and one picture with its words."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.benchmarks.attention_measure import MEBIBYTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table as RichTable

    from course_lib.benchmarks.attention import Comparison, Row

SHOWN = ("taught", "fast", "compiled", "formula", "torch", "flex")
MARKERS = dict(zip(SHOWN, "os^vDP", strict=True))


def show(comparison: Comparison, console=None) -> None:
    """Prints the ratios, the memory and what the course is held to."""
    from rich.console import Console

    console = console or Console()
    console.print(f"{comparison.machine}; {comparison.date}", highlight=False, soft_wrap=True)
    console.print(ceilings_text(comparison), highlight=False, soft_wrap=True)
    for table in (make(comparison) for make in (time_table, memory_table, promise_table)):
        if table.rows:
            _print_whole(console, table.rich())
    for row in comparison.rows:
        for name, reason in row.failures.items():
            console.print(
                f"{row.problem}, {row.passes}: no {name}; {reason}", markup=False, soft_wrap=True
            )


def _print_whole(console, table) -> None:
    """Prints a table at its own width: squeezed into a narrow terminal nobody could read it."""
    width = console.measure(table, options=console.options.update(width=1000)).maximum
    console.width = max(console.width, width)
    console.print(table)


def ceilings_text(comparison: Comparison) -> str:
    """What one thread of the machine, or its GPU, can do at best."""
    ceilings = comparison.ceilings
    return (
        f"Ceilings in a second: {ceilings.flops / 1e9:.0f} Gflop in matrix products, "
        f"{ceilings.exps / 1e9:.1f} G exponentials, {ceilings.reciprocals / 1e9:.1f} G divisions, "
        f"{4 * ceilings.numbers / 1e9:.1f} GB read or written."
    )


@dataclass
class Table:
    """A title, the names of the columns, and text in rows."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]

    def rich(self) -> RichTable:
        """For a terminal, without the columns that are empty."""
        from rich import box
        from rich.table import Table as RichTable

        filled = [i for i in range(len(self.columns)) if i < 2 or any(row[i] for row in self.rows)]
        table = RichTable(title=self.title, box=box.SIMPLE, title_justify="left")
        for i in filled:
            table.add_column(self.columns[i], justify="left" if i < 2 else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[i] for i in filled))
        return table

    def markdown(self) -> str:
        """For a page, without the title."""
        rule = ["---" if i < 2 else "---:" for i in range(len(self.columns))]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows))


def time_table(comparison: Comparison) -> Table:
    """Each candidate's time in textbook times."""
    table = Table(
        "Time compared with the textbook form (its own in ms)",
        ("problem", "pass", "textbook", *SHOWN, "fast / torch", "fast / floor"),
        [],
    )
    for row in comparison.rows:
        above = row.seconds["fast"] / row.floor if row.floor and "fast" in row.seconds else None
        table.rows.append(
            [
                row.problem,
                row.passes,
                f"{1000 * row.seconds['textbook']:.2f}",
                *(_number(row.ratios.get(name)) for name in SHOWN),
                _number(row.against_torch),
                "" if above is None else f"{above:.1f}",
            ]
        )
    return table


def memory_table(comparison: Comparison) -> Table:
    """What each candidate needed at most beyond the inputs."""
    names = ("textbook", "taught", "fast", "torch")
    table = Table("Peak memory beyond the inputs, MiB", ("problem", "pass", *names), [])
    for row in comparison.rows:
        if row.peaks:
            found = (row.peaks.get(name) for name in names)
            shown = ("" if p is None else f"{p / MEBIBYTE:.1f}" for p in found)
            table.rows.append([row.problem, row.passes, *shown])
    return table


def promise_table(comparison: Comparison) -> Table:
    """What the course is held to, and what came of it."""
    columns = ("problem", "pass", "of", "at most", "measured", "met")
    table = Table("Held to, on a CPU", columns, [])
    for verdict in comparison.verdicts():
        target = verdict.target
        table.rows.append(
            [
                target.problem,
                target.passes,
                f"{'memory' if target.memory else 'time'}, {target.candidate} / {target.base}",
                _number(target.limit, 3),
                _number(verdict.measured, 3),
                {True: "yes", False: "no", None: "not measured"}[verdict.met],
            ]
        )
    return table


def _number(value: float | None, digits: int = 2) -> str:
    """A ratio, with more digits where it is small; nothing for what was not measured."""
    if value is None:
        return ""
    return f"{value:.{digits if value >= 0.1 else 4}f}"


# ---------------------------------------------------------------- picture
def save(comparison: Comparison, folder: Path) -> list[Path]:
    """Writes attention_DATE_DEVICE.json, and the picture beside it, into `folder`."""
    from course_lib.benchmarks.attention import to_json
    from course_lib.plotting.svg import of_figure

    folder.mkdir(parents=True, exist_ok=True)
    stem = f"attention_{comparison.date}_{comparison.device}"
    document, picture = folder / f"{stem}.json", folder / f"{stem}.svg"
    document.write_text(to_json(comparison) + "\n", encoding="utf-8")
    title = f"<title>{html.escape(alt_text(comparison))}</title>"
    drawn = of_figure(plot(comparison)).replace("max-width:100%", "background:#fff", 1)
    picture.write_text(drawn.replace(">", f">{title}", 1) + "\n", encoding="utf-8")
    return [document, picture]


def plot(comparison: Comparison) -> Figure:
    """One line for each problem, one mark for each candidate: its time in textbook times."""
    from matplotlib.figure import Figure

    from course_lib.plotting.colours import SERIES

    rows = _plotted(comparison)
    figure = Figure(figsize=(8, 1.2 + 0.27 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for name, colour in zip(SHOWN, SERIES, strict=True):
        places = [(row.ratios[name], i) for i, row in enumerate(rows) if name in row.ratios]
        if places:
            axes.scatter(
                *zip(*places, strict=True), color=colour, marker=MARKERS[name], label=name, s=26
            )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{row.problem}" for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time / time of the textbook form")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(fontsize=8, ncols=len(SHOWN), loc="upper center", bbox_to_anchor=(0.3, -0.06))
    return figure


def alt_text(comparison: Comparison) -> str:
    """The picture in words, computed from the numbers."""
    rows = [row for row in _plotted(comparison) if "fast" in row.ratios]
    best = min(rows, key=lambda row: row.ratios["fast"])
    worst = max(rows, key=lambda row: row.ratios["fast"])
    return (
        f"Time of each candidate divided by that of the textbook form, for {len(rows)} problems on "
        f"a logarithmic axis. The fast form takes from {_number(best.ratios['fast'])} "
        f"({best.problem}) to {_number(worst.ratios['fast'])} ({worst.problem}) of it."
    )


def _plotted(comparison: Comparison) -> list[Row]:
    """Forward and backward together where both were measured."""
    last = {row.problem: row for row in comparison.rows}
    return list(last.values())
