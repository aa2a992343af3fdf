"""The known mistakes of any exercise.

Most of them change correct results before returning them. `RELATIONS` compare the student's numbers
with the correct ones.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import (
    COARSE,
    arrays_agree,
    named_parts,
    tolerance_for,
)
from course_lib.checks.judge.correct_results import ChangedResult
from course_lib.checks.judge.definitions import Exercise, Mistake, Returned
from course_lib.checks.judge.violations import Violation

_HOLDS = {"numbers": "f", "anything": "fib"}


def _only(what: str, change: Callable, only: int | None, *results: Any) -> Any:
    """Change the results that contain `what`, or one of them. Raise ValueError if none do."""
    places = range(len(results)) if only is None else [only]
    found = list(results)
    for place in places:
        result = results[place]
        kind = np.asarray(result.detach() if torch.is_tensor(result) else result).dtype.kind
        if kind in _HOLDS[what]:
            found[place] = change(result)
    if all(a is b for a, b in zip(found, results, strict=True)):
        raise ValueError(f"no {what}")
    return tuple(found) if len(found) > 1 else found[0]


def _of_items(result) -> torch.Tensor:
    if result.dim() < 3:
        raise ValueError("there are no items of a batch")
    return result


def _finite(result) -> Any:
    """Return the result, or raise ValueError for NaN or inf, which can match by chance."""
    if not torch.as_tensor(result).isfinite().all():
        raise ValueError("the result is not finite")
    return result


def general_mistakes(exercise: Exercise, *, one_by_one: bool = True) -> tuple[Mistake, ...]:
    """Return the mistakes that any answer with this number of results can make.

    If there are several results and `one_by_one` is true, some change only one of them.
    """
    num_results = len(exercise.returns)
    places = [None, *range(num_results)] if one_by_one and num_results > 1 else [None]

    def says(id: str, models: list[Callable], fact: str, question: str) -> Mistake:
        return Mistake(id, tuple(map(ChangedResult, models)), fact, question)

    def of(what: str, id: str, *changes: Callable) -> Callable[[str, str], Mistake]:
        # "Your numbers" means all results, unless a change affects only the shape.
        where = places if what == "anything" else [None]
        models = [
            functools.partial(_only, what, change, place) for change in changes for place in where
        ]
        return functools.partial(says, id, models)

    found = [
        of(
            "anything",
            "transposed_result",
            lambda result: result.swapaxes(-1, -2),
            lambda result: result.swapaxes(-2, -3),
            lambda result: result.swapaxes(0, 1),
        )(
            "Your numbers are right, but two axes are exchanged, such as rows and columns.",
            "What is each axis of the result, and which step decides their order?",
        ),
        of(
            "anything",
            "one_item_only",
            lambda result: _of_items(result)[:1],
            lambda result: _of_items(result)[0],
            lambda result: _of_items(result)[:1].expand_as(result),
            lambda result: torch.cat([_of_items(result)[:1], torch.zeros_like(result[1:])]),
        )(
            "Only the first item gets its own result. The other items get none, or zeros, or a "
            "copy of the first.",
            "Which items of the batch does your code go through before it returns?",
        ),
        of(
            "anything",
            "axis_kept",
            lambda result: result[..., None],
            lambda result: result[..., None, :],
            lambda result: result[None],
        )(
            "Your numbers are right, but the result has one axis of size 1 too many.",
            "Which step keeps or adds that axis (`keepdim=True`, `None`, `unsqueeze`)?",
        ),
        of(
            "anything",
            "squeezed",
            lambda result: result.squeeze(),
            lambda result: result.squeeze(0),
            lambda result: result.squeeze(-1),
        )(
            "Your numbers are right, but at least one axis of size 1 is missing.",
            "Does a step such as `squeeze()` remove more axes than the one you mean?",
        ),
        of(
            "anything",
            "leading_axes_joined",
            lambda result: result.flatten(0, -3),
            lambda result: result.flatten(0, 1),
        )(
            "Your numbers are right, but you join leading axes, such as items and heads.",
            "Which step joins axes, and which step must split them again?",
        ),
        of(
            "numbers",
            "averaged_over_an_axis",
            lambda result: _finite(result).mean(),
            lambda result: _finite(result).sum(),
            lambda result: _finite(result).mean(0),
            lambda result: _finite(result).mean(-1),
        )(
            "You average or add up the correct numbers over at least one axis.",
            "Which axes must your result have, and which step removes one of them?",
        ),
        of(
            "numbers",
            "rounded",
            *(lambda result, n=n: _finite(result).round(decimals=n) for n in (2, 3, 4)),
        )(
            "You round the correct numbers to a few decimal places.",
            "Which step rounds, and does the statement ask for that?",
        ),
        of("numbers", "root_of_the_result", lambda result: _finite(result) ** 0.5)(
            "Your numbers are the square roots of the correct ones.",
            "Which step takes a root (`sqrt`, `norm`, `cdist`)?",
        ),
        of(
            "numbers",
            "logarithm_or_exponential",
            lambda result: _finite(_finite(result).log()),
            lambda result: _finite(_finite(result).exp()),
        )(
            "Your numbers are the logarithms or the exponentials of the correct ones.",
            "Which `exp` or `log` must you add or remove?",
        ),
        of("numbers", "base_two", lambda result: result / np.log(2))(
            "Your logarithm has base 2 instead of e; otherwise your numbers are right.",
            "Which step sets the base?",
        ),
        of("numbers", "softmax_of_the_result", lambda result: result.softmax(-1))(
            "Your numbers are the softmax of the correct ones.",
            "Which of your steps is not in the formula?",
        ),
        of(
            "numbers",
            "summed_over_leading_axes",
            lambda result: _of_items(result).sum(0),
            lambda result: _of_items(result).flatten(0, -3).sum(0),
            lambda result: _of_items(result).sum(0, keepdim=True).expand_as(result),
        )(
            "You add up results over leading axes, such as the items of a batch. Each item must "
            "have its own result.",
            "Which axes are left in your result, and which step removes the others?",
        ),
    ]
    if num_results > 1:
        orders = [*itertools.permutations(range(num_results))][1:]
        models = [
            lambda *results, order=order: tuple(results[i] for i in order) for order in orders
        ]
        found.append(
            says(
                "results_in_another_order",
                models,
                "Your results are right, but you return them in another order.",
                "In which order does the statement name the results?",
            )
        )
        models = [lambda *results, i=i: results[i] for i in range(num_results)]
        found.append(
            says(
                "one_result_only",
                models,
                "You return only one of the results that are asked for. It is right.",
                "Which results does the statement ask for, and in which order?",
            )
        )
    return tuple(found)


def second_mistakes(exercise: Exercise) -> list[tuple[str, Callable]]:
    """Return pairs of a sentence and a change of all results that may follow a known mistake."""
    found = [
        (_AS_SECOND[mistake.id], model.change)
        for mistake in general_mistakes(exercise, one_by_one=False)
        for model in mistake.answers
        if mistake.id in _AS_SECOND and isinstance(model, ChangedResult)
    ]
    kind = "Your result also has the wrong type or dtype."
    return found + [(kind, functools.partial(_each, convert)) for convert in _CONVERSIONS]


def _each(convert: Callable, *results: Any) -> Any:
    found = [convert(result) for result in results]
    return tuple(found) if len(found) > 1 else found[0]


_CONVERSIONS = (torch.Tensor.byte, torch.Tensor.long, torch.Tensor.float, torch.Tensor.numpy)
_CONVERSIONS += (float, torch.as_tensor)
_AS_SECOND = {
    "transposed_result": "Two axes of your result are also exchanged.",
    "axis_kept": "Your result also has one axis of size 1 too many.",
    "squeezed": "Your result also lacks an axis of size 1.",
    "logarithm_or_exponential": "You also take the logarithm or the exponential of the result.",
    "leading_axes_joined": "You also join leading axes of your result.",
    "averaged_over_an_axis": "You also average or add up your result over at least one axis.",
    "softmax_of_the_result": "You also take the softmax of the result.",
    "results_in_another_order": "You also return the results in another order.",
    "one_result_only": "You also return only one of the results.",
}


def are_related(holds: Callable, returns: Sequence[Returned], wrong: Violation) -> bool | None:
    """Return whether a relation holds for each wrong result, or gradient if these are wrong.

    None means that no number is wrong, or that the relation would fit any numbers, for example if
    there is only one.
    """
    seen, expected, fits = wrong.seen, wrong.expected, set()
    parts = named_parts(returns, expected.outputs, seen.outputs) if seen.outputs else []
    if wrong.aspect == "gradients":
        parts = [(key, expected.gradients[key], one) for key, one in seen.gradients.items()]
    for _, value, recorded in parts:
        correct, ours = np.asarray(value), recorded.data
        if ours is None or correct.dtype.kind != "f" or ours.dtype.kind != "f":
            return False
        tolerance = tolerance_for(wrong.probe, recorded)
        if not arrays_agree(correct, ours, tolerance):
            fits.add(holds(correct, ours, tolerance) if tolerance <= COARSE else None)
    return None if fits <= {None} else False not in fits


def _scaled(correct: np.ndarray, ours: np.ndarray, tolerance: float) -> bool | None:
    """Return whether all numbers, or those of each row, are multiplied by the same number."""
    if ours.shape != correct.shape or not np.isfinite(ours).all():
        return False
    for size in (correct.size, *correct.shape[-1:]):
        rows, our_rows = correct.reshape(-1, size), ours.reshape(-1, size)
        largest = np.abs(rows).argmax(-1)[:, None]
        top, our_top = (np.take_along_axis(each, largest, -1) for each in (rows, our_rows))
        if not (rows != top)[rows != 0].any():
            return None
        factors = our_top / np.where(top, top, np.inf)
        if our_top[top != 0].all() and arrays_agree(rows * factors, our_rows, tolerance):
            return True
    return False


def _rearranged(correct: np.ndarray, ours: np.ndarray, tolerance: float) -> bool | None:
    """Return whether these are the same numbers, most of them different, in another order."""
    if ours.size == correct.size and np.unique(correct).size <= max(2, correct.size / 2):
        return None
    moved = not arrays_agree(correct.ravel(), ours.ravel(), tolerance)
    return moved and arrays_agree(np.sort(correct, None), np.sort(ours, None), tolerance)


RELATIONS = (
    Mistake(
        "negated",
        (lambda correct, ours, tolerance: arrays_agree(abs(correct), abs(ours), tolerance),),
        "Your numbers, or some of them, have the wrong sign; otherwise they are right.",
        "Which step decides the sign?",
    ),
    Mistake(
        "numbers_rearranged",
        (_rearranged,),
        "Your result holds the correct numbers, but some of them are at the wrong index.",
        "Which step decides the order of the numbers (`reshape`, `transpose`, an index)?",
    ),
    Mistake(
        "another_factor",
        (_scaled,),
        "Your numbers are the correct ones multiplied by a factor, which may differ from row to "
        "row.",
        "Does a step multiply or divide by the wrong number, or is such a step missing?",
    ),
)
