"""What an export is asked for, and what it wrote or would write, as text and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib.grading.exports.sheet import listed
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.gate import one_line

MOST_LINES = 12
Groups = dict[str, dict[str, str]]  # names in groups, each with a reason or ""
COUNTED = ("matched", "written", "same")  # groups of which the text does not list the names
CAPTIONS = {
    "matched": "matched",
    "left_over": "unmatched in this file",
    "unmatched": "unmatched in the gradebook",
    "ambiguous": "ambiguous",
    "unknown": "in --students, not in the gradebook",
    "written": "scores written",
    "same": "already there",
    "kept": "different there, kept (or --overwrite)",
    "closed": "closed to changes",
    "unplaced": "graded, without a row",
    "not_graded": "not graded, left blank",
    "above": "above the maximum",
}


@dataclass(frozen=True)
class ExportRequest:
    """What to export: the options of `course export`, whose help explains them.

    `lessons` None means every graded lesson. `columns` are the columns of --map by lesson.
    """

    to: str = "csv"
    lessons: Sequence[str] | None = None
    into: Path | None = None
    match: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    students: Path | None = None
    scale: bool = False
    overwrite: bool = False
    output: Path | None = None
    partial: bool = False
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Outcome:
    """What an export wrote. `into` and `matching` belong to an LMS's file.

    Each of `lessons` has the name, the column, its points, and its students by `CAPTIONS`.
    """

    output: Path
    dry_run: bool
    lessons: list[dict[str, Any]]
    into: Path | None = None
    matching: Groups = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 if the score of every graded student is in its place, else 3."""
        unfilled = ("kept", "closed", "unplaced")
        missing = any(one.get(group) for one in self.lessons for group in unfilled)
        return INCOMPLETE if missing else COMPLETE

    def as_dict(self) -> dict:
        """Return everything as data for JSON."""
        paths = {"output": str(self.output), "into": self.into and str(self.into)}
        return {**asdict(self), **paths, "exit_code": self.exit_code}

    def text(self) -> str:
        """Return what the command prints."""
        lines = [f"students of {self.into}", *_lines(self.matching)] if self.into else []
        for one in self.lessons:
            into = f" into {one_line(one['column'])!r}" if one["column"] else ""
            worth = "" if one["points"] is None else f", {one['points']:g} points"
            lines += [f"{one['lesson']}{into}{worth}", *_lines(one)]
        lines.append(f"would write {self.output}" if self.dry_run else f"wrote {self.output}")
        if self.matching.get("unmatched") or self.matching.get("ambiguous"):
            lines.append("say who is who with --students FILE (columns nbgrader_id, lms_id)")
        return "\n".join(lines)


def _lines(groups: Mapping[str, Any]) -> Iterator[str]:
    """Yield the size of each group, and its names by reason."""
    for group, caption in CAPTIONS.items():
        if group not in groups:
            continue
        yield f"  {caption:<40}{len(groups[group]):>5}"
        by_reason = defaultdict(list)
        for name, reason in ({} if group in COUNTED else groups[group]).items():
            by_reason[reason].append(name)
        for reason, names in list(by_reason.items())[:MOST_LINES]:
            yield "      " + (f"{one_line(reason, 200)}: " if reason else "") + listed(names)
        if len(by_reason) > MOST_LINES:
            yield f"      and {len(by_reason) - MOST_LINES} more; --json lists all"
