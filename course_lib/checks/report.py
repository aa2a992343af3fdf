"""What a student reads: one report, as text and as HTML."""

import html
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from course_lib.checks.exercise import Exercise
from course_lib.checks.fragment import block, hidden, inline, listing, paragraph
from course_lib.checks.judge import mutated
from course_lib.checks.probe import Array, Probe
from course_lib.checks.record import Recorded

MIMETYPE = "application/vnd.course.report+json"
WORDS = {
    "correct": ("✓", "correct"),
    "incorrect": ("✗", "not yet"),
    "raised": ("⚠", "stopped with an error"),
    "not_attempted": ("○", "not attempted"),
    "checker_failed": ("!", "our check failed, not you"),
}
_BARS = {"correct": "good", "incorrect": "bad", "raised": "bad"}


@dataclass(frozen=True)
class Finding:
    """One thing to know: an id, a fact, one question or pointer, and the part it belongs to."""

    id: str
    message: str
    hint: str
    part: str


@dataclass(frozen=True)
class Report:
    """The verdict on one answer.

    Attributes:
        outcome: "correct", "incorrect", "raised", "not_attempted" or "checker_failed".
        score: 0..1.
        findings: what to know, the most telling first.
        mistake: id of the known mistake that gives the student's numbers, or None.
        parts: for each part, (earned, possible) as shares of 1.
        example: the smallest input that fails, and what the student's code made of it.
    """

    exercise: str
    outcome: str
    score: float
    max_points: float
    findings: list[Finding] = field(default_factory=list)
    mistake: str | None = None
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)
    example: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def points(self) -> float:
        """The points earned, rounded to a tenth; the maximum only for a full score."""
        if self.score >= 1.0:
            return float(self.max_points)
        return min(round(self.score * self.max_points, 1), self.max_points - 0.1)

    @staticmethod
    def correct(exercise: Exercise, notes: list[str]) -> "Report":
        """Full points."""
        return Report(exercise.name, "correct", 1.0, exercise.points, notes=notes)

    @staticmethod
    def not_attempted(exercise: Exercise, why: str) -> "Report":
        """Nothing to grade yet."""
        hint = f'`hint("{exercise.name}", 1)` shows where to begin.'
        finding = Finding("not_attempted", why, hint, "values")
        return Report(exercise.name, "not_attempted", 0.0, exercise.points, [finding])

    @staticmethod
    def stopped(exercise: Exercise, error: str, *, stale: bool = False) -> "Report":
        """The cell with the answer ended in an error before it defined it.

        Args:
            error: what Python said, and of which line; may be anybody's text.
            stale: an earlier definition is still there.
        """
        said = " ".join(error[:600].split())
        message = f"Your cell stopped before it defined `{exercise.name}`: {said}"
        if stale:
            message += f". An earlier `{exercise.name}` is still there; this check did not use it."
        hint = "Fix that, run the cell again, then this check."
        finding = Finding("cell_stopped", message, hint, "values")
        return Report(exercise.name, "raised", 0.0, exercise.points, [finding])

    @staticmethod
    def renamed(exercise: Exercise, found: str) -> "Report":
        """The answer seems to be there, under another name."""
        message = f"You have `{found}`; the exercise wants `{exercise.name}`."
        hint = "Rename it, run its cell again, then this check."
        finding = Finding("renamed", message, hint, "values")
        return Report(exercise.name, "not_attempted", 0.0, exercise.points, [finding])

    @staticmethod
    def own_version(exercise: Exercise) -> "Report":
        """The course's own solution was checked instead of the student's."""
        finding = Finding(
            "course_version",
            f"This runs the course's own `{exercise.name}`, so there is nothing of yours to check.",
            "Run the cell with your own definition again, then this check.",
            "values",
        )
        return Report(exercise.name, "not_attempted", 0.0, exercise.points, [finding])

    @staticmethod
    def checker_failed(exercise: Exercise, error: Exception) -> "Report":
        """The fault is ours and costs no points."""
        finding = Finding(
            "checker_failed",
            f"The check itself failed ({type(error).__name__}: {error}). You lose no points.",
            "Please tell your instructor, and go on.",
            "values",
        )
        return Report(exercise.name, "checker_failed", 1.0, exercise.points, [finding])

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-able data."""
        return {**asdict(self), "points": self.points}

    def text(self) -> str:
        """The report as plain text."""
        symbol, word = WORDS[self.outcome]
        lines = [
            f"{symbol} {self.exercise}: {word}  ({self.points:g} of {self.max_points:g} points)"
        ]
        for finding in self.findings:
            lines += ["", finding.message]
            if finding.hint:
                lines.append(f"  → {finding.hint}")
        if self.example:
            lines += ["", self.example]
        if self.outcome == "incorrect" and self.parts:
            lines += ["", self._parts_line()]
        if self.outcome in ("incorrect", "raised"):
            lines += ["", f'More help: hint("{self.exercise}", 1), 2 or 3']
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _parts_line(self) -> str:
        return "Points by part: " + ", ".join(
            f"{part} {earned * self.max_points:.1f}/{possible * self.max_points:.1f}"
            for part, (earned, possible) in self.parts.items()
        )

    def html(self) -> str:
        """The report as an HTML fragment that says what the text says."""
        symbol, word = WORDS[self.outcome]
        points = f"{self.points:g} of {self.max_points:g} points"
        name = f"{hidden(symbol)} <code>{html.escape(self.exercise)}</code>"
        parts = [paragraph(f"<strong>{name}: {word}</strong> ({points})")]
        for finding in self.findings:
            parts.append(paragraph(inline(finding.message)))
            if finding.hint:
                parts.append(paragraph(f"{hidden('→')} <em>{inline(finding.hint)}</em>"))
        if self.example:
            parts.append(listing(self.example, "The smallest input that fails"))
        if self.outcome == "incorrect" and self.parts:
            parts.append(paragraph(self._parts_line(), small=True))
        if self.outcome in ("incorrect", "raised"):
            help_line = f'More help: `hint("{self.exercise}", 1)`, 2 or 3'
            parts.append(paragraph(inline(help_line), small=True))
        parts += [paragraph(inline(f"Note: {note}"), small=True) for note in self.notes]
        return block(_BARS.get(self.outcome, "neutral"), parts, announced=True)

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return self.text()


def importance(violation) -> tuple[int, bool, int, int]:
    """What a student should see first: values before edge cases, plain calls, few arguments.

    What fails without a mask has nothing to do with masks, so their sentences come last.
    """
    probe = violation.probe
    return _PARTS.index(violation.part), _is_special(probe), len(probe.inputs()), probe.size


def _is_special(probe: Probe) -> bool:
    """Whether a call has something that a reader would take for the cause: huge numbers, a mode."""
    arrays = [value for value in probe.inputs().values() if isinstance(value, Array)]
    finite = (np.where(np.isfinite(array.data), array.data, 0) for array in arrays)
    return (
        probe.scenario != "call"
        or probe.training
        or any(array.strided for array in arrays)
        or any(np.abs(data).max(initial=0) > _HUGE for data in finite)
    )


_HUGE = 50
_PARTS = ("values", "edges", "gradients", "hygiene")


def example_of(exercise: Exercise, violations, outcomes) -> str:
    """The smallest failing input with the student's result; empty if nothing small failed."""
    telling = [v for v in violations if v.aspect in ("values", "shape", "type", "raised")]
    telling = telling or [v for v in violations if v.aspect in ("gradients", "mutated")]
    telling = [v for v in telling if v.probe.size <= 60 and not v.probe.state]
    if not telling:
        return ""
    violation = min(telling, key=importance)
    seen = outcomes[violation.probe.name][0]
    lines = ["The smallest input that fails:"]
    for name, value in violation.probe.inputs().items():
        lines.append(_assignment(name, _input_text(value)))
    if violation.aspect == "gradients":
        for name, gradient in seen.gradients.items():
            lines.append(_assignment(f"your gradient of {name}", _recorded_text(gradient)))
    elif violation.aspect == "mutated":
        for name in mutated(violation.probe, seen):
            if name in seen.arguments:
                after = _recorded_text(seen.arguments[name])
                lines.append(_assignment(f"{name} after the call", after))
    elif seen.raised is None and seen.outputs is not None:
        lines.append(_assignment("your result", _recorded_text(seen.outputs)))
    return "\n".join(lines)


def _assignment(name: str, text: str) -> str:
    indent = " " * (len(name) + 5)
    return f"  {name} = " + text.replace("\n", "\n" + indent)


def _input_text(value) -> str:
    if isinstance(value, Array):
        return _array_text(value.data)
    if isinstance(value, list | tuple):
        inside = ",\n".join(_input_text(item) for item in value)
        return "[" + inside.replace("\n", "\n ") + "]"
    return str(getattr(value, "name", value))


def _recorded_text(recorded: Recorded) -> str:
    if recorded.items:
        return "\n".join(f"{key}: {_recorded_text(item)}" for key, item in recorded.items.items())
    if recorded.kind == "str":
        return repr(recorded.text)
    if recorded.data is None:
        return recorded.type_name
    return _array_text(recorded.data)


def _array_text(data: np.ndarray) -> str:
    return np.array2string(
        data, precision=3, suppress_small=False, separator=", ", threshold=80, floatmode="maxprec"
    )
