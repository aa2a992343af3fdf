"""The report that a student reads, as text and as HTML."""

import html
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.html import block, folded, hidden, inline, listing, paragraph
from course_lib.checks.judge.outcomes import OPTIONAL, WORDS, amount

MIMETYPE = "application/vnd.course.report+json"
_SAYS = {"hygiene": "hygiene (inputs, dtype and device unchanged)"}
HINTS = ("the concept", "where to look", "a last push")
_BARS = {"correct": "good", "not_attempted": "neutral", "checker_failed": "neutral"}


def hint_html(words: str) -> str:
    """Return a hint as HTML. If it has several lines, it is code."""
    return listing(words, "Hint") if "\n" in words else paragraph(inline(words))


def _whole_numbers(
    exact: Mapping[str, float], total: int, most: Mapping[str, int]
) -> dict[str, int]:
    """Round numbers to integers that add up to `total`, each from 0 to its `most`."""
    rounded = {part: int(number + 1e-9) for part, number in exact.items()}
    while left := total - sum(rounded.values()):
        step = 1 if left > 0 else -1
        room = [part for part in exact if 0 <= rounded[part] + step <= most[part]]
        rounded[max(room, key=lambda part: step * (exact[part] - rounded[part]))] += step
    return rounded


@dataclass(frozen=True)
class Finding:
    """One finding: an id, a fact, one question or pointer, and its part of the points."""

    id: str
    message: str
    hint: str = ""
    part: str = "values"


@dataclass(frozen=True)
class Report:
    """The verdict on one answer.

    Attributes:
        outcome: a key of `WORDS`.
        score: 0..1.
        findings: the most informative first.
        mistake: id of the known mistake that gives the student's numbers, or None.
        parts: for each part, (earned, possible) as shares of 1.
        tally: a sentence about the outcome of all probes, if the exercise has one.
        starred: whether the exercise is optional and its points do not count.
    """

    exercise: str
    outcome: str
    score: float
    max_points: float
    findings: list[Finding] = field(default_factory=list)
    mistake: str | None = None
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)
    tally: str = ""
    example: Example = field(default_factory=Example)
    notes: list[str] = field(default_factory=list)
    starred: bool = False

    @staticmethod
    def on(exercise: Exercise, outcome: str, score: float, *args: Any, **more: Any) -> "Report":
        """Return a report on an exercise, with its name, its points and its star."""
        about = exercise.name, outcome, score, exercise.points
        return Report(*about, *args, **more, starred=exercise.starred)

    @property
    def points(self) -> float:
        """Return the points earned, rounded to a tenth; the maximum only for a full score."""
        if self.score >= 1.0:
            return float(self.max_points)
        return min(round(self.score * self.max_points, 1), self.max_points - 0.1)

    @property
    def counted(self) -> float:
        """Return the points that count in the grade, which are 0 for an optional exercise."""
        return 0.0 if self.starred else self.points

    @staticmethod
    def saying(exercise: Exercise, outcome: str, id: str, message: str, hint: str = "") -> "Report":
        """Return a report with a single finding and no points."""
        return Report.on(exercise, outcome, 0.0, [Finding(id, message, hint)])

    @staticmethod
    def not_attempted(exercise: Exercise, why: str) -> "Report":
        """Return a report that says that there is nothing to grade yet."""
        return Report.saying(exercise, "not_attempted", "not_attempted", why)

    @staticmethod
    def course_version(exercise: Exercise) -> "Report":
        """Return the report for checking the course's own solution instead of the student's."""
        name = exercise.name
        message = f"This runs the course's own `{name}`, so there is nothing of yours to check."
        hint = "Run the cell with your own definition again, then this check."
        return Report.saying(exercise, "not_attempted", "course_version", message, hint)

    @staticmethod
    def checker_failed(exercise: Exercise, error: Exception) -> "Report":
        """Return the report for a fault of the checker, which leaves the exercise ungraded."""
        what = traceback.format_exception_only(error)[-1].strip()
        message = f"The check itself failed ({what}), so your answer was not graded."
        hint = "This is our mistake, not yours. Please tell your instructor, and go on."
        return Report.saying(exercise, "checker_failed", "checker_failed", message, hint)

    def without_repeats(self, others: Iterable["Report"]) -> "Report":
        """Name another report with the same first finding instead of repeating it."""
        first = self.findings[:1]
        for other in others:
            if first and first == other.findings[:1]:
                says = f"It fails for the same reason as `{other.exercise}`."
                same = [Finding(first[0].id, says, part=first[0].part)]
                return replace(self, findings=same, example=Example())
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        return {**asdict(self), "points": self.points}

    def text(self) -> str:
        """Return the report as plain text."""
        return "\n".join(text for text, _ in self._pieces())

    def html(self, hints: Sequence[str] = (), below: Iterable[str] = ()) -> str:
        """Return the report as an HTML fragment with the same content as the text."""
        pieces = [fragment for _, fragment in self._pieces(hints)]
        return block(_BARS.get(self.outcome, "bad"), [*pieces, *below], announced=True)

    def _pieces(self, hints: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
        """Yield the pieces of the report, each as text and as HTML."""
        (symbol, word), star = WORDS[self.outcome], f"; {OPTIONAL}" if self.starred else ""
        earned = f"{self.points:g} of {amount(self.max_points, 'point')}"
        worth = ("not graded" if self.outcome == "checker_failed" else earned) + star
        name = f"{hidden(symbol)} <code>{html.escape(self.exercise)}</code>"
        yield (
            f"{symbol} {self.exercise}: {word}  ({worth})",
            paragraph(f"<strong>{name}: {word}</strong> ({worth})"),
        )
        if self.tally:
            yield f"\n{self.tally}", paragraph(inline(self.tally))
        for finding in self.findings:
            yield f"\n{finding.message}", paragraph(inline(finding.message))
            if finding.hint:
                asked = paragraph(f"{hidden('→')} <em>{inline(finding.hint)}</em>")
                yield f"  → {finding.hint}", asked
        if self.example:
            yield f"\n{self.example.text()}", self.example.html()
        if self.outcome == "incorrect" and self.parts:
            yield f"\n{self._parts_line()}", paragraph(self._parts_line(), small=True)
        not_begun = any(finding.id == "not_attempted" for finding in self.findings)
        if self.outcome in ("incorrect", "raised") or not_begun:
            words = f'More help: `hint("{self.exercise}", level)`, with level 1, 2 or 3'
            more = paragraph(inline(words), small=True)
            if hints:
                summaries = (f"Hint {level}: {what}" for level, what in enumerate(HINTS, start=1))
                more = "\n".join(map(folded, summaries, map(hint_html, hints)))
            yield "\n" + words.replace("`", ""), more
        for note in self.notes:
            yield f"Note: {note}", paragraph(inline(f"Note: {note}"), small=True)

    def _parts_line(self) -> str:
        """Return the points of each part, in tenths that add up to the total."""
        tenths = round(10 * self.max_points)
        parts = {part: pair for part, pair in self.parts.items() if pair[1] > 0}
        exact = {part: tenths * share for part, (_, share) in parts.items()}
        possible = _whole_numbers(exact, tenths, dict.fromkeys(exact, tenths))
        exact = {part: tenths * earned for part, (earned, _) in parts.items()}
        earned = _whole_numbers(exact, round(10 * self.points), possible)
        told = (
            f"{_SAYS.get(part, part)} {earned[part] / 10:.1f}/{possible[part] / 10:.1f}"
            for part in parts
        )
        return f"Points by part: {', '.join(told)}"

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()
