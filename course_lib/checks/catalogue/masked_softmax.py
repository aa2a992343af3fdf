"""Lesson 02: masks, a stable softmax, and both together."""

import itertools
import math

import numpy as np
import torch

from course_lib.checks.exercise import (
    Exercise,
    Integration,
    Lesson,
    Mistake,
    Property,
    Returned,
    Written,
)
from course_lib.checks.probe import Dtype, Probe, array, tensor
from course_lib.reference import masked_softmax as oracle

LESSON = Lesson(
    2,
    "Masked softmax",
    Written("empty_row_choice", points=3, minutes=10),
    Integration(("length_mask", "combine_masks", "masked_softmax")),
)


# ---------------------------------------------------------------- stable_softmax
def _stable_softmax_probes(rng):
    def normal(*shape):
        return rng.normal(0, 1.3, shape)

    return [
        Probe(
            "one_row",
            "A row of scores must become weights proportional to exp(score).",
            args={"scores": array([[0.0, 1.0, -0.5]])},
        ),
        Probe(
            "matrix",
            "Each row must be normalised on its own: it sums to 1 over the last axis.",
            args={"scores": array(normal(3, 5))},
        ),
        Probe(
            "three_axes",
            "Any number of leading axes must work: the last one sums to 1.",
            args={"scores": array(normal(2, 3, 5))},
        ),
        Probe(
            "first_axis",
            "`axis=0` must normalise over the first axis.",
            args={"scores": array(normal(4, 3))},
            kwargs={"axis": 0},
        ),
        Probe(
            "middle_axis",
            "`axis=1` of a 3-D array must normalise over the middle axis.",
            args={"scores": array(normal(2, 5, 3), strided=True)},
            kwargs={"axis": 1},
        ),
        Probe(
            "axis_from_the_end",
            "`axis=-2` must normalise over the last axis but one.",
            args={"scores": array(normal(2, 3, 4, 5))},
            kwargs={"axis": -2},
        ),
        Probe("vector", "A single vector must work.", args={"scores": array(normal(6))}),
        Probe(
            "float32",
            "Scores in float32 must give weights in float32.",
            part="edges",
            args={"scores": array(normal(3, 4).astype(np.float32))},
        ),
        Probe(
            "large",
            "Large scores must not overflow: exp(1000) is inf, yet the weights exist.",
            part="edges",
            args={"scores": array([[1000.0, 1001.0, 999.0]])},
        ),
        Probe(
            "very_negative",
            "Very negative scores must not underflow to 0 / 0.",
            part="edges",
            args={"scores": array([[-1000.0, -1001.5, -1000.3]])},
        ),
        Probe(
            "far_apart_scores",
            "Scores of one row may lie far apart: the large one takes all the weight.",
            part="edges",
            args={"scores": array([[-900.0, 1.0, 0.5]])},
        ),
        Probe(
            "far_apart_rows",
            "Rows of very different size must not disturb each other: subtract each row's own "
            "maximum, not the largest score of all.",
            part="edges",
            args={"scores": array(normal(3, 4) + np.array([[0.0], [900.0], [-900.0]]))},
        ),
    ]


def _softmax_numpy(scores, axis=-1, shift=True, total_axis="axis"):
    scores = scores - scores.max(axis=axis, keepdims=True) if shift else scores
    with np.errstate(all="ignore"):
        e = np.exp(scores)
        return e / (e.sum() if total_axis is None else e.sum(axis=axis, keepdims=True))


def _in_place_softmax(scores, axis=-1):
    scores -= scores.max(axis=axis, keepdims=True)
    return _softmax_numpy(scores, axis)


def _transposed_softmax(scores, axis=-1):
    e = np.exp(scores)
    return (e.T / e.sum(axis=axis).T).T


def _transposed_softmax_plain(scores, axis=-1):
    e = np.exp(scores)
    return (e.T / e.sum(axis=axis)).T


def _sums_to_one_numpy(probe, outputs):
    axis = probe.kwargs.get("axis", -1)
    with np.errstate(all="ignore"):
        sums = outputs.data.sum(axis=axis)
    if np.allclose(sums, 1.0, atol=1e-4):
        return None
    return f"Your weights sum to {_first_off(sums):.3f} along axis {axis} where they must sum to 1."


def _first_off(sums):
    flat = np.ravel(sums)
    return float(flat[np.argmax(np.abs(flat - 1.0))])


STABLE_SOFTMAX = Exercise(
    name="stable_softmax",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("weights", "array", "float", ("the shape of scores",)),),
    probes=_stable_softmax_probes,
    oracle=oracle.stable_softmax,
    mistakes=(
        Mistake(
            "no_maximum_subtracted",
            lambda scores, axis=-1: _softmax_numpy(scores, axis, shift=False),
            "The formula is right, but exp overflows for large scores and the result is NaN "
            "(or 0 / 0 for very negative ones).",
            "Which number can you subtract from every score of a row without changing its weights?",
        ),
        Mistake(
            "wrong_axis",
            lambda scores, axis=-1: _softmax_numpy(scores, 0 if axis != 0 else -1),
            "Your weights are normalised over another axis than `axis`.",
            "Which axis do the maximum and the sum run over, and is it written there as a number?",
        ),
        Mistake(
            "axis_ignored",
            lambda scores, axis=-1: _softmax_numpy(scores, -1),
            "The last axis is right, but the argument `axis` changes nothing.",
            "Where does your code use `axis`?",
        ),
        Mistake(
            "global_sum",
            lambda scores, axis=-1: _softmax_numpy(scores, axis, total_axis=None),
            "You divide by the sum of all exponentials, so the whole array sums to 1 instead of "
            "each row.",
            "What do `axis=` and `keepdims=True` do in `sum`?",
        ),
        Mistake(
            "global_maximum",
            lambda scores, axis=-1: _softmax_numpy(scores - scores.max(), axis, shift=False),
            "You subtract the largest score of the whole array; rows far below it underflow to "
            "0 / 0.",
            "Which maximum belongs to each row?",
        ),
        Mistake(
            "transpose_trick",
            _transposed_softmax_plain,
            "Dividing through `.T` works for matrices only: in 3-D `.T` reverses all axes.",
            "What does `keepdims=True` make of the shape of the sum?",
        ),
        Mistake(
            "transpose_trick_everywhere",
            _transposed_softmax,
            "Transposing with `.T` turns all axes round, and no maximum is subtracted, so large "
            "scores overflow.",
            "What does `keepdims=True` make of the shape of the sum?",
        ),
        Mistake(
            "scores_overwritten",
            _in_place_softmax,
            "The weights are right, but `-=` writes the shifted scores into the caller's array.",
            "What is the difference between `x -= m` and `x = x - m`?",
        ),
    ),
    properties=(
        Property(
            "does_not_sum_to_one",
            _sums_to_one_numpy,
            "Which axis does the sum run over?",
        ),
    ),
    hints=(
        "Adding the same number to all scores of a row leaves its weights as they are. Which "
        "number makes the largest exponent exactly 0?",
        "Subtract the maximum along `axis`, take exp, divide by the sum along `axis`. "
        "`keepdims=True` keeps the shapes aligned for any number of axes.",
        "shifted = scores - scores.max(axis=..., keepdims=True)\n"
        "exponentials = np.exp(shifted)\n"
        "return exponentials / exponentials.sum(...)",
    ),
)


