"""The known mistakes of any attention, the most likely first.

Each is the correct attention (`steps.py`, `modules.py`) with some of its steps changed. `shared`
gives them to every exercise that has these steps.
"""

import itertools
import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.checks.judge.definitions import Mistake
from course_lib.exercises._attention.modules import Attention, AttentionModule, WithHeads
from course_lib.exercises._attention.steps import Softmax, Stepped
from course_lib.exercises.kit import MARKS, id_of, known, like, marked, mistake, words

# Wrong answers that are right where scores have no axis for heads.
HEADS_MIXED_UP = {
    *("head_axis_forgotten", "head_axis_forgotten_for_items", "lengths_repeated_for_heads"),
}


def shared(base: type[Stepped], *, without: Collection[str] = ()) -> tuple[Mistake, ...]:
    """Return the mistakes below as mistakes of an exercise, if it has the steps that they change.

    Args:
        base: the correct attention of the exercise.
        without: ids of wrong answers that are right here, or the same as those of others.
    """
    chosen = [one for one in marked(globals()) if id_of(one) not in without and _fits(one, base)]
    return of_these(base, chosen, without=without)


def of_these(
    base: type[Stepped], mistakes: Sequence[type], *, without: Collection[str] = ()
) -> tuple[Mistake, ...]:
    """Return some of the mistakes below as mistakes of an exercise."""

    def make(one: type) -> Callable | None:
        fits = id_of(one) not in without and _fits(one, base)
        return _with(base, _steps_of(one)).answer() if fits else None

    return tuple(known(one, make) for one in mistakes)


def half_repaired(
    base: type[Stepped], *faults: type, without: Collection[str] = ()
) -> Iterator[Mistake]:
    """Yield two and three of the faults of a broken module at once, unless they share a step.

    `without` has ids of faults that give the same numbers as all together.
    """
    for one, *others in (*itertools.combinations(faults, 2), *itertools.combinations(faults, 3)):
        together, steps = [one, *others], [_steps_of(fault) for fault in (one, *others)]
        ids = "+".join(map(id_of, together))
        if len(set().union(*steps)) < sum(map(len, steps)) or ids in without:
            continue
        facts, questions = zip(*map(words, together), strict=True)
        yield Mistake(
            ids,
            (_with(base, dict(ChainMap(*steps))).answer(),),
            " ".join([f"{('Two', 'Three')[len(others) - 1]} mistakes at once.", *facts]),
            " ".join(questions),
        )


def _with(base: type[Stepped], steps: dict[str, Any]) -> type[Any]:
    return type(base.__name__, (base,), {"is_wrong": True, **steps})


def _fits(one: type, base: type[Stepped]) -> bool:
    return all(getattr(base, step, None) is not None for step in _steps_of(one))


def _steps_of(one: type) -> dict[str, Any]:
    """Return the steps that a mistake changes, by name."""
    own = (vars(kind) for kind in reversed(one.__mro__) if vars(kind).get("is_wrong"))
    changed = {name: step for each in own for name, step in each.items() if name[:2] != "__"}
    return {name: step for name, step in changed.items() if name not in MARKS}


def step(function: Callable) -> Any:
    """Mark a function as a step of several mistakes, whatever the names of its arguments."""
    return function


@step
def untouched(self, scores, allowed) -> Tensor:
    """Do nothing, instead of a step that changes scores or weights."""
    return scores


@step
def unread(self, scores, given) -> None:
    """Ignore lengths or a mask, instead of the step that reads them."""


@step
def zeroed(self, weights, allowed) -> Tensor:
    return weights * allowed


@step
def no_nan(self, weights, allowed) -> Tensor:
    return weights.nan_to_num(0.0)


def scaled_already(self, q) -> float:
    """Leave the division to another step."""
    return 1.0


def no_dropout(self, weights) -> Tensor:
    return weights


def keep_weights(self, weights, used) -> None:
    self.attention_weights = weights.detach()


def unshifted(scores, axis=-1) -> Tensor:
    """Return the softmax without subtracting the maximum first."""
    e = scores.exp()
    return e / e.sum(axis, keepdim=True)


def over_its_sum(e) -> Tensor:
    """Divide exponentials by their sum, or by 1 if it is 0."""
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


@mistake
class Unscaled(Attention):
    """The scores are not divided by the root of the number of features.

    What must q . k be divided by so that its size does not grow with the number of features?
    """

    root = scaled_already


