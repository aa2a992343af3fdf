"""The known mistakes of any attention, in one table for all exercises, the most likely first.

Each row is a fact, a question, and the steps of the correct attention (`steps.py`) that it changes.
Twins are other changes with the same result. `checks.judge.diagnose` combines pairs of rows, so a
row lists all the steps that its fact depends on.
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
        without: ids of shared rows that its problems cannot distinguish from others.
        words: fact and question by id, if those of the table do not fit.
    """

    def has(changes: Iterable[str]) -> bool:
        return all(getattr(base, step, None) is not None for step in changes)

    def mistake(row: Row) -> Mistake:
        said = (words or {}).get(row.id, (row.fact, row.question))
        twins = tuple(base.answer(changes) for changes in row.twins if has(changes))
        return Mistake(row.id, base.answer(row.changes), *said, twins, row.changes, base.answer)

    shared = [row for row in SHARED if has(row.changes) and row.id not in without]
    return tuple(mistake(row) for row in (*own, *shared))


def three_of(
    base: type[Stepped], known: Iterable[Mistake], faults: Collection[str]
) -> tuple[Mistake, ...]:
    """Return all combinations of three of these mistakes, as in half-repaired modules."""
    chosen = [mistake for mistake in known if mistake.id in faults]
    return tuple(
        Mistake(
            "+".join(mistake.id for mistake in trio),
            base.answer(dict(ChainMap(*(dict(mistake.changes) for mistake in trio)))),
            " ".join(["Three mistakes at once.", *(mistake.message for mistake in trio)]),
            " ".join(mistake.hint for mistake in trio),
        )
        for trio in itertools.combinations(chosen, 3)
    )


# The steps of wrong answers.
def untouched(self, scores, allowed) -> torch.Tensor:
    """Do nothing, instead of a step that changes scores or weights."""
    return scores


def filled(value) -> dict[str, object]:
    """Fill forbidden scores with a number, without special handling of empty rows."""

    def fill(self, scores, allowed) -> torch.Tensor:
        return scores.masked_fill(~allowed, value)

    return {"fill": fill, "spare": untouched, "clear": untouched}


def added(self, scores, allowed) -> torch.Tensor:
    return scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf)


def unread(self, scores, given) -> None:
    """Ignore lengths or a mask, instead of the step that reads them."""


def rows_within(self, scores, valid_lens) -> torch.Tensor:
    rows = valid_lens if valid_lens.dim() == 1 else valid_lens.amax(-1)
    return Softmax.real(self, scores.mT, rows).mT


def rows_if_as_many(self, scores, valid_lens) -> torch.Tensor:
    if valid_lens.shape == scores.shape[-2:-1]:
        valid_lens = valid_lens.expand(len(scores), -1)
    return Softmax.real(self, scores, valid_lens)


def repeated(self, scores, lens) -> torch.Tensor:
    others = scores.shape[1:-2].numel()
    return torch.cat([lens] * others).reshape(*scores.shape[:-2], -1, 1)


def repeated_for_rows(self, scores, lens) -> torch.Tensor:
    rows = scores.shape[:-1]
    return lens.reshape(-1).repeat(rows.numel() // lens.numel()).reshape(*rows, 1)


def repeated_for_items(self, scores, lens) -> torch.Tensor:
    return (repeated_for_rows if lens.dim() == 1 else Softmax.align)(self, scores, lens)


def no_axis_for_heads(self, scores, lens) -> torch.Tensor:
    return lens.reshape(-1, 1, 1) if lens.dim() == 1 else Softmax.align(self, scores, lens)


def flipped_if_any(self, scores, real, own) -> torch.Tensor:
    allowed = Softmax.join(self, scores, real, own)
    return allowed if allowed.all() else ~allowed


def no_nan(self, weights, allowed) -> torch.Tensor:
    return weights.nan_to_num(0.0)


def zeroed(self, weights, allowed) -> torch.Tensor:
    return weights * allowed


def renormalized(self, weights, allowed) -> torch.Tensor:
    kept = weights * allowed
    total = kept.sum(-1, keepdim=True)
    return kept / total.masked_fill(total == 0, 1.0)


def smallest(self, scores, allowed) -> torch.Tensor:
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)