# ---------------------------------------------------------------- length_mask
def _length_mask_probes(rng):
    per_item = rng.permutation(np.arange(1, 6))[:4]
    per_query = np.stack([rng.permutation(np.arange(1, 7))[:3] for _ in range(2)])
    return [
        Probe(
            "one_per_item",
            "Key j of an item is real exactly if j is smaller than its length.",
            args={"valid_lens": tensor([2, 3]), "max_len": 4},
        ),
        Probe(
            "several_items",
            "Each item has a length of its own.",
            args={"valid_lens": tensor(per_item), "max_len": 6},
        ),
        Probe(
            "one_per_query",
            "Lengths of shape (batch, num_queries) give one row of the mask for each query.",
            args={"valid_lens": tensor(per_query), "max_len": 7},
        ),
        Probe(
            "strided",
            "A non-contiguous tensor of lengths must work.",
            args={"valid_lens": tensor(rng.permutation(per_item), strided=True), "max_len": 5},
        ),
        Probe(
            "int32",
            "Lengths may be int32 as well as int64.",
            part="edges",
            args={"valid_lens": tensor(per_query.astype(np.int32), strided=True), "max_len": 6},
        ),
        Probe(
            "another_device",
            "Lengths on a GPU must work: a tensor made without `device=` is on the CPU, and the "
            "two do not mix.",
            part="edges",
            args={"valid_lens": tensor(rng.permutation(per_item)), "max_len": 6},
            scenario="after_another_device",
        ),
        Probe(
            "length_zero",
            "Length 0 means that no key is real.",
            part="edges",
            args={"valid_lens": tensor([0, 2]), "max_len": 3},
        ),
        Probe(
            "length_full",
            "A length of `max_len` means that every key is real.",
            part="edges",
            args={"valid_lens": tensor([3, 1]), "max_len": 3},
        ),
        Probe(
            "square",
            "As many items as keys must not confuse the axes.",
            part="edges",
            args={"valid_lens": tensor([1, 3, 2]), "max_len": 3},
        ),
    ]


def _positions(valid_lens, max_len, start=0):
    return torch.arange(start, max_len + start, device=valid_lens.device)


LENGTH_MASK = Exercise(
    name="length_mask",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("mask", "tensor", "bool", ("batch", "[num_queries]", "max_len")),),
    probes=_length_mask_probes,
    oracle=oracle.length_mask,
    mistakes=(
        Mistake(
            "one_too_many",
            lambda valid_lens, max_len: _positions(valid_lens, max_len) <= valid_lens[..., None],
            "One key too many is kept: with `<=`, length 2 keeps keys 0, 1 and 2.",
            "Which is the last real key of an item of length 2?",
        ),
        Mistake(
            "starts_at_one",
            lambda valid_lens, max_len: _positions(valid_lens, max_len, 1) < valid_lens[..., None],
            "One key too few is kept: your positions start at 1, or the last real key is dropped.",
            "What number does the first key have?",
        ),
        Mistake(
            "inverted",
            lambda valid_lens, max_len: _positions(valid_lens, max_len) >= valid_lens[..., None],
            "The mask is upside down: you keep the padding and drop the real keys.",
            "What does True mean in this course's masks?",
        ),
        Mistake(
            "transposed",
            lambda valid_lens, max_len: (
                (_positions(valid_lens, max_len) < valid_lens[..., None]).mT
            ),
            "The axes are the wrong way round: keys belong on the last axis.",
            "Which of the two gets the new axis, the lengths or the positions?",
        ),
        Mistake(
            "float_mask",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None]
            ).float(),
            "The pattern is right, but the mask holds the numbers 0 and 1 instead of bool.",
            "What does a comparison return before you convert it?",
        ),
        Mistake(
            "integer_mask",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None]
            ).long(),
            "The pattern is right, but the mask holds whole numbers instead of bool.",
            "What does a comparison return before you convert it?",
        ),
        Mistake(
            "only_one_length_per_item",
            lambda valid_lens, max_len: _positions(valid_lens, max_len)[None] < valid_lens[:, None],
            "One length an item works, lengths of shape (batch, num_queries) do not.",
            "Where must the new axis go so that keys come last, whatever the number of axes?",
        ),
        Mistake(
            "clamped_to_one",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None].clamp(min=1)
            ),
            "An item of length 0 still keeps a key.",
            "How many keys may be attended in an item of length 0?",
        ),
        Mistake(
            "full_length_loses_a_key",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None].clamp(max=max_len - 1)
            ),
            "An item of full length loses its last key.",
            "Is `max_len` itself an allowed length?",
        ),
        Mistake(
            "positions_on_the_cpu",
            lambda valid_lens, max_len: torch.arange(max_len) < valid_lens[..., None],
            "The mask is right, but your positions are always made on the CPU: with lengths on a "
            "GPU the comparison fails.",
            "Which argument of `torch.arange` says where its numbers live?",
        ),
        Mistake(
            "longest_for_all",
            lambda valid_lens, max_len: (_positions(valid_lens, max_len) < valid_lens.max()).expand(
                *valid_lens.shape, max_len
            ),
            "All items get the mask of the longest one.",
            "Which axis of the comparison should hold the items?",
        ),
    ),
    hints=(
        "Number the keys 0, 1, 2, ... A key is real if its number is smaller than the length.",
        "Compare a row of positions with a column of lengths; broadcasting does the rest. The "
        "lengths need a new last axis.",
        "positions = torch.arange(max_len, device=...)\nreturn positions < valid_lens[..., None]",
    ),
)


# ---------------------------------------------------------------- causal_mask
def _causal_mask_probes(rng):
    small, large = sorted(int(n) for n in rng.choice(np.arange(4, 9), 2, replace=False))
    return [
        Probe(
            "square",
            "Query i sees keys 0 to i: itself and what came before.",
            args={"num_queries": 3},
        ),
        Probe(
            "larger_square", "Query i sees keys 0 to i, at any size.", args={"num_queries": large}
        ),
        Probe(
            "more_keys",
            "With more keys than queries the last query is aligned with the last key, so every "
            "query also sees the earlier keys.",
            args={"num_queries": 2},
            kwargs={"num_keys": 4},
        ),
        Probe(
            "many_more_keys",
            "With more keys than queries the last query sees all keys.",
            args={"num_queries": small - 1},
            kwargs={"num_keys": large + 1},
        ),
        Probe(
            "keys_by_position",
            "`num_keys` may be given by position as well.",
            args={"num_queries": small, "num_keys": large},
        ),
        Probe(
            "more_queries",
            "With more queries than keys the first queries see nothing at all.",
            part="edges",
            args={"num_queries": 4},
            kwargs={"num_keys": 2},
        ),
        Probe(
            "one_query",
            "A single query, as in decoding, is the last one: it sees every key.",
            part="edges",
            args={"num_queries": 1},
            kwargs={"num_keys": 5},
        ),
        Probe("one_by_one", "One query sees its own key.", part="edges", args={"num_queries": 1}),
    ]


def _ones(num_queries, num_keys):
    return torch.ones(num_queries, num_keys or num_queries, dtype=torch.bool)


def _aligned(num_queries, num_keys):
    num_keys = num_queries if num_keys is None else num_keys
    return _ones(num_queries, num_keys).tril(num_keys - num_queries)


