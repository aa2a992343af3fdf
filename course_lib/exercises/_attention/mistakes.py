"""The known mistakes of any attention: one table for all exercises, the most likely first.

Each row is a fact, a question, and the steps of the right attention (`steps.py`) that it changes;
twins change them otherwise and come to the same. Combinations of two rows are made where an answer
is judged (`checks.judge.diagnose`), so a row lists all the steps its fact depends on.
"""

import itertools
import math
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import torch
from torch.nn import functional as F

from course_lib.checks.judge.definitions import Mistake
from course_lib.exercises._attention.steps import Softmax, Stepped


class Row(NamedTuple):
    """A mistake: `changes`, and each of the `twins`, are the steps that it changes, by name."""

    id: str
    changes: Mapping[str, object]
    twins: tuple[Mapping[str, object], ...] = ()
    fails: bool = False
    fact: str = ""
    question: str = ""

    def says(self, fact: str, question: str) -> "Row":
        """Add the fact and one question."""
        return self._replace(fact=fact, question=question)


def known(
    base: type[Stepped],
    *own: Row,
    without: Collection[str] = (),
    words: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Mistake, ...]:
    """Return the mistakes of an exercise: its own, then those of the table whose steps it has.

    Args:
        base: the correct attention of the exercise.
        own: rows that concern this exercise alone.
        without: ids of shared rows that its problems do not tell from others.
        words: fact and question by id, where those of the table do not fit.
    """

    def has(changes: Iterable[str]) -> bool:
        return all(getattr(base, step, None) is not None for step in changes)

    def mistake(row: Row) -> Mistake:
        said = (words or {}).get(row.id, (row.fact, row.question))
        twins = tuple(base.answer(changes) for changes in row.twins if has(changes))
        return Mistake(
            row.id, base.answer(row.changes), *said, row.fails, twins, row.changes, base.answer
        )

    shared = [row for row in SHARED if has(row.changes) and row.id not in without]
    return tuple(mistake(row) for row in (*own, *shared))


def three_of(
    base: type[Stepped], known: Iterable[Mistake], faults: Collection[str]
) -> tuple[Mistake, ...]:
    """Return every three of these mistakes at once, as half-repaired modules make them."""
    chosen = [mistake for mistake in known if mistake.id in faults]
    return tuple(
        Mistake(
            "+".join(mistake.id for mistake in trio),
            base.answer(dict(ChainMap(*(dict(mistake.changes) for mistake in trio)))),
            " ".join(["Three mistakes at once.", *(mistake.message for mistake in trio)]),
            trio[0].hint,
        )
        for trio in itertools.combinations(chosen, 3)
    )


# Steps as wrong answers make them.
def untouched(self, scores, allowed) -> torch.Tensor:
    """Do nothing, in the place of a step that changes scores or weights."""
    return scores


def filled(value) -> Mapping[str, object]:
    """Fill forbidden scores with a number, and take no special care of empty rows."""

    def fill(self, scores, allowed) -> torch.Tensor:
        return scores.masked_fill(~allowed, value)

    return {"fill": fill, "spare": untouched, "clear": untouched}


def unread(self, scores, given) -> None:
    """Ignore lengths or a mask, in the place of the step that reads them."""


def flipped_if_any(self, scores, real, own) -> torch.Tensor:
    allowed = Softmax.join(self, scores, real, own)
    return allowed if allowed.all() else ~allowed


def infinity_added(self, scores, allowed) -> torch.Tensor:
    return scores + torch.where(allowed, 0.0, -math.inf).to(scores.dtype)


def no_nan(self, weights, allowed) -> torch.Tensor:
    return weights.nan_to_num(0.0)


def keep_dropped(self, weights, used) -> None:
    self.attention_weights = used.detach()


_EMPTY = (
    "What should a query that may attend to nothing receive, and where does your code handle its "
    "row?"
)

# Those of an answer that has its own softmax instead of calling `masked_softmax`. Elsewhere
# `nothing_masked` is found as a pair.
OWN_SOFTMAX = {
    "nothing_masked",
    "inverted",
    "zero_after_softmax",
    "filled_with_zero",
    "over_queries",
    "empty_row_gradient_nan",
    "query_axis_forgotten",
}

