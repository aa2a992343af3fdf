"""`masked_softmax`: weights over the keys that may be attended to; empty rows give zeros."""

import functools
from collections.abc import Callable

import numpy as np
from torch import Tensor

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.mistakes import Row, filled, known, untouched
from course_lib.exercises._attention.properties import RETURNED
from course_lib.exercises._attention.steps import Softmax
from course_lib.reference import masked_softmax as oracle


def case(name, says, scores, lens=None, mask=None, part="values", **options) -> Probe:
    """A probe of scores, lengths and a mask."""
    args = {"scores": scores} | ({} if lens is None else {"valid_lens": _array(lens)})
    kwargs = {} if mask is None else {"mask": _array(mask)}
    return Probe(name, says, part, args=args, kwargs=kwargs, **options)


def _array(given) -> Array:
    return given if isinstance(given, Array) else tensor(given)


def _normal(rng) -> Callable:
    return lambda *shape, **options: tensor(rng.normal(0, 1.3, shape), **options)


def _mask(rng, *shape) -> np.ndarray:
    drawn = rng.random(shape) < 0.55
    drawn[..., int(rng.integers(shape[-1]))] = True
    drawn[..., 0, 0] = False
    drawn[..., 0, -1] = True
    return drawn


def _one_dropped(rng, *shape) -> np.ndarray:
    """A mask in which every row drops one of the first two keys, and only that."""
    allowed = np.ones(shape, dtype=bool)
    for row in np.ndindex(shape[:-1]):
        allowed[row][int(rng.integers(2))] = False
    return allowed


def _lengths(rng, shape, largest) -> np.ndarray:
    drawn = rng.integers(1, largest + 1, shape)
    return drawn if len(set(drawn.flat)) > 1 else _lengths(rng, shape, largest)


_BY_HAND = tensor([[[0.0, np.log(3), 5.0]]])
_TINY = tensor([[[0.5, 1.5, 1.0], [2.0, 0.0, -1.0]], [[1.0, 0.2, 0.7], [0.0, 1.0, 3.0]]])
_EMPTY = np.array([[True, False, True], [False, False, False]])
_PER_ITEM = "Keys beyond an item's length get weight 0; the others sum to 1."
_BOTH = "With lengths and a mask, a key must be allowed by both."


def _values(rng) -> list[Probe]:
    normal = _normal(rng)
    sizes = [int(size) for size in rng.choice([3, 4, 5, 6, 7], 3, replace=False)]
    return [
        case("worked_number", _PER_ITEM, _BY_HAND, [2]),
        case("lengths_per_item", _PER_ITEM, _TINY, [2, 3]),
        case("no_mask", "Without lengths or a mask it is a plain softmax over the keys.",
             normal(2, 3, 5)),
        case("random_lengths_per_item", "One length per item holds for every query of that item.",
             normal(4, 3, 5), [1, 4, 2, 5]),
        case("lengths_per_query", "Lengths of shape (batch, num_queries) give every query its own "
                                  "length.", normal(2, 3, 5), [[1, 4, 2], [3, 5, 2]]),
        case("lengths_per_query_square", "Lengths of shape (batch, num_queries) belong to "
                                         "queries, even if batch = num_queries.",
             normal(3, 3, 4), _lengths(rng, (3, 3), 4)),
        case("mask_only", "A bool mask: True = may attend, False gets weight 0.",
             normal(3, 5), mask=_mask(rng, 3, 5)),
        case("mask_shared_by_batch", "A (num_queries, num_keys) mask holds for every item of the "
             "batch.", normal(2, 3, 5, strided=True), mask=_mask(rng, 3, 5)),
        case("lengths_and_mask", _BOTH, normal(2, 3, 5), [3, 4],
             np.tril(np.ones((3, 5), dtype=bool), 1)),
        case("mask_per_item", "A (batch, num_queries, num_keys) mask has one matrix for each "
                              "item.",
             normal(2, 3, 5), mask=tensor(_mask(rng, 2, 3, 5), strided=True)),
        case("mask_of_padding", "A (batch, 1, num_keys) mask holds for every query of an item.",
             normal(2, 3, 5), mask=_mask(rng, 2, 1, 5)),
        case("mask_of_keys", "A (num_keys,) mask holds for every query of every item.",
             normal(2, 5, 5), mask=rng.permutation([True, True, False, True, False])),
        case("query_lengths_and_mask", "With lengths (batch, num_queries) and a mask for each "
             "item, both count.", normal(2, 3, 5), tensor([[3, 5, 4], [4, 2, 5]], strided=True),
             _one_dropped(rng, 2, 3, 5)),
        case("other_sizes", "Any sizes must work.", normal(*sizes),
             rng.integers(2, sizes[-1], sizes[0]), _one_dropped(rng, *sizes[1:])),
    ]  # fmt: skip