CAUSAL_MASK = Exercise(
    name="causal_mask",
    points=2,
    minutes=10,
    difficulty=2,
    returns=(Returned("mask", "tensor", "bool", ("num_queries", "num_keys")),),
    probes=_causal_mask_probes,
    oracle=oracle.causal_mask,
    mistakes=(
        Mistake(
            "upper_triangular",
            lambda n, num_keys=None: _ones(n, num_keys).triu((num_keys or n) - n),
            "Your mask is upper triangular: every query sees the future and not the past.",
            "Rows are queries: which keys may the first row see?",
        ),
        Mistake(
            "upper_triangular_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).triu(),
            "Your mask is upper triangular: every query sees the future and not the past.",
            "Rows are queries: which keys may the first row see?",
        ),
        Mistake(
            "own_key_dropped",
            lambda n, num_keys=None: _ones(n, num_keys).tril((num_keys or n) - n - 1),
            "No query sees its own position: the diagonal is missing, and the first row of a "
            "square mask is empty.",
            "May a token attend to itself?",
        ),
        Mistake(
            "own_key_dropped_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).tril(-1),
            "No query sees its own position: the diagonal is missing, and the first row is empty.",
            "May a token attend to itself?",
        ),
        Mistake(
            "true_means_drop",
            lambda n, num_keys=None: ~_aligned(n, num_keys),
            "The pattern is right but means the opposite: yours is True where a key is dropped.",
            "What does True mean in this course's masks?",
        ),
        Mistake(
            "true_means_drop_top_left",
            lambda n, num_keys=None: _ones(n, num_keys).triu(1),
            "Your mask is True where a key is dropped; here True means that it may be attended.",
            "What does True mean in this course's masks?",
        ),
        Mistake(
            "diagonal_only",
            lambda n, num_keys=None: torch.eye(n, num_keys or n).bool(),
            "Every query sees only its own key.",
            "May a token look at earlier tokens?",
        ),
        Mistake(
            "top_left_aligned",
            lambda n, num_keys=None: _ones(n, num_keys).tril(),
            "Square masks are right. With n != m yours aligns the first query with the first "
            "key; here the last query is aligned with the last key.",
            "When decoding one token at a time (n = 1), which keys must the newest token see?",
        ),
        Mistake(
            "num_keys_ignored",
            lambda n, num_keys=None: _ones(n, n).tril(),
            "The mask always has as many keys as queries.",
            "Where does `num_keys` enter?",
        ),
        Mistake(
            "transposed_shape",
            lambda n, num_keys=None: _aligned(n, num_keys).T,
            "The axes are the wrong way round: queries are rows, keys are columns.",
            "Which axis of attention weights sums to 1?",
        ),
        Mistake(
            "float_mask",
            lambda n, num_keys=None: _aligned(n, num_keys).float(),
            "The pattern is right, but the mask holds the numbers 0 and 1 instead of bool.",
            "Which `dtype=` makes a tensor of True and False?",
        ),
        Mistake(
            "additive_instead_of_bool",
            lambda n, num_keys=None: torch.zeros(_aligned(n, num_keys).shape).masked_fill(
                ~_aligned(n, num_keys), -math.inf
            ),
            "This is a mask to add (0 and -inf); a bool mask is asked for.",
            "At which step does it turn into numbers?",
        ),
        Mistake(
            "no_mask_at_all",
            _ones,
            "Every query sees every key, the future included.",
            "Which keys come after query i?",
        ),
    ),
    hints=(
        "Write down for three tokens what each may see: row 0 sees key 0, row 1 sees keys 0 and "
        "1, row 2 all three. Where are the True values?",
        "A lower triangle. With n != m, shift its diagonal so that the last row is all True: key "
        "j is allowed for query i if j <= i + m - n.",
        "everything = torch.ones(num_queries, num_keys, dtype=torch.bool)\n"
        "return everything.tril(diagonal=...)",
    ),
)


# ---------------------------------------------------------------- combine_masks
def _combine_masks_probes(rng):
    def mask(*shape):
        drawn = rng.random(shape) < 0.6
        drawn.flat[0], drawn.flat[-1] = True, False
        return drawn

    three = [mask(3, 5) for _ in range(3)]
    for i, allowed in enumerate(three):  # each of them alone drops one key
        allowed[1, :3] = np.arange(3) != i
    both = np.array([[True, True, False], [True, False, False]])
    other = np.array([[True, False, True], [True, True, False]])
    return [
        Probe(
            "two_masks",
            "A key is allowed only where both masks allow it.",
            args={"first": tensor(both), "second": tensor(other)},
        ),
        Probe(
            "three_masks",
            "Three masks: all three must allow the key.",
            args={f"mask {i}": tensor(allowed) for i, allowed in enumerate(three)},
        ),
        Probe(
            "broadcast",
            "A (batch, 1, num_keys) mask and a (num_queries, num_keys) mask must broadcast.",
            args={"padding": tensor(mask(2, 1, 5)), "causal": tensor(mask(3, 5))},
        ),
        Probe(
            "both_broadcast",
            "A (num_keys,) mask and a (num_queries, 1) mask must broadcast against each other.",
            args={"keys": tensor(mask(5)), "queries": tensor(mask(3, 1))},
        ),
        Probe(
            "none_in_between",
            "None in between changes nothing: all masks that are given must allow the key.",
            part="edges",
            args={
                "mask 0": tensor(three[2]),
                "mask 1": None,
                "mask 2": tensor(three[0]),
                "mask 3": None,
                "mask 4": tensor(three[1]),
            },
        ),
        Probe(
            "none_second",
            "None allows everything: the other mask stays as it is.",
            part="edges",
            args={"first": tensor(both), "second": None},
        ),
        Probe(
            "none_first",
            "None may come first as well.",
            part="edges",
            args={"first": None, "second": tensor(both), "third": tensor(other)},
        ),
        Probe(
            "all_none",
            "With no mask at all there is nothing to mask: the result is None.",
            part="edges",
            args={"first": None, "second": None},
        ),
        Probe("no_arguments", "No masks given: the result is None.", part="edges"),
        Probe(
            "one_mask",
            "A single mask comes back as it is.",
            part="edges",
            args={"first": tensor(mask(3, 4), strided=True)},
        ),
    ]


def _given(masks):
    return [mask for mask in masks if mask is not None]


def _fold(masks, step):
    given = _given(masks)
    result = given[0] if given else None
    for mask in given[1:]:
        result = step(result, mask)
    return result


def _fold_with_none(masks, step):
    result = masks[0]
    for mask in masks[1:]:
        result = step(result, mask)
    return result


def _in_place_and(*masks):
    given = _given(masks)
    result = given[0] if given else None
    for mask in given[1:]:
        result &= mask
    return result


def _all_true_for_none(*masks):
    given = _given(masks)
    return _fold(given, torch.logical_and) if given else torch.tensor(True)


