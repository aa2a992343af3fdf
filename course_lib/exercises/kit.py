"""What an exercise's file needs: problems written as calls, mistakes as documented wrong answers.

    @mistake
    def true_means_drop(num_queries, num_keys=None, *, device=None) -> Tensor:
        \"\"\"The mask is inverted: yours is True where a key is dropped.

        What does True mean in this course's masks?
        \"\"\"
        ...

The name of a mistake is its id, for a class in snake case. The first paragraph of its docstring is
the fact that the student reads, and the second is one question. Another way to make the same
mistake is marked `@like(true_means_drop)` and needs no docstring.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from course_lib.checks.judge.definitions import Mistake
from course_lib.checks.observe.probe import Array, Probe, tensor

Answer = TypeVar("Answer", bound=Callable)
Problems = Iterator[str | Probe]  # sentences, each before the calls that show what it says

INDEPENDENT = (
    "Calls and modules must be independent: outputs and `attention_weights` must be those of the "
    "module's last call, whatever came before and whatever other modules do."
)
# Patterns of names in `cost_meter.Calls` that match every ready-made attention in torch.
READY_MADE_ATTENTION = (
    *("*scaled_dot_product*", "*flash_attention*", "*efficient_attention*", "flex_attention"),
    *("*multi_head_attention*", "*transformer_encoder_layer*"),
)
_FIELDS = {field.name for field in fields(Probe)} - {"name", "says", "args", "kwargs"}


# ---------------------------------------------------------------- problems
def call(
    *args: Any, names: Iterable[str] = (), by_name: Mapping[str, Any] | None = None, **given: Any
) -> Probe:
    """Return a problem: a call of the answer, written as a student would write it.

    An exercise's `problems` yields sentences that say what must hold, each before the calls that
    show it.

    Args:
        args: the arguments by position. Arrays and lists of numbers become tensors.
        names: the names of these arguments in a report, if they differ from the oracle's.
        by_name: arguments that are passed by keyword, if their names are fields of `Probe`.
        given: the other arguments that are passed by keyword, and fields of `Probe`. With
            `grad_outputs`, the gradients are computed, too.
    """
    options = {key: value for key, value in given.items() if key in _FIELDS}
    placed: dict[Any, Any] = dict(zip(names, args, strict=True)) if names else dict(enumerate(args))
    named = {k: v for k, v in given.items() if k not in options} | dict(by_name or {})
    return Probe(
        "",
        "",
        args={key: _argument(value) for key, value in placed.items()},
        kwargs={key: _argument(value) for key, value in named.items()},
        **{"part": "gradients" if "grad_outputs" in options else "values", **options},
    )


edge = functools.partial(call, part="edges")  # sizes of one, empty rows, extreme numbers, dtypes


def _argument(value: Any) -> Any:
    made = isinstance(value, list) and any(isinstance(item, Array) for item in value)
    return tensor(value) if isinstance(value, np.ndarray | list) and not made else value


def in_eighths(numbers: np.ndarray) -> np.ndarray:
    """Round numbers to eighths, so that float32 represents products and sums of them exactly."""
    return np.round(8 * numbers) / 8


# ---------------------------------------------------------------- mistakes
MARKS = _MARK, _OTHERS = "is_wrong", "others"


def mistake(answer: Answer) -> Answer:
    """Mark a documented wrong answer."""
    setattr(answer, _MARK, True)
    setattr(answer, _OTHERS, [])
    return answer


def like(first: Callable) -> Callable[[Answer], Answer]:
    """Mark another wrong answer that makes the same mistake."""

    def mark(answer: Answer) -> Answer:
        setattr(answer, _MARK, True)
        getattr(first, _OTHERS).append(answer)
        return answer

    return mark


def worded_like(other: Callable) -> Callable[[Answer], Answer]:
    """Give a wrong answer the docstring of the same mistake in another exercise."""

    def mark(answer: Answer) -> Answer:
        answer.__doc__ = other.__doc__
        return answer

    return mark


def marked(module: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the wrong answers that a file marks with `@mistake`, in their order there."""
    own = (one for one in module.values() if getattr(one, "__module__", "") == module["__name__"])
    return (one for one in own if _OTHERS in vars(one))


def known(first: Any, change: Callable[[Any], Callable | None] | None = None) -> Mistake:
    """Return a marked wrong answer, and those like it, as a known mistake.

    `change` makes an answer of each, or returns None to leave it out. By default, it is an answer
    already, or its method `answer` returns one.
    """
    made = [change(one) if change else _answer(one) for one in (first, *getattr(first, _OTHERS))]
    return Mistake(id_of(first), tuple(one for one in made if one is not None), *words(first))


def _answer(one: Any) -> Callable:
    return one.answer() if hasattr(one, "answer") else one


def words(answer: Callable) -> tuple[str, str]:
    """Return the fact and the question in the docstring of a wrong answer."""
    paragraphs = (inspect.getdoc(answer) or "").split("\n\n")
    assert len(paragraphs) == 2, f"{answer} needs a docstring with a fact and one question"
    fact, question = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return fact, question


def id_of(answer: Callable) -> str:
    """Return the id of a wrong answer: its name in the file, in snake case if it is a class."""
    name = answer.__qualname__.rpartition(".")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if name[0].isupper() else name