SHARED = (
    Row("unscaled", {"root": lambda self, q: 1.0}).says(
        "The scores are not divided by the root of the number of features.",
        "What must q . k be divided by so that its size does not grow with the number of features?",
    ),
    Row("empty_row_nan", filled(-math.inf)).says(
        "A row in which no key is allowed becomes NaN, because its softmax divides 0 by 0.", _EMPTY
    ),
    Row("empty_row_uniform", filled(-1e9)).says(
        "In a row in which no key is allowed, every key gets weight 1/m instead of 0. You fill "
        "dropped scores with a finite number, such as -1e9, and a softmax of equal scores is "
        "uniform.",
        _EMPTY,
    ),
    Row("lengths_ignored", {"real": unread}).says(
        "Your code ignores the lengths: `valid_lens` changes nothing.",
        "Where does `valid_lens` enter your computation?",
    ),
    Row("bool_mask_ignored", {"own": unread}).says(
        "Your code ignores the bool mask: `mask` changes nothing.",
        "Where does `mask` enter your computation?",
    ),
    Row("nothing_masked", {"real": unread, "own": unread}).says(
        "Your code ignores both the lengths and the mask, so keys that may not be attended to get "
        "weight as well.",
        "Where do `valid_lens` and `mask` enter your computation?",
    ),
    Row("inverted", {"join": flipped_if_any}).says(
        "The masking is inverted: the keys that should be dropped get all the weight.",
        "True means 'may attend'. Which keys does your code drop?",
    ),
    Row("bool_mask_inverted", {"own": lambda self, scores, mask: ~mask}).says(
        "The bool mask is inverted: keys where it is True are dropped, and the others are kept.",
        "True means 'may attend'. Does your code expect the opposite?",
    ),
    Row(
        "zero_after_softmax",
        {"fill": untouched, "spare": untouched, "clear": lambda self, w, allowed: w * allowed},
    ).says(
        "Weights are set to 0 after the softmax, so the rest no longer sum to 1.",
        "Which step must come first, so that the weights that are left sum to 1?",
    ),
    Row("filled_with_zero", filled(0.0)).says(
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "For which score is the exponential 0?",
    ),
    Row(
        "over_queries",
        {"axis": -2, "fill": Softmax.fill, "spare": untouched, "clear": no_nan},
        twins=({"axis": -2, "spare": untouched, "clear": untouched},),
    ).says(
        "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
        "Which axis of the scores holds the keys?",
    ),
    Row("divided_by_d", {"root": lambda self, q: q.shape[-1]}).says(
        "You divide the scores by the number of features instead of its root, so your weights are "
        "too flat.",
        "Which number brings the variance of q . k back to 1?",
    ),
    Row("empty_row_gradient_nan", {"fill": infinity_added, "spare": untouched}).says(
        "The weights are right, but the gradient of an empty row is NaN: the softmax saw nothing "
        "but -inf, and backward runs through it.",
        "Can the empty rows be given harmless scores before the softmax?",
    ),
    Row(
        "query_axis_forgotten", {"align": lambda self, scores, lens: lens[..., None]}, fails=True
    ).says(
        "Your mask from the lengths lacks the axes for queries and heads. Broadcasting lines up "
        "its batch axis with one of these: an error where the sizes differ, wrong weights where "
        "they are equal.",
        "What shape must a (batch, num_keys) mask have to broadcast with the scores?",
    ),
    Row("dropout_in_eval", {"drop": lambda self, weights: F.dropout(weights, self.p)}).says(
        "Dropout acts in eval mode too.", "How does a layer know that the module is in eval mode?"
    ),
    Row("stored_after_dropout", {"keep": keep_dropped}).says(
        "`attention_weights` holds the weights after dropout; it should show them before.",
        "Which do you do first: store the weights, or drop some of them?",
    ),
    Row(
        "merge_without_transpose", {"merge": lambda self, x: x.reshape(x.shape[0], x.shape[2], -1)}
    ).says(
        "The heads are merged by a reshape without a transpose: a position gets features that "
        "belong to other positions.",
        "Which axes must be neighbors before a reshape can join them?",
    ),
    Row(
        "split_without_transpose",
        {"split": lambda self, x: x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)},
    ).says(
        "Your heads are split by a reshape without a transpose: a head gets whole positions "
        "instead of a block of features.",
        "What does `split_heads` do between reshape and return?",
    ),
)
