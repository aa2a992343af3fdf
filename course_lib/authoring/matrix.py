"""Judge the variants of `tests/variants` and the known mistakes: `course matrix`."""

import functools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib import attention
from course_lib.authoring.in_float32 import in_float32
from course_lib.authoring.variants import Variant, documented, variants
from course_lib.checks.judge.verdict import NOT_WORDED, judge_answer, judge_observed
from course_lib.checks.observe.call import observe_all
from course_lib.exercises import find, lessons
from course_lib.workspace.steps import Step


@dataclass
class Row:
    """The check's verdicts on one variant, over all seeds.

    Attributes:
        numbers: for each seed, how many numbers the shown input has. Seeds without an input, or
            with an object among the arguments, are left out.
    """

    exercise: str
    variant: str
    is_right: bool
    expected: str | None
    lowest: float = 1.0
    highest: float = 0.0
    messages: list[str] = field(default_factory=list)
    missed: int = 0
    seeds: int = 0
    numbers: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether the check was right for every seed."""
        return self.missed == 0

    def line(self) -> str:
        """Describe a row that is not ok, in lines of at most 80 columns."""
        kind = "correct" if self.is_right else "wrong"
        text = (
            f"BAD {self.exercise}, {kind} answer {self.variant}: {self.missed} of {self.seeds} "
            f"seeds judged wrongly; scores {self.lowest:.2f} to {self.highest:.2f}; messages: "
            f"{', '.join(self.messages) or 'none'}; expected: "
            f"{'full marks' if self.is_right else self.expected or 'fewer points'}"
        )
        return textwrap.fill(text, 80, subsequent_indent="    ", break_on_hyphens=False)


@dataclass(frozen=True)
class Matrix:
    """All rows; `ok` if the checks were right about every one."""

    rows: list[Row]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the matrix as JSON-able data, with the counts that the documentation quotes."""
        right = [row for row in self.rows if row.is_right]
        wrong = [row for row in self.rows if not row.is_right]
        named = [row for row in wrong if row.expected is not None]
        numbers = sorted(number for row in wrong for number in row.numbers) or [0]
        return {
            "right": len(right),
            "right_accepted": sum(row.lowest == 1.0 for row in right),
            "wrong": len(wrong),
            "wrong_rejected": sum(row.highest < 1.0 for row in wrong),
            "wrong_to_be_named": len(named),
            "wrong_named": sum(row.ok for row in named),
            "numbers_of_inputs_median": numbers[len(numbers) // 2],
            "numbers_of_inputs_95_percent": numbers[int(0.95 * len(numbers))],
            "ok": self.ok,
            "rows": [asdict(row) | {"ok": row.ok} for row in self.rows],
        }

    def text(self) -> str:
        """Return the rows that were judged wrongly, and the counts."""
        counts = (
            "{right_accepted} of {right} correct answers get full marks.\n"
            "{wrong_rejected} of {wrong} wrong answers lose points.\n"
            "{wrong_named} of {wrong_to_be_named} reports name the expected mistake.\n"
            "The inputs in reports contain {numbers_of_inputs_median} numbers in the median and\n"
            "{numbers_of_inputs_95_percent} at the 95th percentile."
        )
        bad = (row.line() for row in self.rows if not row.ok)
        return "\n".join([*bad, counts.format_map(self.as_dict())])


def correct_answers(root: Path, exercise: str) -> Iterator[Variant]:
    """Yield the solution and the correct variants, each unchanged and computing in float32."""
    answers = {one.name: one.answer for one in variants(root, exercise) if one.is_right}
    for name, answer in {"solution": getattr(attention, exercise), **answers}.items():
        yield Variant(exercise, name, answer, True)
        yield Variant(exercise, f"{name} in float32", in_float32(answer), True)


def all_answers(root: Path, exercise: str) -> Iterator[Variant]:
    """Yield the variants and the documented wrong answers."""
    yield from variants(root, exercise)
    yield from documented(exercise)


def judge_variant(variant: Variant, seeds: Iterable[object]) -> Row:
    """Grade one variant with every seed."""
    row = Row(variant.exercise, variant.name, variant.is_right, variant.message)
    for seed in seeds:
        if variant.name.startswith("solution"):  # `judge_answer` refuses the solution
            observe = functools.partial(observe_all, variant.answer)
            report = judge_observed(find(variant.exercise), str(seed), None, None, observe)
        else:
            report = judge_answer(find(variant.exercise), variant.answer, seed=seed)
        said = [finding.id for finding in report.findings]
        row.seeds += 1
        row.lowest, row.highest = min(row.lowest, report.score), max(row.highest, report.score)
        if variant.is_right:
            fits = report.outcome == "correct" and report.score == 1.0
        else:
            fits = report.score < 1.0 and variant.message in (None, report.mistake, *said)
            fits = fits and report.outcome != "checker_failed"
        fits = fits and NOT_WORDED not in report.notes
        row.missed += not fits
        if report.example.inputs and not report.example.has_objects:
            row.numbers.append(int(report.example.numbers))
        row.messages += [name for name in said if name not in row.messages]
    return row


def run(
    root: Path,
    chosen: Sequence[str] | None = None,
    *,
    seeds: int = 20,
    correct: bool = False,
    progress: Callable[[Step], None] = lambda step: None,
) -> Matrix:
    """Judge the answers of the chosen lessons, or of all lessons if none is named.

    Answers are those of `tests/variants` and the documented wrong ones.

    Args:
        root: the course folder, which holds `tests/variants`.
        chosen: lesson slugs.
        seeds: how many fresh seeds each variant is judged with.
        correct: judge `correct_answers` instead, which must pass with every seed.
        progress: called before each exercise.
    """
    names = [
        name
        for slug, lesson in lessons().items()
        if not chosen or slug in chosen
        for name in lesson.exercises
    ]
    every_seed = [f"matrix-{i}" for i in range(seeds)]
    rows = []
    for count, name in enumerate(names, start=1):
        progress(Step("matrix", count, len(names), name))
        answers = correct_answers(root, name) if correct else all_answers(root, name)
        rows += [judge_variant(answer, every_seed) for answer in answers]
    return Matrix(rows)