COMBINE_MASKS = Exercise(
    name="combine_masks",
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("mask", "tensor", "bool", ("the broadcast shape",), optional=True),),
    probes=_combine_masks_probes,
    oracle=oracle.combine_masks,
    mistakes=(
        Mistake(
            "or_instead_of_and",
            lambda *masks: _fold(masks, torch.logical_or),
            "You allow a key where any mask allows it; it must be allowed by all of them.",
            "A padded key in the past: allowed by the causal mask, not by the padding mask. May "
            "it be attended?",
        ),
        Mistake(
            "xor_instead_of_and",
            lambda *masks: _fold(masks, torch.logical_xor),
            "You allow a key where the masks differ.",
            "Which operator is True only if both sides are?",
        ),
        Mistake(
            "sum_of_masks",
            lambda *masks: _fold([m.int() for m in _given(masks)], torch.add),
            "Adding bool masks counts how many allow a key, and is no longer a bool mask.",
            "Which operator is True only if both sides are?",
        ),
        Mistake(
            "float_product",
            lambda *masks: _fold([m.float() for m in _given(masks)], torch.mul),
            "The product has the right pattern, but holds the numbers 0 and 1 instead of bool.",
            "Is there an operator for bool tensors that needs no conversion?",
        ),
        Mistake(
            "integer_product",
            lambda *masks: _fold([m.int() for m in _given(masks)], torch.mul),
            "The product has the right pattern, but holds whole numbers instead of bool.",
            "Is there an operator for bool tensors that needs no conversion?",
        ),
        Mistake(
            "none_crashes",
            lambda *masks: _fold_with_none(masks, torch.logical_and),
            "Two masks combine well, but None makes your function fail. None stands for "
            "'everything is allowed'.",
            "How can you leave out the masks that are None before you combine the rest?",
        ),
        Mistake(
            "python_and",
            lambda *masks: _fold(masks, lambda a, b: a and b),
            "Python's `and` asks for the truth of a whole tensor, which has none. It does not "
            "work element by element.",
            "Which operator does what `and` means, for each element?",
        ),
        Mistake(
            "only_two_masks",
            lambda *masks: _fold(_given(masks)[:2], torch.logical_and),
            "Only the first two masks count.",
            "How many masks may be given?",
        ),
        Mistake(
            "last_mask_wins",
            lambda *masks: (_given(masks) or [None])[-1],
            "Only the last mask counts.",
            "Where do the earlier masks enter the result?",
        ),
        Mistake(
            "first_mask_wins",
            lambda *masks: (_given(masks) or [None])[0],
            "Only the first mask counts.",
            "Where do the later masks enter the result?",
        ),
        Mistake(
            "first_mask_overwritten",
            _in_place_and,
            "The result is right, but `&=` writes it into the caller's first mask.",
            "What is the difference between `a &= b` and `a = a & b`?",
        ),
        Mistake(
            "all_true_for_none",
            _all_true_for_none,
            "With no mask given your function makes one up; it must return None.",
            "Which shape would that mask have?",
        ),
    ),
    hints=(
        "A key may be attended if the first mask allows it AND the second does AND ...; None has "
        "no objections.",
        "Start with None. For each mask that is not None: take it if there is nothing yet, "
        "otherwise combine it with what you have, element by element.",
        "combined = None\nfor mask in masks:\n    if mask is not None:\n"
        "        combined = mask if combined is None else ...\nreturn combined",
    ),
)


# ---------------------------------------------------------------- additive_mask
def _additive_mask_probes(rng):
    drawn = rng.random((3, 5)) < 0.5
    drawn[0, 0], drawn[2, 4] = True, False
    small = tensor([[True, True, False], [True, False, False]])

    def probe(name, says, mask, dtype, part="values"):
        return Probe(name, says, part, args={"mask": mask, "dtype": Dtype(dtype)})

    return [
        probe("small", "Kept keys get 0, dropped keys get -inf.", small, "float64"),
        probe("random", "Kept keys get 0, dropped keys get -inf.", tensor(drawn), "float64"),
        probe(
            "four_axes",
            "Any shape must work, and a non-contiguous mask.",
            tensor(rng.random((2, 2, 3, 4)) < 0.5, strided=True),
            "float64",
        ),
        probe("float32", "The result must have the dtype asked for.", small, "float32"),
        probe(
            "float16",
            "In float16 dropped keys get -inf too; -1e9 does not exist there.",
            small,
            "float16",
            "edges",
        ),
        probe("bfloat16", "In bfloat16 dropped keys get -inf.", small, "bfloat16", "edges"),
        probe(
            "all_kept",
            "With every key kept there is nothing but 0.",
            tensor([[True, True]]),
            "float64",
            "edges",
        ),
        probe(
            "all_dropped",
            "With every key dropped all are -inf.",
            tensor([[False, False]]),
            "float64",
            "edges",
        ),
    ]


def _filled(mask, dtype, value):
    zeros = torch.zeros(mask.shape, dtype=dtype)
    return zeros.masked_fill(~mask, max(value, torch.finfo(dtype).min) if value > -1e8 else value)


def _like_float32(mask, dtype):
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


ADDITIVE_MASK = Exercise(
    name="additive_mask",
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("numbers", "tensor", "float", ("the shape of mask",)),),
    probes=_additive_mask_probes,
    oracle=oracle.additive_mask,
    mistakes=(
        Mistake(
            "infinity_times_zero",
            lambda mask, dtype: (1 - mask.to(dtype)) * -math.inf,
            "Your result is NaN where a key is kept: 0 * inf is not 0.",
            "Which function chooses between two values without multiplying?",
        ),
        Mistake(
            "inverted",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf),
            "The mask is upside down: -inf stands where a key is kept.",
            "`masked_fill` fills where its mask is True. What does True mean here?",
        ),
        Mistake(
            "inverted_with_nan",
            lambda mask, dtype: mask.to(dtype) * -math.inf,
            "Kept keys get -inf and dropped keys NaN (0 * inf): upside down, and multiplied.",
            "Which function chooses between two values without multiplying?",
        ),
        Mistake(
            "finite_fill_overflows",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -1e9),
            "-1e9 is only relatively small, and float16 has no such number (it ends at -65504).",
            "Which value is smaller than every score, in every dtype?",
        ),
        Mistake(
            "finite_fill",
            lambda mask, dtype: torch.where(mask, 0.0, -1e9).to(dtype),
            "-1e9 is only relatively small: next to a score of -1e9 it drops nothing.",
            "Which value is smaller than every score, in every dtype?",
        ),
        Mistake(
            "finite_fill_1e6",
            lambda mask, dtype: torch.where(mask, 0.0, -1e6).to(dtype),
            "-1e6 is only relatively small: next to a score of -1e6 it drops nothing.",
            "Which value is smaller than every score, in every dtype?",
        ),
        Mistake(
            "smallest_finite_number",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(
                ~mask, torch.finfo(dtype).min
            ),
            "The smallest finite number is asked for nowhere here: dropped keys get -inf.",
            "What is `finfo.min` plus a negative score?",
        ),
        Mistake(
            "ones_where_kept",
            lambda mask, dtype: torch.ones(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf),
            "Kept keys get 1: harmless for the softmax, but 0 is what leaves a score as it is.",
            "Which number changes nothing when it is added?",
        ),
        Mistake(
            "zero_one_numbers",
            lambda mask, dtype: mask.to(dtype),
            "These are the numbers 1 and 0. Added to the scores they drop nothing: exp(s + 0) is "
            "not 0.",
            "What must be added to a score so that its exponential is 0?",
        ),
        Mistake(
            "integer_result",
            lambda mask, dtype: torch.where(mask, 0, -(10**9)),
            "The result holds whole numbers, and integers have no -inf.",
            "Which dtype was asked for?",
        ),
        Mistake(
            "dtype_ignored",
            _like_float32,
            "The numbers are right, but they are always float32 instead of the dtype asked for.",
            "Where does `dtype` enter?",
        ),
        Mistake(
            "positive_infinity",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, math.inf),
            "The sign is wrong: +inf gives a dropped key all the weight.",
            "What is exp of the number you add?",
        ),
    ),
    hints=(
        "Adding 0 leaves a score as it is. What can you add so that exp(score + it) is exactly 0?",
        "Start from zeros of the right shape and dtype and fill -inf where the mask is False.",
        "zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)\n"
        "return zeros.masked_fill(..., -math.inf)",
    ),
)