@mistake
class EmptyRowNan(Softmax):
    """Where your code leaves a row without a key, the row becomes NaN, because a softmax of no keys
    is not defined.

    What should a query with no allowed key receive, and which step of your code produces that?
    """

    spare = clear = untouched

    def fill(self, scores, allowed) -> Tensor:
        return scores.masked_fill(~allowed, -math.inf)


@mistake
class EmptyRowUniform(Softmax):
    """In a row in which no key is allowed, every key gets the same weight, 1/m, instead of 0. In a
    row of very low scores, forbidden keys may get weight, too.

    What should a query with no allowed key receive, and which step of your code produces that?
    """

    spare = clear = untouched

    def fill(self, scores, allowed) -> Tensor:
        return scores.masked_fill(~allowed, -1e9)


@like(EmptyRowUniform)
class SmallestNumberFilled(EmptyRowUniform):
    def fill(self, scores, allowed) -> Tensor:
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)


@mistake
class EmptyRowPatched(Softmax):
    """You replace the NaN of a row without an allowed key only after the softmax. Its gradient is
    still NaN.

    What should a query with no allowed key receive, and which step of your code produces that?
    """

    spare, clear = untouched, no_nan

    def fill(self, scores, allowed) -> Tensor:
        return scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf)


@mistake
class FiniteFill(EmptyRowUniform):
    """You mask dropped scores with a finite number, such as -1e9. Dropped keys take part in the
    softmax if no key of a row is allowed, or if no allowed score is above that number.

    Which value is below every finite score, in every dtype?
    """

    clear = Softmax.clear


@like(FiniteFill)
class FiniteFillZeroed(EmptyRowUniform):
    clear = zeroed


@like(FiniteFill)
class FiniteNumberAdded(EmptyRowUniform):
    def fill(self, scores, allowed) -> Tensor:
        return scores + (~allowed).to(scores.dtype) * -1e9


@mistake
class LengthsIgnored(Softmax):
    """Your code ignores the lengths: `valid_lens` changes nothing.

    Where does `valid_lens` enter your computation?
    """

    real = unread


@mistake
class LengthsOfTheQueries(Softmax):
    """You match lengths with queries: your code drops the queries (rows) beyond the length, or it
    uses length i for query i. The lengths count an item's keys.

    What does each number in `valid_lens` count: queries or keys, and of which item?
    """

    def real(self, scores, valid_lens) -> Tensor:
        rows = valid_lens if valid_lens.dim() == 1 else valid_lens.amax(-1)
        return Softmax.real(self, scores.mT, rows).mT


@like(LengthsOfTheQueries)
class LengthsOfTheQueriesIfAsMany(Softmax):
    def real(self, scores, valid_lens) -> Tensor:
        if valid_lens.shape == scores.shape[-2:-1]:
            valid_lens = valid_lens.expand(len(scores), -1)
        return Softmax.real(self, scores, valid_lens)


@like(LengthsOfTheQueries)
class LengthsOfQueriesAndKeys(LengthsOfTheQueries):
    def real(self, scores, valid_lens) -> Tensor:
        keys = Softmax.real(self, scores, valid_lens)
        if valid_lens.dim() == 2:
            return keys
        return keys & LengthsOfTheQueries.real(self, scores, valid_lens)


@mistake
class BoolMaskIgnored(Softmax):
    """Your code ignores the bool mask: `mask` changes nothing.

    Where does `mask` enter your computation?
    """

    own = unread


@mistake
class NothingMasked(Softmax):
    """Your code ignores both the lengths and the mask.

    Where do `valid_lens` and `mask` enter your computation?
    """

    real = own = unread


@mistake
class MaskInverted(Softmax):
    """You invert the meaning of the mask, of the lengths or of both: you drop the allowed keys and
    keep the others.

    True means 'may attend'. Does your code expect the opposite?
    """

    def own(self, scores, mask) -> Tensor:
        return ~type(self).__mro__[1].own(self, scores, mask)


@like(MaskInverted)
class MaskInvertedWithNan(MaskInverted):
    spare = clear = untouched


@like(MaskInverted)
class AllowedInvertedIfAnyIsDropped(Softmax):
    def join(self, scores, real, own) -> Tensor:
        allowed = Softmax.join(self, scores, real, own)
        return allowed if allowed.all() else ~allowed


@like(MaskInverted)
class LengthsInverted(Softmax):
    def real(self, scores, valid_lens) -> Tensor:
        return ~type(self).__mro__[1].real(self, scores, valid_lens)


