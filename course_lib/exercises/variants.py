"""The checks checked: every exercise against right and wrong answers that someone wrote.

`tests/variants/<lesson>/<exercise>.py` holds answers marked `@right` or `@wrong("message_id")`, and
answers with faults that can be switched on one by one, marked `@faulty("one", "another", ...)`.
A known mistake is no answer and counts nowhere.
"""

import importlib.util
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib.checks.judge.grade import grade
from course_lib.exercises import exercises, find, lessons
from course_lib.workspace.progress import Step


@dataclass(frozen=True)
class Variant:
    """An answer to an exercise and what the check must say of it.

    Args:
        message: for a wrong answer, the id it must be given; None if being rejected is enough.
    """

    exercise: str
    name: str
    answer: Any
    is_right: bool
    message: str | None = None


@dataclass
class Row:
    """What the check said of one variant over all seeds.

    Attributes:
        numbers: for each seed, how many numbers the input has that the report shows; nothing
            where it shows none, or where an argument is an object.
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
        """Whether the check was right about it, for every seed."""
        return self.missed == 0


@dataclass(frozen=True)
class Matrix:
    """All rows; `ok` if the checks were right about every one."""

    rows: list[Row]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """The matrix as JSON-able data, with the counts that the documentation quotes."""
        right = [row for row in self.rows if row.is_right]
        wrong = [row for row in self.rows if not row.is_right]
        names = {row.exercise for row in self.rows}
        known = {(name, mistake.id) for name in names for mistake in exercises()[name].mistakes}
        return {
            "right": len(right),
            "right_accepted": sum(row.lowest == 1.0 for row in right),
            "wrong": len(wrong),
            "wrong_rejected": sum(row.highest < 1.0 for row in wrong),
            "wrong_to_be_named": sum(row.expected is not None for row in wrong),
            "wrong_named": sum(row.expected is not None and row.ok for row in wrong),
            "numbers_of_inputs_median": _quantile(wrong, 0.5),
            "numbers_of_inputs_95_percent": _quantile(wrong, 0.95),
            "mistakes": len(known),
            "mistakes_answered": len(known & {(row.exercise, row.expected) for row in wrong}),
            "ok": self.ok,
            "rows": [asdict(row) | {"ok": row.ok} for row in self.rows],
        }

    def text(self) -> str:
        """The matrix as a table, one line a variant."""
        lines, exercise = [], None
        for row in self.rows:
            if row.exercise != exercise:
                exercise = row.exercise
                lines += ["", exercise]
            score = f"{row.lowest:.2f}"
            score += f"..{row.highest:.2f}" if row.highest - row.lowest > 0.005 else "      "
            kind = "right" if row.is_right else "wrong"
            note = "" if row.ok else f"   <-- {row.missed} of {row.seeds} seeds judged wrongly"
            said = ", ".join(row.messages) or "-"
            mark = "ok " if row.ok else "BAD"
            lines.append(f"  {mark} {kind} {score}  {row.variant:<42} {said}{note}")
        counts = self.as_dict()
        lines += [
            "",
            f"{counts['right_accepted']} of {counts['right']} right answers get full marks, "
            f"{counts['wrong_rejected']} of {counts['wrong']} wrong ones lose points, "
            f"{counts['wrong_named']} of {counts['wrong_to_be_named']} are told their mistake; "
            f"{counts['mistakes_answered']} of {counts['mistakes']} known mistakes have an answer.",
            f"The inputs shown have {counts['numbers_of_inputs_median']} numbers in the median, "
            f"{counts['numbers_of_inputs_95_percent']} at the 95th percentile.",
        ]
        return "\n".join(lines[1:])


def _quantile(rows: Sequence[Row], share: float) -> int:
    """Return the largest number of numbers that this share of all shown inputs stays below."""
    numbers = sorted(number for row in rows for number in row.numbers)
    return numbers[min(int(share * len(numbers)), len(numbers) - 1)] if numbers else 0


def right(answer) -> Any:
    """Marks a right answer."""
    answer.__variant__ = (True, None)
    return answer


def wrong(message: str | None = None) -> Callable:
    """Marks a wrong answer, with the id of the message it must be given."""

    def mark(answer) -> Any:
        answer.__variant__ = (False, message)
        return answer

    return mark


def wrong_in(answer: Callable) -> Callable:
    """Makes wrong answers: `but = wrong_in(answer)`, then `but("message_id", step=...)`.

    The answer is right. A step is a method of a class or a keyword-only argument of a function.
    """

    def but(message: str | None = None, **steps: Any) -> Any:
        def changed(*args, **kwargs) -> Any:
            return answer(*args, **kwargs, **steps)

        if isinstance(answer, type):
            return wrong(message)(type(answer.__name__, (answer,), steps))
        return wrong(message)(changed)

    return but


def faulty(*faults: str) -> Callable:
    """Marks a function of a set of faults that makes an answer with just these; none is right."""

    def mark(make) -> Any:
        make.__faults__ = faults
        return make

    return mark


def variants(root: Path, exercise: str) -> Iterator[Variant]:
    """The answers in the variants file of an exercise."""
    for name, answer in _marked(root, exercise, "__variant__"):
        yield Variant(exercise, name, answer, *answer.__variant__)


def faulty_answers(root: Path, exercise: str) -> list[Callable]:
    """The functions of its variants file that make answers with faults to be repaired."""
    return [make for _, make in _marked(root, exercise, "__faults__")]


def _marked(root: Path, exercise: str, mark: str) -> Iterator[tuple[str, Any]]:
    folder = root / "tests" / "variants" / exercises()[exercise].lesson.split("_", 1)[1]
    path = folder / f"{exercise}.py"
    if not path.exists():
        return
    spec = importlib.util.spec_from_file_location(f"variants_{exercise}", path)
    assert spec and spec.loader, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, answer in list(vars(module).items()):
        is_callable = inspect.isfunction(answer) or inspect.isclass(answer)
        if is_callable and mark in vars(answer):
            yield name, answer


def judge_variant(variant: Variant, seeds: Iterable[object]) -> Row:
    """Grades one variant with every seed."""
    row = Row(variant.exercise, variant.name, variant.is_right, variant.message)
    for seed in seeds:
        report = grade(find(variant.exercise), variant.answer, seed=seed)
        said = [finding.id for finding in report.findings]
        row.seeds += 1
        row.lowest, row.highest = min(row.lowest, report.score), max(row.highest, report.score)
        if variant.is_right:
            fits = report.outcome == "correct" and report.score == 1.0
        else:
            fits = report.score < 1.0 and (variant.message is None or variant.message in said)
            fits = fits and report.outcome != "checker_failed"
        row.missed += not fits
        if report.example.inputs and not report.example.has_objects:
            row.numbers.append(report.example.numbers)
        row.messages += [name for name in said if name not in row.messages]
    return row


def run(
    root: Path,
    chosen: Sequence[str] | None = None,
    *,
    seeds: int = 20,
    only_right: bool = False,
    shared: bool = False,
    progress: Callable[[Step], None] = lambda step: None,
) -> Matrix:
    """The matrix of the chosen lessons, all of them if none is named.

    Args:
        root: the course folder, which holds `tests/variants`.
        chosen: lesson slugs.
        seeds: how many fresh seeds each variant is judged with.
        only_right: leave the wrong answers out.
        shared: deal the seeds out to the variants of an exercise, so that each is used once.
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
        judged = [v for v in variants(root, name) if v.is_right or not only_right]
        for place, variant in enumerate(judged):
            dealt = every_seed[place :: len(judged)] if shared else every_seed
            rows += [judge_variant(variant, dealt)] if dealt else []
    return Matrix(rows)