# ---------------------------------------------------------------- masked_softmax
def _masked_softmax_probes(rng):
    def normal(*shape, **options):
        return tensor(rng.normal(0, 1.3, shape), **options)

    def lengths(shape, largest):
        drawn = rng.integers(1, largest + 1, shape)
        while len(np.unique(drawn)) < min(2, drawn.size):
            drawn = rng.integers(1, largest + 1, shape)
        return tensor(drawn)

    def mask(*shape):
        drawn = rng.random(shape) < 0.55
        drawn[..., int(rng.integers(shape[-1]))] = True
        drawn[..., 0, 0] = False
        drawn[..., 0, -1] = True
        return tensor(drawn)

    sizes = [int(size) for size in rng.choice([3, 4, 5, 6, 7], 3, replace=False)]
    tiny = tensor(np.array([[[0.5, 1.5, 1.0], [2.0, 0.0, -1.0]], [[1.0, 0.2, 0.7], [0, 1.0, 3]]]))
    empty_mask = np.array([[True, False, True], [False, False, False]])
    return [
        Probe(
            "lengths_per_item",
            "Keys beyond an item's length get weight 0, the others sum to 1.",
            args={"scores": tiny, "valid_lens": tensor([2, 3])},
        ),
        Probe(
            "no_mask",
            "Without lengths and mask it is a plain softmax over the keys.",
            args={"scores": normal(2, 3, 5)},
        ),
        Probe(
            "random_lengths_per_item",
            "One length an item holds for every query of that item.",
            args={"scores": normal(4, 3, 5), "valid_lens": tensor([1, 4, 2, 5])},
        ),
        Probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            args={"scores": normal(2, 3, 5), "valid_lens": tensor([[1, 4, 2], [3, 5, 2]])},
        ),
        Probe(
            "lengths_per_query_square",
            "Lengths of shape (batch, num_queries) belong to queries, also if batch = num_queries.",
            args={"scores": normal(3, 3, 4), "valid_lens": lengths((3, 3), 4)},
        ),
        Probe(
            "mask_only",
            "A bool mask: True = may attend, False gets weight 0.",
            args={"scores": normal(3, 5)},
            kwargs={"mask": mask(3, 5)},
        ),
        Probe(
            "mask_shared_by_batch",
            "A (num_queries, num_keys) mask holds for every item of the batch.",
            args={"scores": normal(2, 3, 5, strided=True)},
            kwargs={"mask": mask(3, 5)},
        ),
        Probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            args={"scores": normal(2, 3, 5), "valid_lens": tensor([3, 4])},
            kwargs={"mask": tensor(np.tril(np.ones((3, 5), dtype=bool), 1))},
        ),
        Probe(
            "mask_per_item",
            "A (batch, num_queries, num_keys) mask holds for each item on its own.",
            args={"scores": normal(2, 3, 5)},
            kwargs={"mask": tensor(mask(2, 3, 5).data, strided=True)},
        ),
        Probe(
            "mask_of_padding",
            "A (batch, 1, num_keys) mask holds for every query of an item.",
            args={"scores": normal(2, 3, 5)},
            kwargs={"mask": mask(2, 1, 5)},
        ),
        Probe(
            "mask_of_keys",
            "A (num_keys,) mask holds for every query of every item.",
            args={"scores": normal(2, 5, 5)},
            kwargs={"mask": tensor(rng.permutation([True, True, False, True, False]))},
        ),
        Probe(
            "query_lengths_and_mask",
            "With lengths (batch, num_queries) and a mask for each item, both count.",
            args={
                "scores": normal(2, 3, 5),
                "valid_lens": tensor([[3, 5, 4], [4, 2, 5]], strided=True),
            },
            kwargs={"mask": tensor(_one_dropped(rng, 2, 3, 5))},
        ),
        Probe(
            "other_sizes",
            "Any sizes must work.",
            args={
                "scores": normal(*sizes),
                "valid_lens": tensor(rng.integers(2, sizes[-1], sizes[0])),
            },
            kwargs={"mask": tensor(_one_dropped(rng, *sizes[1:]))},
        ),
        Probe(
            "heads_mask_per_item",
            "With scores (batch, heads, n, m), a mask (batch, 1, n, m) holds for every head.",
            args={"scores": normal(2, 3, 4, 5)},
            kwargs={"mask": mask(2, 1, 4, 5)},
        ),
        Probe(
            "heads_mask_per_head",
            "With scores (batch, heads, n, m), a mask (batch, heads, n, m) is taken as it is.",
            args={"scores": normal(2, 3, 4, 5)},
            kwargs={"mask": mask(2, 3, 4, 5)},
        ),
        Probe(
            "heads_lengths_and_mask",
            "With heads, lengths (batch,) and a mask, a key must be allowed by both.",
            args={"scores": normal(2, 3, 4, 5), "valid_lens": tensor([3, 5])},
            kwargs={"mask": tensor(_one_dropped(rng, 2, 1, 4, 5))},
        ),
        Probe(
            "heads_query_lengths_and_mask",
            "With heads, lengths (batch, num_queries) and a mask, a key must be allowed by both.",
            args={"scores": normal(2, 4, 3, 5), "valid_lens": tensor([[3, 5, 4], [4, 3, 5]])},
            kwargs={"mask": tensor(_one_dropped(rng, 3, 5))},
        ),
        Probe(
            "heads_lengths_per_item",
            "With scores (batch, heads, n, m), lengths (batch,) hold for every head.",
            args={"scores": normal(2, 3, 4, 5), "valid_lens": tensor([2, 4])},
        ),
        Probe(
            "heads_lengths_per_query",
            "With scores (batch, heads, n, m), lengths (batch, n) hold for every head.",
            args={"scores": normal(2, 4, 3, 5), "valid_lens": tensor([[1, 3, 5], [4, 2, 3]])},
        ),
        Probe(
            "five_axes",
            "Any number of leading axes must work; lengths belong to the first one.",
            part="edges",
            args={"scores": normal(2, 1, 3, 2, 4), "valid_lens": tensor([3, 2])},
            kwargs={"mask": tensor(_one_dropped(rng, 2, 4))},
        ),
        Probe(
            "as_many_items_as_heads",
            "Lengths (batch,) belong to items, also if there are as many heads and queries.",
            part="edges",
            args={"scores": normal(3, 3, 3, 4), "valid_lens": tensor(rng.permutation([1, 2, 3]))},
        ),
        Probe(
            "as_many_heads_as_queries",
            "Lengths (batch, num_queries) belong to queries, also if there are as many heads.",
            part="edges",
            args={"scores": normal(2, 3, 3, 4), "valid_lens": tensor([[1, 3, 2], [4, 2, 3]])},
        ),
        Probe(
            "mask_of_queries",
            "A (num_queries, 1) mask keeps or drops whole rows.",
            part="edges",
            args={"scores": normal(2, 3, 4)},
            kwargs={"mask": tensor([[True], [False], [True]])},
        ),
        Probe(
            "emptied_by_both",
            "Lengths and mask may leave keys each, and none together: that row is 0 as well.",
            part="edges",
            args={"scores": normal(2, 2, 3), "valid_lens": tensor([1, 3])},
            kwargs={"mask": tensor([[False, True, True], [True, False, True]])},
        ),
        Probe(
            "int32_lengths",
            "Lengths may be int32 as well as int64.",
            part="edges",
            args={
                "scores": normal(2, 3, 5),
                "valid_lens": tensor(np.array([4, 2], dtype=np.int32)),
            },
        ),
        Probe(
            "float32",
            "Scores in float32 must give weights in float32, with and without an empty row.",
            part="edges",
            args={
                "scores": tensor(rng.normal(0, 1.3, (2, 3, 4)).astype(np.float32)),
                "valid_lens": tensor([[2, 0, 3], [1, 4, 0]]),
            },
        ),
        Probe(
            "between_other_calls",
            "Each call counts on its own: other calls with the same shapes change nothing.",
            part="edges",
            args={"scores": normal(2, 3, 4), "valid_lens": tensor([2, 3])},
            kwargs={"mask": tensor(_one_dropped(rng, 3, 4))},
            scenario="between_calls",
        ),
        Probe(
            "length_zero",
            "An item without any real key gets weights 0 in all its rows, not NaN, not 1/m.",
            part="edges",
            args={"scores": normal(2, 2, 3), "valid_lens": tensor([0, 2])},
        ),
        Probe(
            "empty_row",
            "A query that may attend to nothing gets weights 0.",
            part="edges",
            args={"scores": normal(2, 3)},
            kwargs={"mask": tensor(empty_mask)},
        ),
        Probe(
            "scores_near_minus_1e6",
            "Scores may be very negative themselves: a key filled with -1e6 must not win.",
            part="edges",
            args={
                "scores": tensor([[[-1e6, -1e6 - 1.0, -1e6 + 2.0, -1e6]]]),
                "valid_lens": tensor([2]),
            },
        ),
        Probe(
            "scores_near_minus_1e9",
            "Scores may be very negative themselves: a key filled with -1e9 or -1e12 must not win.",
            part="edges",
            args={"scores": tensor([[[-2e15, -2e15, -2e15]]]), "valid_lens": tensor([1])},
        ),
        Probe(
            "large_scores",
            "Large scores must not overflow.",
            part="edges",
            args={
                "scores": tensor([[[1000.0, 1002.0, 1001.0, 1400.0]]]),
                "valid_lens": tensor([3]),
            },
        ),
        Probe(
            "low_allowed_scores",
            "An allowed key far below a dropped one still gets its weight: what counts is the "
            "distance to the largest allowed score.",
            part="edges",
            args={"scores": tensor([[-300.0, -301.0, 300.0], [0.5, 0.1, 2.0]])},
            kwargs={"mask": tensor([[True, True, False], [True, False, True]])},
        ),
        Probe(
            "full_lengths",
            "Lengths of num_keys drop nothing.",
            part="edges",
            args={"scores": normal(2, 3, 4), "valid_lens": tensor([4, 4])},
        ),
        Probe(
            "gradient",
            "The gradient of the scores must be that of the formula, 0 for dropped keys.",
            part="gradients",
            args={"scores": normal(2, 3, 4, requires_grad=True), "valid_lens": tensor([2, 3])},
            grad_outputs=rng.normal(0, 1, (2, 3, 4)),
        ),
        Probe(
            "gradient_with_empty_row",
            "An empty row has gradient 0; it must not turn the other gradients into NaN.",
            part="gradients",
            args={"scores": normal(2, 3, requires_grad=True)},
            kwargs={"mask": tensor(empty_mask)},
            grad_outputs=rng.normal(0, 1, (2, 3)),
        ),
        Probe(
            "gradient_without_mask",
            "Without a mask the gradient is that of the softmax.",
            part="gradients",
            args={"scores": normal(2, 3, requires_grad=True)},
            grad_outputs=rng.normal(0, 1, (2, 3)),
        ),
    ]


