"""Mark correct and wrong answers with the verdicts that their checks must reach, and read them.

`tests/variants/<lesson>/<exercise>.py` holds answers marked `@right` or `@wrong("message_id")`, and
answers with faults that can be switched on one by one, marked `@faulty("one", "another", ...)`.
"""

import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.exercises import find


@dataclass(frozen=True)
class Variant:
    """An answer to an exercise and the verdict that its check must reach.

    Args:
        message: the id that a wrong answer must be given; None if being rejected is enough.
    """

    exercise: str
    name: str
    answer: Any
    is_right: bool
    message: str | None = None


def right(answer) -> Any:
    """Mark a correct answer."""
    answer.__variant__ = (True, None)
    return answer


def wrong(message: str | None = None) -> Callable:
    """Mark a wrong answer, with the id of the message that it must be given."""

    def mark(answer) -> Any:
        answer.__variant__ = (False, message)
        return answer

    return mark


def on_request(answer: Callable) -> Callable:
    """Add the options `device=` and `dtype=` to an answer that returns a table."""

    @functools.wraps(answer)
    def table(*sizes, **options) -> Any:
        return answer(*sizes).to(**options)

    return table


def wrong_in(answer: Callable) -> Callable:
    """Make wrong answers: `but = wrong_in(answer)`, then `but("message_id", step=...)`.

    The answer is correct. A step is a method of a class or a keyword-only argument of a function.
    """

    def but(message: str | None = None, **steps: Any) -> Any:
        def changed(*args, **kwargs) -> Any:
            return answer(*args, **kwargs, **steps)

        if isinstance(answer, type):
            return wrong(message)(type(answer.__name__, (answer,), steps))
        return wrong(message)(changed)

    return but


def faulty(*faults: str) -> Callable:
    """Mark a function that makes an answer with exactly the faults of a given set."""

    def mark(make) -> Any:
        make.__faults__ = faults
        return make

    return mark


def variants(root: Path, exercise: str) -> Iterator[Variant]:
    """Return the answers in the variants file of an exercise."""
    for name, answer in _marked(root, exercise, "__variant__"):
        yield Variant(exercise, name, answer, *answer.__variant__)


def documented(exercise: str) -> Iterator[Variant]:
    """Return the wrong answers that the exercise's file documents as known mistakes."""
    for mistake in find(exercise).mistakes:
        for number, answer in enumerate(mistake.answers, start=1):
            name = mistake.id if len(mistake.answers) == 1 else f"{mistake.id} ({number})"
            yield Variant(exercise, name, answer, False, mistake.id)


def faulty_answers(root: Path, exercise: str) -> list[Callable]:
    """Return the functions in the variants file that make answers with several faults."""
    return [make for _, make in _marked(root, exercise, "__faults__")]


def _marked(root: Path, exercise: str, mark: str) -> Iterator[tuple[str, Any]]:
    folder = root / "tests" / "variants" / find(exercise).lesson.split("_", 1)[1]
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
