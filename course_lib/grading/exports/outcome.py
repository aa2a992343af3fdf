"""What an export did, or would do: counts, names and reasons, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from course_lib.grading.exports.shown import shown
from course_lib.grading.graded import COMPLETE, INCOMPLETE

MOST_LINES = 12


@dataclass
class LessonOutcome:
    """One lesson in the file: who got a score there, and for everyone else why not.

    `kept` holds students whose cell had another number, which stayed; `closed` those whose cell
    the LMS does not change; `unplaced` graded students without a row of their own.
    """

    lesson: str
    column: str = ""
    points: float | None = None
    written: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    unplaced: list[str] = field(default_factory=list)
    not_graded: dict[str, str] = field(default_factory=dict)
    above: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether the score of every graded student is where it should be."""
        return not (self.kept or self.closed or self.unplaced)

    def lines(self) -> Iterator[str]:
        """The lesson as a person reads it."""
        worth = "" if self.points is None else f", {self.points:g} points"
        yield f"{self.lesson}" + (f" into {shown(self.column)!r}{worth}" if self.column else worth)
        yield _count("scores written", self.written)
        if self.column:
            yield _count("already there", self.same)
            yield from _listed("different there, kept (or --overwrite)", self.kept)
            yield from _listed("closed to changes", self.closed)
            yield from _listed("graded, without a row", dict.fromkeys(self.unplaced, ""))
        yield from _listed("not graded, left blank", self.not_graded)
        if self.above:
            yield from _listed("above the maximum", dict.fromkeys(self.above, ""))


@dataclass(frozen=True)
class Outcome:
    """An export: the file, how its rows were matched, and each lesson."""

    to: str
    output: Path
    dry_run: bool
    lessons: tuple[LessonOutcome, ...]
    into: Path | None = None
    matched: int = 0
    ambiguous: Mapping[str, str] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if the score of every graded student was placed, else 3."""
        return COMPLETE if all(lesson.complete for lesson in self.lessons) else INCOMPLETE

    def as_dict(self) -> dict:
        """JSON-able: all names and reasons."""
        paths = {"output": str(self.output), "into": self.into and str(self.into)}
        return {**asdict(self), **paths, "exit_code": self.exit_code}

    def text(self) -> str:
        """What the command prints."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.into is not None:
            yield f"students of {self.into}"
            yield f"  {'matched':<40}{self.matched:>5}"
            yield from _listed("unmatched in this file", dict.fromkeys(self.left_over, ""))
            yield from _listed("unmatched in the gradebook", dict.fromkeys(self.unmatched, ""))
            yield from _listed("ambiguous", self.ambiguous)
            if self.strangers:
                strangers = dict.fromkeys(self.strangers, "")
                yield from _listed("in --students, not in the gradebook", strangers)
        for lesson in self.lessons:
            yield from lesson.lines()
        yield f"would write {self.output}" if self.dry_run else f"wrote {self.output}"
        if self.unmatched or self.ambiguous:
            yield "say who is who with --students FILE (columns nbgrader_id, lms_id)"


def _count(what: str, found: Sequence | Mapping) -> str:
    return f"  {what:<40}{len(found):>5}"


def _listed(what: str, reasons: Mapping[str, str]) -> Iterator[str]:
    yield _count(what, reasons)
    for name, reason in list(reasons.items())[:MOST_LINES]:
        yield f"      {shown(name)}" + (f": {reason}" if reason else "")
    if len(reasons) > MOST_LINES:
        yield f"      and {len(reasons) - MOST_LINES} more; --json lists all"