@mistake
class OneMaskOnly(Softmax):
    """If there are both lengths and a mask, you use only one of them, or a key needs only one of
    them. A key must be allowed by both.

    If both are given, where does one of them get lost?
    """

    def join(self, scores, real, own) -> Tensor:
        return Softmax.join(self, scores, real, None if real is not None else own)


@like(OneMaskOnly)
class LengthsOnlyWithoutAMask(Softmax):
    def join(self, scores, real, own) -> Tensor:
        return Softmax.join(self, scores, None if own is not None else real, own)


@like(OneMaskOnly)
class EitherMask(Softmax):
    def join(self, scores, real, own) -> Tensor:
        if real is None or own is None:
            return Softmax.join(self, scores, real, own)
        return (real | own).expand(scores.shape)


@mistake
class LengthsShifted(Softmax):
    """In your code, a length of n allows the wrong keys: one too many, one too few, the last n, or
    those of another query's length.

    Which positions are below a length of 2?
    """

    def align(self, scores, lens) -> Tensor:
        return type(self).__mro__[1].align(self, scores, lens) + 1


@like(LengthsShifted)
class LengthsShorter(Softmax):
    def align(self, scores, lens) -> Tensor:
        return type(self).__mro__[1].align(self, scores, lens) - 1


@like(LengthsShifted)
class LengthsAtLeastOne(Softmax):
    def align(self, scores, lens) -> Tensor:
        return type(self).__mro__[1].align(self, scores, lens).clamp(min=1)


@like(LengthsShifted)
class LengthsFromTheEnd(Softmax):
    def real(self, scores, valid_lens) -> Tensor:
        return type(self).__mro__[1].real(self, scores, valid_lens).flip(-1)


@like(LengthsShifted)
class LengthsOfTheFirstQuery(Softmax):
    def align(self, scores, lens) -> Tensor:
        lens = lens[:, 0] if lens.dim() == 2 else lens
        return type(self).__mro__[1].align(self, scores, lens)


@like(LengthsShifted)
class LengthsOfTheLongestQuery(Softmax):
    def align(self, scores, lens) -> Tensor:
        lens = lens.amax(1) if lens.dim() == 2 else lens
        return type(self).__mro__[1].align(self, scores, lens)


@mistake
class ZeroAfterSoftmax(Softmax):
    """You drop keys only after their scores were used: the remaining weights may not sum to 1, or
    may vanish if a dropped score is far larger.

    Which step must come first, so that the weights that are left sum to 1?
    """

    fill = spare = untouched
    clear = zeroed


@like(ZeroAfterSoftmax)
class RenormalizedAfterSoftmax(ZeroAfterSoftmax):
    def clear(self, weights, allowed) -> Tensor:
        return over_its_sum(weights * allowed)


@mistake
class FilledWithZero(Softmax):
    """You set dropped scores to 0, but exp(0) = 1. Each 0 still enters the softmax, as a term of
    its sum or as the maximum that is subtracted from all scores.

    For which score is the exponential 0?
    """

    spare = clear = untouched

    def fill(self, scores, allowed) -> Tensor:
        return scores.masked_fill(~allowed, 0.0)


@like(FilledWithZero)
class ScoresTimesMask(Softmax):
    spare = untouched

    def fill(self, scores, allowed) -> Tensor:
        return scores * allowed


@mistake
class OverQueries(Softmax):
    """Your softmax runs over an axis other than the keys, so the weights of a query need not sum to
    1.

    Which axis of the scores holds the keys?
    """

    axis = -2
    fill, spare, clear = Softmax.fill, untouched, no_nan


@like(OverQueries)
class OverQueriesWithNan(Softmax):
    axis = -2
    spare = clear = untouched


@like(OverQueries)
class OverQueriesCleared(Softmax):
    axis = -2
    spare, clear = untouched, Softmax.clear


@like(OverQueries)
class OverQueriesSpared(Softmax):
    axis = -2
    spare = Softmax.spare


@like(OverQueries)
class OverAxis1(FiniteFillZeroed):
    axis = 1
    fill = SmallestNumberFilled.fill


@mistake
class RootOfAnotherSize(Attention):
    """You divide the scores by the wrong number, such as a constant, a rounded root, the root of a
    root, or the root of the number of queries, keys, value features, or features of all heads.

    How many products are summed in one score?
    """

    def root(self, q) -> float:
        return math.sqrt(q.shape[-2])