def _with_heads(rng) -> list[Probe]:
    normal = _normal(rng)
    return [
        case("heads_mask_per_item", "With scores (batch, heads, n, m), a mask (batch, 1, n, m) "
             "holds for every head.", normal(2, 3, 4, 5), mask=_mask(rng, 2, 1, 4, 5)),
        case("heads_mask_per_head", "With scores (batch, heads, n, m), a mask (batch, heads, n, m) "
             "is taken as it is.", normal(2, 3, 4, 5), mask=_mask(rng, 2, 3, 4, 5)),
        case("heads_lengths_and_mask", "With heads, lengths (batch,) and a mask, a key must be "
             "allowed by both.", normal(2, 3, 4, 5), [3, 5], _one_dropped(rng, 2, 1, 4, 5)),
        case("heads_query_lengths_and_mask", "With heads, lengths (batch, num_queries) and a mask, "
             "a key must be allowed by both.", normal(2, 4, 3, 5), [[3, 5, 4], [4, 3, 5]],
             _one_dropped(rng, 3, 5)),
        case("heads_lengths_per_item", "With scores (batch, heads, n, m), lengths (batch,) hold "
             "for every head.", normal(2, 3, 4, 5), [2, 4]),
        case("heads_lengths_per_query", "With scores (batch, heads, n, m), lengths (batch, n) hold "
             "for every head.", normal(2, 4, 3, 5), [[1, 3, 5], [4, 2, 3]]),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    normal, edge = _normal(rng), functools.partial(case, part="edges")
    return [
        edge("one_head", "A head axis of size 1 stays, and lengths belong to the items.",
             normal(2, 1, 3, 4), [2, 4]),
        edge("one_key", "A single key gets weight 1 where it is real and 0 where it is not.",
             normal(2, 3, 1), [1, 0]),
        edge("heads_mask_of_keys", "With heads, a (num_keys,) mask holds for every query of every "
             "head and item.", normal(2, 2, 3, 4),
             mask=rng.permutation([True, True, False, False])),
        edge("as_many_items_as_heads", "Lengths (batch,) belong to items, even if there are as "
                                       "many heads and queries.",
             normal(3, 3, 3, 4), rng.permutation([1, 2, 3])),
        edge("as_many_heads_as_queries", "Lengths (batch, num_queries) belong to queries, even if "
                                         "there are as many heads.",
             normal(2, 3, 3, 4), [[1, 3, 2], [4, 2, 3]]),
        edge("mask_of_queries", "A (num_queries, 1) mask keeps or drops whole rows.",
             normal(2, 3, 4), mask=[[True], [False], [True]]),
        edge("emptied_by_both", "Lengths and mask may each leave keys but together leave none: "
                                "that row is 0 too.",
             normal(2, 2, 3), [1, 3], [[False, True, True], [True, False, True]]),
        edge("int32_lengths", "Lengths may be int32 or int64.",
             normal(2, 3, 5), np.array([[4, 2, 5], [1, 3, 2]], dtype=np.int32)),
        edge("float32", "Float32 scores must give float32 weights, with and without an empty row.",
             tensor(rng.normal(0, 1.3, (2, 3, 4)).astype(np.float32)),
             [[2, 0, 3], [1, 4, 0]]),
        edge("between_other_calls", "Each call is independent: other calls with the same shapes "
                                    "change nothing.",
             normal(2, 3, 4), [2, 3], _one_dropped(rng, 3, 4),
             scenario="between_calls"),
    ]  # fmt: skip


def _extremes(rng) -> list[Probe]:
    normal, edge = _normal(rng), functools.partial(case, part="edges")
    return [
        edge("length_zero", "An item without any real key gets weights of 0 in all its rows, not "
                            "NaN and not 1/m.", normal(2, 2, 3), [0, 2]),
        edge("worked_number_empty", "A length of 0 leaves a row of zeros.", _BY_HAND, [0]),
        edge("empty_row", "A query that may attend to nothing gets weights 0.",
             normal(2, 3), mask=_EMPTY),
        edge("every_length_zero", "If all lengths are 0, no key is left and every weight is 0.",
             normal(2, 2, 3), [0, 0]),
        edge("mask_without_true", "If the mask is False everywhere, no key is left and every "
                                  "weight is 0, also with heads.",
             normal(2, 2, 2, 3), mask=np.zeros((2, 3)) > 0),
        edge("scores_near_minus_1e6", "Scores may themselves be very negative: a key filled with "
                                      "-1e6 must not win.",
             tensor([[[-1e6, -1e6 - 1.0, -1e6 + 2.0, -1e6]]]), [2]),
        edge("scores_near_minus_1e9", "Scores may themselves be very negative: a key filled with "
                                      "-1e9 or -1e12 must not win.",
             tensor([[[-2e15, -2e15, -2e15]]]), [1]),
        edge("large_scores", "Large scores do not overflow.",
             tensor([[[1000.0, 1002.0, 1001.0, 1400.0]]]), [3]),
        edge("low_allowed_scores", "An allowed key that scores far below a dropped one still gets "
                                   "its weight: only the distance to the largest allowed score "
                                   "counts.",
             tensor([[-300.0, -301.0, 300.0], [0.5, 0.1, 2.0]]),
             mask=[[True, True, False], [True, False, True]]),
        edge("huge_forbidden_scores", "A forbidden score may be any number, 1e4 or 1e30: the "
             "allowed keys share the weight as if it were not there.",
             tensor([[0.5, 1.5, 1e4], [1e30, 0.2, -1.0], [0.3, -1e30, 0.1]]),
             mask=[[True, True, False], [False, True, True], [True, False, True]]),
        edge("full_lengths", "Lengths of num_keys drop nothing.", normal(2, 3, 4), [4, 4]),
    ]  # fmt: skip


def _gradients(rng) -> list[Probe]:
    def gradient(name, says, *shape, **options) -> Probe:
        scores, upstream = _normal(rng)(*shape, requires_grad=True), rng.normal(0, 1, shape)
        return case(name, says, scores, part="gradients", grad_outputs=upstream, **options)

    return [
        gradient("gradient", "The gradient of the scores is that of the formula, 0 for dropped "
                 "keys.", 2, 3, 4, lens=[2, 3]),
        gradient("gradient_of_length_zero", "An item without any real key has gradient 0; the "
                                            "others have their usual gradients.",
                 2, 1, 3, lens=[0, 2]),
        gradient("gradient_with_empty_row", "An empty row has gradient 0, and the other gradients "
                                            "stay finite.", 2, 3, mask=_EMPTY),
        gradient("gradient_with_heads", "With heads, lengths and a mask, the gradient is still "
                                        "that of the formula.",
                 2, 2, 2, 3, lens=[2, 3], mask=_one_dropped(rng, 2, 3)),
        gradient("gradient_without_mask", "Without a mask, the gradient is that of the softmax.",
                 2, 3),
    ]  # fmt: skip


def _overwritten(self, scores, allowed) -> Tensor:
    if not allowed.all():
        scores[~allowed] = -1e6
    return scores


_OWN = (
    Row("leaks_1e9", filled(-1e9)).says(
        "A finite number such as -1e9 is only relatively small: in an empty row every key gets "
        "weight 1/m, and scores below it lose to the filled ones.",
        "Which value is smaller than every score? And what then happens in an empty row?",
    ),
    Row("scores_overwritten", {"fill": _overwritten, "spare": untouched, "clear": untouched}).says(
        "You write a number such as -1e6 into the caller's scores, which fails for scores that "
        "need a gradient. The number is also only relatively small: an empty row gets weights of "
        "1/m.",
        "Which function fills a copy, and with which value?",
    ),
)

EXERCISE = Exercise(
    points=6,
    minutes=30,
    difficulty=3,
    returns=(Returned("weights", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=lambda rng: [
        *(*_values(rng), *_with_heads(rng)),
        *(*_edges(rng), *_extremes(rng), *_gradients(rng)),
    ],
    oracle=oracle.masked_softmax,
    builds_on=("length_mask", "combine_masks", "additive_mask"),
    mistakes=known(Softmax, *_OWN),
    properties=RETURNED,
    hints=(
        "Two questions, in this order. Which keys may each query attend to? The answer is one "
        "bool tensor that broadcasts with the scores. And what is a softmax over only those?",
        "Section 2 has the lengths and the axis that lines them up with queries (heads need one "
        "more); section 4 combines two masks, either of which may be missing; section 7 has the "
        "row without a key. What has to happen before the softmax, and what after it?",
        "A smaller version first: scores `[[1., 2.], [3., 4.]]` that require grad, mask `[[True, "
        "False], [False, False]]`, no lengths. Get weights `[[1, 0], [0, 0]]` and a gradient "
        "without nan. Row 1 has to enter the softmax as ordinary numbers. Which ones, and when do "
        "you take their weights away?",
    ),
    shares={"values": 0.45, "edges": 0.25, "gradients": 0.2, "hygiene": 0.1},
)