def _one_dropped(rng, *shape):
    """A mask in which every row drops one of the first two keys, and only that."""
    allowed = np.ones(shape, dtype=bool)
    for row in np.ndindex(shape[:-1]):
        allowed[row][int(rng.integers(2))] = False
    return allowed


def _allowed(scores, valid_lens, mask):
    allowed = torch.ones(scores.shape, dtype=torch.bool)
    if valid_lens is not None:
        real = torch.arange(scores.shape[-1]) < valid_lens[..., None]
        while real.dim() < scores.dim():
            real = real.unsqueeze(1) if valid_lens.dim() == 2 else real.unsqueeze(-2)
        allowed = allowed & real
    return allowed if mask is None else allowed & mask


def _right(scores, allowed):
    empty = ~allowed.any(-1, keepdim=True)
    filled = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
    return torch.softmax(filled, -1).masked_fill(empty, 0.0)


def _wrong(change=None, dim=-1, invert=False):
    """A wrong masked softmax: `change(scores, allowed)` replaces masking and softmax."""

    def model(scores, valid_lens=None, mask=None):
        allowed = _allowed(scores, valid_lens, mask)
        if invert and (valid_lens is not None or mask is not None):
            allowed = ~allowed
        if change is not None:
            return change(scores, allowed)
        return torch.softmax(scores.masked_fill(~allowed, -math.inf), dim).nan_to_num(0.0)

    return model


def _fill(value=None, zero_empty=False):
    """A finite fill instead of -inf: the smallest number of the dtype if none is given."""

    def change(scores, allowed):
        number = torch.finfo(scores.dtype).min if value is None else value
        weights = torch.softmax(scores.masked_fill(~allowed, number), -1)
        empty = ~allowed.any(-1, keepdim=True)
        return weights.masked_fill(empty, 0.0) if zero_empty else weights

    return _wrong(change)


def _replace_lengths(read):
    def model(scores, valid_lens=None, mask=None):
        allowed = _allowed(scores, None, mask)
        if valid_lens is not None:
            allowed = allowed & read(scores, valid_lens)
        return _right(scores, allowed)

    return model