@like(RootOfAnotherSize)
class RootOfTheKeys(Attention):
    root = scaled_already

    def score(self, q, k) -> Tensor:
        return self.product(q, k) / math.sqrt(k.shape[-2])


@like(RootOfAnotherSize)
class RootOfAxis1(Attention):
    def root(self, q) -> float:
        return math.sqrt(q.shape[1])


@like(RootOfAnotherSize)
class RootOfAllHeads(Attention):
    def root(self, q) -> float:
        return math.sqrt((q.shape[1] if q.dim() == 4 else 1) * q.shape[-1])


@like(RootOfAnotherSize)
class RootOfTheValues(RootOfTheKeys):
    def attend(self, inputs, valid_lens=None, mask=None) -> tuple:
        self.size = inputs[2].shape[-1]
        return type(self).__mro__[1].attend(self, inputs, valid_lens, mask)

    def score(self, q, k) -> Tensor:
        return self.product(q, k) / math.sqrt(self.size)


@like(RootOfAnotherSize)
class RootOf64(Attention):
    def root(self, q) -> float:
        return 8.0


@like(RootOfAnotherSize)
class RootRoundedDown(Attention):
    def root(self, q) -> float:
        return math.isqrt(q.shape[-1])


@like(RootOfAnotherSize)
class RootOfTheRoot(Attention):
    def root(self, q) -> float:
        return q.shape[-1] ** 0.25


@mistake
class MultipliedByTheRoot(Attention):
    """You multiply the scores by the root of the number of features instead of dividing by it, so
    your weights are too sharp if there is more than one feature.

    Which number brings the variance of q . k back to 1?
    """

    def root(self, q) -> float:
        return q.shape[-1] ** -0.5


@mistake
class ScaledAfterSoftmax(Attention):
    """You divide the weights, not the scores, by the root of the number of features, so they sum to
    1 / sqrt(d).

    Which comes first, the division or the softmax?
    """

    root = scaled_already

    def score(self, q, k) -> Tensor:
        self.d = q.shape[-1]
        return self.product(q, k)

    def clear(self, weights, allowed) -> Tensor:
        return Softmax.clear(self, weights, allowed) / math.sqrt(self.d)


@mistake
class DividedByD(Attention):
    """You divide the scores by the number of features instead of its root, so your weights are too
    flat if there is more than one feature.

    Which number brings the variance of q . k back to 1?
    """

    def root(self, q) -> float:
        return q.shape[-1]


@mistake
class Unstable(Softmax):
    """You take exponentials without first subtracting the largest score of each row. They can
    overflow, or a whole row can underflow to 0, and inf / inf and 0 / 0 are NaN.

    Which number can be subtracted from all scores of a row without changing its weights?
    """

    def normalize(self, kept) -> Tensor:
        return unshifted(kept)


@like(Unstable)
class LargestOfAllSubtracted(Softmax):
    def normalize(self, kept) -> Tensor:
        return unshifted(kept - kept.max())


@like(Unstable)
class UnstableButGuarded(Softmax):
    spare = clear = untouched

    def normalize(self, kept) -> Tensor:
        return over_its_sum(kept.exp())


@like(Unstable)
class UnstableWithEpsilon(UnstableButGuarded):
    def normalize(self, kept) -> Tensor:
        e = kept.exp()
        return e / (e.sum(-1, keepdim=True) + 1e-10)


@mistake
class QueryAxisForgotten(Softmax):
    """Your mask from the lengths lacks an axis, for queries or for heads. Broadcasting lines up its
    batch axis with one of these. Depending on the sizes, that can cause an error, a wrong shape, or
    the use of another item's lengths.

    Which axes does your mask from the lengths have, and which do the scores have?
    """

    def align(self, scores, lens) -> Tensor:
        return lens[..., None]


@like(QueryAxisForgotten)
class HeadAxisForgotten(Softmax):
    def align(self, scores, lens) -> Tensor:
        return lens.reshape(len(lens), -1, 1)


@like(QueryAxisForgotten)
class HeadAxisForgottenForItems(Softmax):
    def align(self, scores, lens) -> Tensor:
        return lens.reshape(-1, 1, 1) if lens.dim() == 1 else Softmax.align(self, scores, lens)


