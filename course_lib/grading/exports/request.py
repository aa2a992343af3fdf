"""The options of an export, and the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib.grading.graded import COMPLETE, INCOMPLETE

Groups = dict[str, dict[str, str]]  # for each group its names, each with a reason or ""


@dataclass(frozen=True)
class ExportRequest:
    """What to export: the options of `course export`, whose help explains them."""

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
    zero_missing: bool = False
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Outcome:
    """What an export wrote. `into` and `matching` belong to an LMS's file."""

    output: Path
    dry_run: bool
    lessons: list[dict[str, Any]]
    into: Path | None = None
    matching: Groups = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Return 0 if the score of every graded student was written, else 3."""
        unfilled = ("kept", "closed", "unplaced")
        missing = any(one.get(group) for one in self.lessons for group in unfilled)
        return INCOMPLETE if missing else COMPLETE

    def as_dict(self) -> dict:
        """Return everything as data for JSON."""
        paths = {"output": str(self.output), "into": self.into and str(self.into)}
        return {**asdict(self), **paths, "exit_code": self.exit_code}