def lengths_or_mask(self, scores, real, own) -> torch.Tensor:
    return Softmax.join(self, scores, real, None if real is not None else own)


def mask_or_lengths(self, scores, real, own) -> torch.Tensor:
    return Softmax.join(self, scores, None if own is not None else real, own)


def exp_of(largest, guarded=False) -> dict[str, object]:
    """Divide exponentials by their sum, or by 1 if it is 0 and `guarded`."""

    def normalize(self, kept) -> torch.Tensor:
        e = torch.exp(kept - largest(kept))
        total = e.sum(-1, keepdim=True)
        return e / (total.masked_fill(total == 0, 1.0) if guarded else total)

    changes: dict[str, object] = {"normalize": normalize}
    return changes | {"spare": untouched, "clear": untouched} if guarded else changes


def nothing(scores) -> float:
    return 0.0


def unshifted(scores, axis=-1) -> torch.Tensor:
    """Return the softmax without subtracting the maximum first."""
    e = scores.exp()
    return e / e.sum(axis, keepdim=True)


def first_mask_kept(self, scores, real, own) -> torch.Tensor:
    allowed = Softmax.join(self, scores, real, own)
    return self.__dict__.setdefault("_first", allowed)


def lengths_kept(self, scores, valid_lens=None, mask=None) -> torch.Tensor:
    kept = self.__dict__.setdefault("_lengths", valid_lens) if valid_lens is None else valid_lens
    self._lengths = kept
    return Softmax.weights(self, scores, kept, mask)


def mask_kept(self, scores, real, own) -> torch.Tensor:
    if real is not None or own is not None:
        self._mask = Softmax.join(self, scores, real, own)
    return self.__dict__.get("_mask", torch.ones_like(scores, dtype=torch.bool))


def dropped_scores(self, scores, valid_lens=None, mask=None) -> torch.Tensor:
    return Softmax.weights(self, F.dropout(scores, self.p, self.training), valid_lens, mask)


def dropped_outputs(self, weights, v) -> torch.Tensor:
    self.keep(weights, weights)
    return F.dropout(weights @ v, self.p, self.training)


def scaled_by(size) -> Mapping[str, object]:
    """Divide the scores by the root of another size: `size(queries, keys)`."""
    return {
        "score": lambda self, q, k: self.product(q, k) / math.sqrt(size(q, k)),
        "root": lambda self, q: 1.0,
    }


def note_and_multiply(self, q, k) -> torch.Tensor:
    self.d = q.shape[-1]
    return self.product(q, k)


def divided_and_cleared(self, weights, allowed) -> torch.Tensor:
    return Softmax.clear(self, weights, allowed) / math.sqrt(self.d)


def keep_dropped(self, weights, used) -> None:
    self.attention_weights = used.detach()


def keep_weights(self, weights, used) -> None:
    self.attention_weights = weights.detach()


def keep_with_graph(self, weights, used) -> None:
    self.attention_weights = weights


def outputs_and_weights(self, *given, **named) -> tuple:
    outputs = type(self).__mro__[1].forward(self, *given, **named)
    return outputs, self.attention_weights


_EMPTY = (
    "What should a query with no allowed key receive, and which step of your code produces that?"
)

