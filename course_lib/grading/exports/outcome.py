"""What an export wrote, or would write: counts, names and reasons, as text and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from course_lib.grading.exports.matching import Matching
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.gate import one_line

MOST_LINES = 12


@dataclass
class LessonOutcome:
    """What became of each student's score for one lesson, with reasons.

    Scores in `kept` differ from the file's and were not written. Cells in `closed` are not changed
    by the LMS. Students in `unplaced` are graded and have no row. The table has only `written` and
    `not_graded`.
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

    def lines(self) -> Iterator[str]:
        """Yield the lesson's lines of text."""
        into = f" into {one_line(self.column)!r}" if self.column else ""
        worth = "" if self.points is None else f", {self.points:g} points"
        yield f"{self.lesson}{into}{worth}"
        yield _count("scores written", self.written)
        if self.column:
            yield _count("already there", self.same)
            yield from _listed("different there, kept (or --overwrite)", self.kept)
            yield from _listed("closed to changes", self.closed)
            yield from _listed("graded, without a row", self.unplaced)
        yield from _listed("not graded, left blank", self.not_graded)
        if self.above:
            yield from _listed("above the maximum", self.above)


@dataclass(frozen=True)
class Outcome:
    """What an export wrote. `into` and `matching` belong to an LMS's file."""

    output: Path
    dry_run: bool
    lessons: tuple[LessonOutcome, ...]
    into: Path | None = None
    matching: Matching | None = None

    @property
    def exit_code(self) -> int:
        """0 if the score of every graded student is in its place, else 3."""
        unfilled = (one.kept or one.closed or one.unplaced for one in self.lessons)
        return INCOMPLETE if any(unfilled) else COMPLETE

    def as_dict(self) -> dict:
        """Return everything as data for JSON."""
        paths = {"output": str(self.output), "into": self.into and str(self.into)}
        return {**asdict(self), **paths, "exit_code": self.exit_code}

    def text(self) -> str:
        """Return what the command prints."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        matching = self.matching
        if matching:
            yield f"students of {self.into}"
            yield _count("matched", matching.rows)
            yield from _listed("unmatched in this file", matching.left_over)
            yield from _listed("unmatched in the gradebook", matching.unmatched)
            yield from _listed("ambiguous", matching.ambiguous)
            if matching.unknown:
                yield from _listed("in --students, not in the gradebook", matching.unknown)
        for lesson in self.lessons:
            yield from lesson.lines()
        yield f"would write {self.output}" if self.dry_run else f"wrote {self.output}"
        if matching and (matching.unmatched or matching.ambiguous):
            yield "say who is who with --students FILE (columns nbgrader_id, lms_id)"


def _count(what: str, found: Collection) -> str:
    return f"  {what:<40}{len(found):>5}"


def _listed(what: str, found: Collection[str]) -> Iterator[str]:
    """Yield a count, and the first names, each with its reason if `found` has reasons."""
    yield _count(what, found)
    for name in list(found)[:MOST_LINES]:
        reason = f": {one_line(found[name], 200)}" if isinstance(found, Mapping) else ""
        yield f"      {one_line(name)}{reason}"
    if len(found) > MOST_LINES:
        yield f"      and {len(found) - MOST_LINES} more; --json lists all"