@mistake
class LengthsRepeated(Softmax):
    """You repeat the lengths as a whole, once for each head or query. A head or a query can get the
    length of another item.

    In which order are the repeated lengths of two items, and which order must they have?
    """

    def align(self, scores, lens) -> Tensor:
        rows = scores.shape[:-1]
        return lens.reshape(-1).repeat(rows.numel() // lens.numel()).reshape(*rows, 1)


@like(LengthsRepeated)
class LengthsRepeatedForHeads(Softmax):
    def align(self, scores, lens) -> Tensor:
        others = scores.shape[1:-2].numel()
        return torch.cat([lens] * others).reshape(*scores.shape[:-2], -1, 1)


@like(LengthsRepeated)
class LengthsOfItemsRepeated(Softmax):
    def align(self, scores, lens) -> Tensor:
        kind: Any = LengthsRepeated if lens.dim() == 1 else Softmax
        return kind.align(self, scores, lens)


@mistake
class DropoutInEval(AttentionModule):
    """Dropout acts in eval mode too.

    How does a layer know that the module is in eval mode?
    """

    def drop(self, weights) -> Tensor:
        return F.dropout(weights, self.p)


@mistake
class DropoutOnTheScores(AttentionModule):
    """You apply dropout to the scores. A dropped score is 0, and its key still counts.

    What does the softmax make of a score that is 0?
    """

    drop = no_dropout

    def weights(self, scores, valid_lens=None, mask=None) -> Tensor:
        dropped = F.dropout(scores, self.p, self.training)
        return Softmax.weights(self, dropped, valid_lens, mask)


@mistake
class DropoutOnTheOutputs(AttentionModule):
    """You apply dropout to the outputs instead of the weights.

    To which tensor does the statement apply dropout?
    """

    drop = no_dropout

    def average(self, weights, v) -> Tensor:
        self.keep(weights, weights)
        return F.dropout(weights @ v, self.p, self.training)


@mistake
class StoredAfterDropout(AttentionModule):
    """`attention_weights` holds the weights after dropout; it should show them before.

    Which do you do first: store the weights, or drop some of them?
    """

    def keep(self, weights, used) -> None:
        self.attention_weights = used.detach()


@mistake
class EarlierCallRemembered(AttentionModule):
    """Your module keeps the lengths or the mask of an earlier call and uses them again in a later
    call, which has others or none.

    What does your module keep from one call to the next, and which line reads it again?
    """

    keep = keep_weights

    def join(self, scores, real, own) -> Tensor:
        allowed = Softmax.join(self, scores, real, own)
        return self.__dict__.setdefault("_first", allowed)


@like(EarlierCallRemembered)
class LastMaskRemembered(AttentionModule):
    keep = keep_weights

    def join(self, scores, real, own) -> Tensor:
        if real is not None or own is not None:
            self._mask = Softmax.join(self, scores, real, own)
        return self.__dict__.get("_mask", torch.ones_like(scores, dtype=torch.bool))


@like(EarlierCallRemembered)
class LastLengthsRemembered(AttentionModule):
    keep = keep_weights

    def weights(self, scores, valid_lens=None, mask=None) -> Tensor:
        earlier = self.__dict__.setdefault("_lengths", valid_lens)
        self._lengths = earlier if valid_lens is None else valid_lens
        return Softmax.weights(self, scores, self._lengths, mask)


@mistake
class WeightsWithGraph(AttentionModule):
    """`self.attention_weights` still carries its graph, which keeps intermediate results of the
    call in memory.

    How do you store the numbers of a tensor without its graph?
    """

    def keep(self, weights, used) -> None:
        self.attention_weights = weights


@mistake
class WeightsReturnedToo(AttentionModule):
    """Your `forward` returns the outputs and the weights. It must return the outputs alone; the
    weights belong in `self.attention_weights`.

    What does the statement say that `forward` returns?
    """

    def forward(self, *given, **named) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        outputs = type(self).__mro__[1].forward(self, *given, **named)
        return outputs, self.attention_weights


@mistake
class MergeWithoutTranspose(WithHeads):
    """The heads are split or merged by a reshape without a transpose: a position can get features
    that belong to other positions.

    Which axes must be neighbors before a reshape can join them?
    """

    def merge(self, x) -> Tensor:
        return x.reshape(x.shape[0], x.shape[2], -1)


@like(MergeWithoutTranspose)
class SplitWithoutTranspose(WithHeads):
    def split(self, x) -> Tensor:
        return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


@like(MergeWithoutTranspose)
class SplitAndMergeWithoutTranspose(SplitWithoutTranspose):
    merge = MergeWithoutTranspose.merge