SHARED = (
    Row("unscaled", {"root": lambda self, q: 1.0}).says(
        "The scores are not divided by the root of the number of features.",
        "What must q . k be divided by so that its size does not grow with the number of features?",
    ),
    Row("empty_row_nan", filled(-math.inf)).says(
        "Where your code leaves a row without a key, the row becomes NaN, because a softmax of no "
        "keys is not defined.",
        _EMPTY,
    ),
    Row(
        "empty_row_uniform",
        filled(-1e9),
        twins=({"fill": smallest, "spare": untouched, "clear": untouched},),
    ).says(
        "In a row in which no key is allowed, every key gets the same weight, 1/m, instead of 0. "
        "In a row of very low scores, forbidden keys may get weight, too.",
        _EMPTY,
    ),
    Row("empty_row_patched", {"fill": added, "spare": untouched, "clear": no_nan}).says(
        "You replace the NaN of a row without an allowed key only after the softmax. Its gradient "
        "is still NaN.",
        _EMPTY,
    ),
    Row("finite_fill", filled(-1e9) | {"clear": zeroed}).says(
        "You fill dropped scores with a finite number, such as -1e9. If the other scores are as "
        "small or smaller, the fill changes the weights.",
        "Which value is below every finite score, in every dtype?",
    ),
    Row("lengths_ignored", {"real": unread}).says(
        "Your code ignores the lengths: `valid_lens` changes nothing.",
        "Where does `valid_lens` enter your computation?",
    ),
    Row("lengths_of_the_queries", {"real": rows_within}, twins=({"real": rows_if_as_many},)).says(
        "You apply the lengths to the queries, the rows of the scores. The lengths count an "
        "item's keys.",
        "What does each number in `valid_lens` count: queries or keys, and of which item?",
    ),
    Row("bool_mask_ignored", {"own": unread}).says(
        "Your code ignores the bool mask: `mask` changes nothing.",
        "Where does `mask` enter your computation?",
    ),
    Row("nothing_masked", {"real": unread, "own": unread}).says(
        "Your code ignores both the lengths and the mask.",
        "Where do `valid_lens` and `mask` enter your computation?",
    ),
    Row(
        "mask_inverted",
        {"own": lambda self, scores, mask: ~mask},
        twins=({"join": flipped_if_any},),
    ).says(
        "The masking is inverted: where a mask drops keys, you drop the allowed ones instead.",
        "True means 'may attend'. Does your code expect the opposite?",
    ),
    Row("one_mask_only", {"join": lengths_or_mask}, twins=({"join": mask_or_lengths},)).says(
        "If there are both lengths and a mask, you use only one of them. A key must be allowed by "
        "both.",
        "If both are given, where does one of them get lost?",
    ),
    Row(
        "zero_after_softmax",
        {"fill": untouched, "spare": untouched, "clear": zeroed},
        twins=({"fill": untouched, "spare": untouched, "clear": renormalized},),
    ).says(
        "You drop keys only after their scores were used: the remaining weights may not sum to "
        "1, or may vanish if a dropped score is far larger.",
        "Which step must come first, so that the weights that are left sum to 1?",
    ),
    Row("filled_with_zero", filled(0.0)).says(
        "Dropped scores become 0, but exp(0) = 1: those keys still count in the softmax.",
        "For which score is the exponential 0?",
    ),
    Row(
        "over_queries",
        {"axis": -2, "fill": Softmax.fill, "spare": untouched, "clear": no_nan},
        twins=(
            {"axis": -2, "spare": untouched, "clear": untouched},
            {"axis": -2, "spare": untouched, "clear": Softmax.clear},
            {"axis": -2, "spare": Softmax.spare},
        ),
    ).says(
        "Your softmax runs over an axis other than the keys, so the weights of a query "
        "need not sum to 1.",
        "Which axis of the scores holds the keys?",
    ),
    Row(
        "root_of_another_size",
        scaled_by(lambda q, k: k.shape[-2]),
        twins=(scaled_by(lambda q, k: q.shape[-2]), scaled_by(lambda q, k: q.shape[1])),
    ).says(
        "You divide the scores by the wrong number, such as the root of the number of queries, "
        "keys or value features.",
        "How many products are summed in one score?",
    ),
    Row(
        "scaled_after_softmax",
        {"score": note_and_multiply, "root": lambda self, q: 1.0, "clear": divided_and_cleared},
    ).says(
        "You divide the weights, not the scores, by the root of the number of features, so they "
        "sum to 1 / sqrt(d).",
        "Which comes first, the division or the softmax?",
    ),
    Row("divided_by_d", {"root": lambda self, q: q.shape[-1]}).says(
        "You divide the scores by the number of features instead of its root, so your weights are "
        "too flat if there is more than one feature.",
        "Which number brings the variance of q . k back to 1?",
    ),
    Row(
        "unstable",
        exp_of(nothing),
        twins=(exp_of(torch.max), exp_of(nothing, guarded=True), exp_of(torch.max, guarded=True)),
    ).says(
        "You take exponentials without first subtracting the largest score of each row. They can "
        "overflow, or a whole row can underflow to 0, and inf / inf and 0 / 0 are NaN.",
        "Which number can be subtracted from all scores of a row without changing its weights?",
    ),
    Row(
        "query_axis_forgotten",
        {"align": lambda self, scores, lens: lens[..., None]},
        twins=(
            {"align": lambda self, scores, lens: lens.reshape(len(lens), -1, 1)},
            {"align": no_axis_for_heads},
        ),
    ).says(
        "Your mask from the lengths lacks an axis, for queries or for heads. Broadcasting lines up "
        "its batch axis with one of these. Depending on the sizes, that can cause an error, a "
        "wrong shape, or the use of another item's lengths.",
        "Which axes does your mask from the lengths have, and which do the scores have?",
    ),
    Row(
        "lengths_repeated",
        {"align": repeated},
        twins=({"align": repeated_for_rows}, {"align": repeated_for_items}),
    ).says(
        "You repeat the lengths as a whole, once for each head or query. A head or a query can get "
        "the length of another item.",
        "In which order are the repeated lengths of two items, and which order must they have?",
    ),
    Row("dropout_in_eval", {"drop": lambda self, weights: F.dropout(weights, self.p)}).says(
        "Dropout acts in eval mode too.", "How does a layer know that the module is in eval mode?"
    ),
    Row(
        "dropout_on_the_scores", {"weights": dropped_scores, "drop": lambda self, weights: weights}
    ).says(
        "You apply dropout to the scores. A dropped score is 0, and its key still counts.",
        "What does the softmax make of a score that is 0?",
    ),
    Row("dropout_on_the_outputs", {"average": dropped_outputs, "drop": dropped_outputs}).says(
        "You apply dropout to the outputs instead of the weights.",
        "To which tensor does the statement apply dropout?",
    ),
    Row("stored_after_dropout", {"keep": keep_dropped}).says(
        "`attention_weights` holds the weights after dropout; it should show them before.",
        "Which do you do first: store the weights, or drop some of them?",
    ),
    Row(
        "earlier_call_remembered",
        {"join": first_mask_kept, "keep": keep_weights},
        twins=(
            {"join": mask_kept, "keep": keep_weights},
            {"weights": lengths_kept, "keep": keep_weights},
        ),
    ).says(
        "Your module keeps the lengths or the mask of an earlier call and uses them again in a "
        "later call, which has others or none.",
        "What does your module keep from one call to the next, and which line reads it again?",
    ),
    Row("weights_with_graph", {"keep": keep_with_graph}).says(
        "`self.attention_weights` still carries its graph, which keeps intermediate results of the "
        "call in memory.",
        "How do you store the numbers of a tensor without its graph?",
    ),
    Row("weights_returned_too", {"forward": outputs_and_weights}).says(
        "Your `forward` returns the outputs and the weights. It must return the outputs alone; the "
        "weights belong in `self.attention_weights`.",
        "What does the statement say that `forward` returns?",
    ),
    Row(
        "merge_without_transpose", {"merge": lambda self, x: x.reshape(x.shape[0], x.shape[2], -1)}
    ).says(
        "The heads are merged by a reshape without a transpose: a position can get features that "
        "belong to other positions.",
        "Which axes must be neighbors before a reshape can join them?",
    ),
)


def words(id: str) -> tuple[str, str]:
    """Return the fact and the question of a row of the table."""
    return next((row.fact, row.question) for row in SHARED if row.id == id)