def _tiled_lengths(scores, valid_lens):
    if valid_lens.dim() != 1:
        return _allowed(scores, valid_lens, None)
    rows = scores[..., 0].numel()
    flat = valid_lens.repeat(rows // len(valid_lens)).reshape(scores.shape[:-1])
    return torch.arange(scores.shape[-1]) < flat[..., None]


def _first_column_of_lengths(scores, valid_lens):
    if valid_lens.dim() == 2:
        valid_lens = valid_lens[:, 0]
    return _allowed(scores, valid_lens, None)


def _lengths_shifted(by):
    return _replace_lengths(lambda scores, valid_lens: _allowed(scores, valid_lens + by, None))


def _mutating(scores, valid_lens=None, mask=None):
    allowed = _allowed(scores, valid_lens, mask)
    if valid_lens is not None or mask is not None:
        scores[~allowed] = -math.inf
    return torch.softmax(scores, -1).nan_to_num(0.0)


def _textbook(scores, valid_lens=None, mask=None):
    if valid_lens is not None or mask is not None:
        scores[~_allowed(scores, valid_lens, mask)] = -1e6
    return torch.softmax(scores, -1)


def _none_crashes(scores, valid_lens=None, mask=None):
    valid_lens.dim()
    return _right(scores, _allowed(scores, valid_lens, mask))


def _lengths_or_mask(scores, valid_lens=None, mask=None):
    return _right(scores, _allowed(scores, None if mask is not None else valid_lens, mask))


def _either(scores, valid_lens=None, mask=None):
    if valid_lens is None or mask is None:
        return _right(scores, _allowed(scores, valid_lens, mask))
    return _right(scores, _allowed(scores, valid_lens, None) | mask)


def _cut(scores, valid_lens=None, mask=None):
    return _right(scores.detach(), _allowed(scores, valid_lens, mask))


def _mask_added(scores, valid_lens=None, mask=None):
    if valid_lens is None and mask is None:
        return torch.softmax(scores, -1)
    return torch.softmax(scores + _allowed(scores, valid_lens, mask).to(scores.dtype), -1)


def _exp_sum(scores, allowed):
    e = torch.exp(scores) * allowed
    return e / e.sum(-1, keepdim=True)


def _exp_sum_zero(scores, allowed):
    return _exp_sum(scores, allowed).nan_to_num(0.0)


def _softmax_of_sum(scores, allowed):
    added = torch.where(allowed, 0.0, -math.inf).to(scores.dtype)
    return torch.softmax(scores + added, -1).masked_fill(~allowed, 0.0)


def _shifted_by_all(scores, allowed):
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * allowed
    return e / e.sum(-1, keepdim=True).clamp(min=1e-12)


def _mask_overwritten(scores, valid_lens=None, mask=None):
    allowed = _allowed(scores, valid_lens, mask)
    if mask is not None and valid_lens is not None and mask.shape == scores.shape:
        mask &= allowed
    return _right(scores, allowed)


def _positions_below_lengths(scores, valid_lens, axis):
    """Bool tensor: is the number along `axis` (queries or keys) below the item's length?"""
    shape = [1] * scores.dim()
    shape[axis] = -1
    lengths = valid_lens.reshape(len(valid_lens), *[1] * (scores.dim() - 1))
    return torch.arange(scores.shape[axis]).reshape(shape) < lengths


def _lengths_on_queries(scores, valid_lens):
    if valid_lens.dim() == 2:
        return _allowed(scores, valid_lens, None)
    return _positions_below_lengths(scores, valid_lens, -2)


def _padding_queries_dropped(scores, valid_lens=None, mask=None):
    weights = _right(scores, _allowed(scores, valid_lens, mask))
    if valid_lens is None or valid_lens.dim() == 2:
        return weights
    return weights * _positions_below_lengths(scores, valid_lens, -2)


def _always_causal(scores, allowed):
    return _right(scores, allowed & torch.ones(scores.shape[-2:], dtype=torch.bool).tril())


def _three_axes_only(scores, valid_lens=None, mask=None):
    _, _, _ = scores.shape
    return _right(scores, _allowed(scores, valid_lens, mask))


def _rows_sum(probe, outputs):
    weights = outputs.data
    if weights is None or weights.ndim == 0:
        return None
    sums = weights.sum(-1)
    if np.isnan(sums).any():
        return None  # said elsewhere
    wrong = ~(np.isclose(sums, 1.0, atol=1e-4) | np.isclose(sums, 0.0, atol=1e-4))
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"The row of weights at {list(index)} sums to {sums[index]:.3f} over the keys, not to 1."


def _scores_and_allowed(probe):
    inputs = {n: getattr(a, "data", a) for n, a in probe.inputs().items()}
    scores = inputs["scores"]
    return scores, oracle.allowed_keys(scores.shape, inputs.get("valid_lens"), inputs.get("mask"))


def _dropped_keys(probe, outputs):
    _, allowed = _scores_and_allowed(probe)
    leaked = np.where(allowed, 0.0, np.abs(outputs.data))
    if not (leaked > 1e-6).any():
        return None
    index = tuple(int(i) for i in np.argwhere(leaked > 1e-6)[0])
    return (
        f"At {list(index)} (query {index[-2]}, key {index[-1]}) your weight is "
        f"{outputs.data[index]:.3f}, but this key may not be attended."
    )


def _missing_keys(probe, outputs):
    """A key that should have visible weight has none."""
    scores, allowed = _scores_and_allowed(probe)
    best = np.where(allowed, scores, -np.inf).max(-1, keepdims=True)
    missing = allowed & (scores > best - 6) & (np.abs(outputs.data) < 1e-6)
    if not missing.any():
        return None
    index = tuple(int(i) for i in np.argwhere(missing)[0])
    return (
        f"At {list(index)} (query {index[-2]}, key {index[-1]}) your weight is 0, but this key may "
        "be attended."
    )


def _ratios(probe, outputs):
    """Two allowed keys of a row whose weights do not stand as the exponentials of their scores."""
    scores, allowed = _scores_and_allowed(probe)
    for row in np.ndindex(scores.shape[:-1]):
        keys = np.flatnonzero(allowed[row] & (np.abs(scores[row]) < 6))
        for a, b in itertools.pairwise(keys):
            ours, yours = scores[row][[a, b]], outputs.data[row][[a, b]]
            ratio = float(np.exp(ours[1] - ours[0]))
            if yours[0] > 1e-6 and abs(yours[1] / yours[0] - ratio) > 1e-3 * ratio:
                return (
                    f"In row {list(row)}, keys {a} and {b} have the scores {ours[0]:.3f} and "
                    f"{ours[1]:.3f}, so their weights must stand as exp of these, 1 to "
                    f"{ratio:.3f}; yours stand 1 to {yours[1] / yours[0]:.3f}."
                )
    return None


MASKED_SOFTMAX = Exercise(
    name="masked_softmax",
    points=6,
    minutes=30,
    difficulty=3,
    returns=(Returned("weights", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=_masked_softmax_probes,
    oracle=oracle.masked_softmax,
    builds_on=("length_mask", "combine_masks", "additive_mask"),
    mistakes=(
        Mistake(
            "mask_ignored",
            _wrong(lambda scores, allowed: torch.softmax(scores, -1)),
            "Neither the lengths nor the mask changes your weights: dropped keys get weight too.",
            "Where do `valid_lens` and `mask` enter your computation?",
        ),
        Mistake(
            "lengths_ignored",
            lambda scores, valid_lens=None, mask=None: _right(scores, _allowed(scores, None, mask)),
            "The mask works, the lengths change nothing.",
            "Where does `valid_lens` enter your computation?",
        ),
        Mistake(
            "bool_mask_ignored",
            lambda scores, valid_lens=None, mask=None: _right(
                scores, _allowed(scores, valid_lens, None)
            ),
            "The lengths work, the bool mask changes nothing.",
            "Where does `mask` enter your computation?",
        ),
        Mistake(
            "only_mask_if_both",
            _lengths_or_mask,
            "With lengths and a mask both given, only the mask counts.",
            "Which keys must be dropped when both are given?",
        ),
        Mistake(
            "only_lengths_if_both",
            lambda scores, valid_lens=None, mask=None: _right(
                scores, _allowed(scores, valid_lens, None if valid_lens is not None else mask)
            ),
            "With lengths and a mask both given, only the lengths count.",
            "Which keys must be dropped when both are given?",
        ),
        Mistake(
            "either_is_enough",
            _either,
            "With lengths and a mask both given, you allow a key that either of them allows.",
            "A padded key in the past: may it be attended?",
        ),
        Mistake(
            "inverted",
            _wrong(invert=True),
            "Your mask is upside down: the keys that should be dropped get all the weight.",
            "True means 'may attend'. Which keys does your code fill?",
        ),
        Mistake(
            "filled_with_zero",
            _fill(0.0),
            "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "zero_after_softmax",
            _wrong(lambda scores, allowed: torch.softmax(scores, -1) * allowed),
            "You set weights to 0 after the softmax, so what is left no longer sums to 1.",
            "Does masking before the softmax need a second normalisation?",
        ),
        Mistake(
            "over_queries",
            _wrong(dim=-2),
            "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
            "Which axis holds the keys?",
        ),
        Mistake(
            "over_queries_and_mask_ignored",
            _wrong(lambda scores, allowed: torch.softmax(scores, -2)),
            "Two things: your softmax runs over the queries (the columns sum to 1), and neither "
            "the lengths nor the mask changes anything.",
            "Which axis holds the keys, and where do `valid_lens` and `mask` enter?",
        ),
        Mistake(
            "over_batch",
            _wrong(dim=0),
            "Your softmax runs over the first axis.",
            "Which axis holds the keys?",
        ),
        Mistake(
            "zero_one_mask_added",
            _mask_added,
            "You add the mask as the numbers 0 and 1. That raises the allowed scores by 1 and "
            "drops nothing.",
            "What must be added to a score so that its exponential is 0?",
        ),
        Mistake(
            "lengths_tiled",
            _replace_lengths(_tiled_lengths),
            "The lengths are handed out in the wrong order: rows 0, 1, 2, ... take the lengths of "
            "items 0, 1, 0, 1, ... in turn.",
            "What is the difference between `repeat` and `repeat_interleave`?",
        ),
        Mistake(
            "query_lengths_read_as_item_lengths",
            _replace_lengths(_first_column_of_lengths),
            "With lengths of shape (batch, num_queries) every query of an item gets the length of "
            "its first query.",
            "Which axis of `valid_lens` belongs to the queries?",
        ),
        Mistake(
            "one_key_too_many",
            _lengths_shifted(1),
            "One key too many is kept: length 2 keeps keys 0, 1 and 2.",
            "Which is the last real key of an item of length 2?",
        ),
        Mistake(
            "one_key_too_few",
            _lengths_shifted(-1),
            "One key too few is kept: length 2 keeps key 0 only.",
            "What number does the first key have?",
        ),
        Mistake(
            "lengths_required",
            _none_crashes,
            "Your function fails when no lengths are given; `valid_lens=None` means that all "
            "keys are real.",
            "Which line uses `valid_lens` without asking whether it is None?",
        ),
        Mistake(
            "three_axes_only",
            _three_axes_only,
            "Scores of shape (batch, n, m) work; two or four axes do not.",
            "Which line fixes the number of axes?",
        ),
        Mistake(
            "scores_overwritten",
            _mutating,
            "You write -inf into the caller's scores, which also fails for tensors that need a "
            "gradient.",
            "What is the difference between `scores[~mask] = value` and `masked_fill`?",
        ),
        Mistake(
            "scores_overwritten_with_1e6",
            _textbook,
            "You write -1e6 into the caller's scores: the caller's tensor changes, and -1e6 is "
            "only relatively small.",
            "Which function fills a copy, and with which value?",
        ),
        Mistake(
            "empty_row_nan",
            _wrong(
                lambda scores, allowed: torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)
            ),
            "A row in which no key is allowed becomes NaN: it is 0 / 0.",
            "What should a query that may attend to nothing receive?",
        ),
        Mistake(
            "leaks_1e6",
            _fill(-1e6),
            "-1e6 is only relatively small: in an empty row every key gets weight 1/m, and scores "
            "near -1e6 lose to the filled ones.",
            "Which value is smaller than every score? And what then happens in an empty row?",
        ),
        Mistake(
            "leaks_1e9",
            _fill(-1e9),
            "-1e9 is only relatively small: in an empty row every key gets weight 1/m, and scores "
            "near -1e9 lose to the filled ones.",
            "Which value is smaller than every score? And what then happens in an empty row?",
        ),
        Mistake(
            "leaks_1e6_only",
            _fill(-1e6, zero_empty=True),
            "-1e6 is only relatively small: scores near -1e6 lose to the filled ones.",
            "Which value is smaller than every score?",
        ),
        Mistake(
            "leaks_1e9_only",
            _fill(-1e9, zero_empty=True),
            "-1e9 is only relatively small: scores near -1e9 lose to the filled ones.",
            "Which value is smaller than every score?",
        ),
        Mistake(
            "empty_row_uniform",
            _fill(),
            "In a row in which no key is allowed every key gets weight 1/m.",
            "Which rows have no allowed key, and what should they receive?",
        ),
        Mistake(
            "empty_row_gradient_nan",
            _wrong(_softmax_of_sum),
            "The weights are right, but the gradient of an empty row is NaN: the softmax saw "
            "nothing but -inf, and backward runs through it.",
            "Can the empty rows be given harmless scores before the softmax?",
        ),
        Mistake(
            "no_maximum_subtracted",
            _wrong(_exp_sum),
            "exp overflows for large scores, and 0 / 0 gives NaN where it underflows or a row is "
            "empty.",
            "What does `torch.softmax` subtract before it takes exp?",
        ),
        Mistake(
            "no_maximum_subtracted_zeros",
            _wrong(_exp_sum_zero),
            "exp overflows for large scores and underflows for very negative ones.",
            "What does `torch.softmax` subtract before it takes exp?",
        ),
        Mistake(
            "swallowed_by_a_small_number",
            _wrong(_shifted_by_all),
            "The small number that guards your division against 0 swallows a row whose allowed "
            "scores lie far below a dropped one: its weights become 0.",
            "The maximum of which scores makes the sum at least 1, except in an empty row?",
        ),
        Mistake(
            "mask_overwritten",
            _mask_overwritten,
            "The weights are right, but `&=` writes the lengths into the caller's mask.",
            "What is the difference between `a &= b` and `a = a & b`?",
        ),
        Mistake(
            "lengths_on_queries",
            _replace_lengths(_lengths_on_queries),
            "Your lengths drop whole queries (rows); they say how many keys (columns) are real.",
            "Which axis do you compare with the lengths?",
        ),
        Mistake(
            "padding_queries_dropped",
            _padding_queries_dropped,
            "The keys are right, but queries beyond the length get weights 0 as well. Lengths "
            "count keys; there may be more queries than keys.",
            "What says a length about the number of queries?",
        ),
        Mistake(
            "always_causal",
            _wrong(_always_causal),
            "You drop later keys even if nobody asks for it: the causal mask is one that a caller "
            "may pass as `mask`.",
            "Which keys may a query attend to when neither lengths nor mask are given?",
        ),
        Mistake(
            "gradient_cut",
            _cut,
            "The weights are right, but no gradient reaches the scores.",
            "Which step leaves the graph (`.detach()`, `.data`, `.item()`, `torch.no_grad`)?",
        ),
    ),
    properties=(
        Property("rows_do_not_sum_to_one", _rows_sum, "Over which axis do you normalise?"),
        Property(
            "dropped_key_has_weight",
            _dropped_keys,
            "Did you mask before the softmax, and with what value?",
        ),
        Property(
            "allowed_key_has_no_weight",
            _missing_keys,
            "Which step drops this key?",
        ),
        Property(
            "not_exponential",
            _ratios,
            "Which function turns the scores into weights, and what happens to them before?",
        ),
    ),
    hints=(
        "Decide first which keys each query may attend to (one bool tensor of the shape of the "
        "scores, or broadcastable to it), then take a softmax over only those.",
        "Turn `valid_lens` into a bool mask, give it axes for heads and queries, AND it with "
        "`mask`. Fill dropped scores with -inf, but give rows without any allowed key harmless "
        "scores first and zero them after the softmax, so that their gradient is 0, not NaN.",
        "empty = ~mask.any(dim=-1, keepdim=True)\n"
        "scores = scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)\n"
        "return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)",
    ),
)

EXERCISES = (
    STABLE_SOFTMAX,
    LENGTH_MASK,
    CAUSAL_MASK,
    COMBINE_MASKS,
    ADDITIVE_MASK,
    MASKED_SOFTMAX,
)
