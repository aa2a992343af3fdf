"""What a wrong `masked_softmax` does, one model for each known mistake."""

import math

import torch

from course_lib.checks.exercise import Mistake


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


def _wrong(change=None, invert=False):
    """A wrong masked softmax: `change(scores, allowed)` replaces masking and softmax."""

    def model(scores, valid_lens=None, mask=None):
        allowed = _allowed(scores, valid_lens, mask)
        if invert and (valid_lens is not None or mask is not None):
            allowed = ~allowed
        if change is not None:
            return change(scores, allowed)
        return torch.softmax(scores.masked_fill(~allowed, -math.inf), -1).nan_to_num(0.0)

    return model


def _fill(value=None, zero_empty=False, invert=False):
    """A finite fill instead of -inf: the smallest number of the dtype if none is given."""

    def change(scores, allowed):
        number = torch.finfo(scores.dtype).min if value is None else value
        weights = torch.softmax(scores.masked_fill(~allowed, number), -1)
        empty = ~allowed.any(-1, keepdim=True)
        return weights.masked_fill(empty, 0.0) if zero_empty else weights

    return _wrong(change, invert)


def _over(axis, value=-math.inf, swept=False):
    """The right fill and a softmax over another axis; `swept`: NaN becomes 0."""

    def change(scores, allowed):
        weights = torch.softmax(scores.masked_fill(~allowed, value), axis)
        return weights.nan_to_num(0.0) if swept else weights

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


def _infinity_times_zero(scores, allowed):
    return torch.softmax(scores + (~allowed).to(scores.dtype) * -math.inf, -1)


def _without_query_axis(read=_allowed):
    """Lengths make a mask (batch, m), which is laid over the scores as it is."""

    def change(scores, valid_lens):
        if valid_lens.dim() == 2 and read is not None:
            return read(scores, valid_lens, None)
        return torch.arange(scores.shape[-1]) < valid_lens[..., None]

    return _replace_lengths(change)


def _bool_mask_inverted(scores, valid_lens=None, mask=None):
    return _right(scores, _allowed(scores, valid_lens, None if mask is None else ~mask))


def _lengths_inverted(scores, valid_lens):
    return ~_allowed(scores, valid_lens, None)


def _lengths_inverted_finite_fill(scores, valid_lens=None, mask=None):
    allowed = _allowed(scores, None, mask)
    if valid_lens is not None:
        allowed = allowed & ~_allowed(scores, valid_lens, None)
    return torch.softmax(scores.masked_fill(~allowed, -1e9), -1)


def _zero_lengths_ignored(scores, valid_lens=None, mask=None):
    used = valid_lens is not None and valid_lens.any()
    return _right(scores, _allowed(scores, valid_lens if used else None, mask))


def _empty_mask_ignored(scores, valid_lens=None, mask=None):
    used = mask is not None and mask.any()
    return _right(scores, _allowed(scores, valid_lens, mask if used else None))


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


def _mask_before_lengths(scores, mask=None, valid_lens=None):
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError("a mask must be a bool tensor")
    return _right(scores, _allowed(scores, valid_lens, mask))


def _three_axes_only(scores, valid_lens=None, mask=None):
    _, _, _ = scores.shape
    return _right(scores, _allowed(scores, valid_lens, mask))


MISTAKES = (
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
        "inverted_finite_fill",
        _fill(-1e9, invert=True),
        "Your mask is upside down: the keys that may be attended are the ones you fill.",
        "True means 'may attend'. Which keys does your code fill?",
    ),
    Mistake(
        "inverted_smallest_number",
        _fill(invert=True),
        "Your mask is upside down: the keys that may be attended are the ones you fill.",
        "True means 'may attend'. Which keys does your code fill?",
    ),
    Mistake(
        "bool_mask_inverted",
        _bool_mask_inverted,
        "The lengths are right, but the bool mask is read upside down: here True means 'may "
        "attend', in `nn.MultiheadAttention` it means the opposite.",
        "Which keys does `masked_fill(mask, ...)` fill?",
    ),
    Mistake(
        "lengths_inverted",
        _replace_lengths(_lengths_inverted),
        "The bool mask is right, but the lengths are read upside down: you keep the padding and "
        "drop the real keys.",
        "Which keys does your comparison of positions and lengths mark as True?",
    ),
    Mistake(
        "lengths_inverted_finite_fill",
        _lengths_inverted_finite_fill,
        "The lengths are read upside down: you keep the padding and drop the real keys.",
        "Which keys does your comparison of positions and lengths mark as True?",
    ),
    Mistake(
        "filled_with_zero",
        _fill(0.0),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    Mistake(
        "filled_with_zero_only",
        _fill(0.0, zero_empty=True),
        "Empty rows are right. Elsewhere dropped scores become 0, but exp(0) = 1: those keys still "
        "get weight.",
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
        _over(-2, swept=True),
        "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "over_queries_nan",
        _over(-2),
        "Your softmax runs over the queries: the columns sum to 1 instead of the rows, and a "
        "column without an allowed query becomes NaN.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "over_queries_finite_fill",
        _over(-2, -1e9),
        "Your softmax runs over the queries: the columns sum to 1 instead of the rows, also the "
        "column of a dropped key.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "over_axis_1",
        _over(1),
        "Your softmax runs over axis 1: of scores with three axes these are the queries, of scores "
        "with four the heads.",
        "Which axis holds the keys, whatever the number of axes?",
    ),
    Mistake(
        "over_axis_1_zeros",
        _over(1, swept=True),
        "Your softmax runs over axis 1: of scores with three axes these are the queries, of scores "
        "with four the heads.",
        "Which axis holds the keys, whatever the number of axes?",
    ),
    Mistake(
        "over_axis_1_finite_fill",
        _over(1, -1e9),
        "Your softmax runs over axis 1: of scores with three axes these are the queries, of scores "
        "with four the heads.",
        "Which axis holds the keys, whatever the number of axes?",
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
        _over(0, swept=True),
        "Your softmax runs over the first axis.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "over_batch_finite_fill",
        _over(0, -1e9),
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
        "query_axis_forgotten",
        _without_query_axis(None),
        "The mask made of the lengths is laid over the scores as it is, without axes for queries "
        "and heads. Its batch axis meets another axis: an error where the sizes differ, and wrong "
        "numbers where they are equal.",
        "Which shape must a mask (batch, num_keys) get to fit scores (batch, num_queries, "
        "num_keys)?",
    ),
    Mistake(
        "query_axis_forgotten_for_items",
        _without_query_axis(),
        "The mask made of lengths (batch,) is laid over the scores as it is, without an axis for "
        "the queries. Its batch axis meets another axis: an error where the sizes differ, and "
        "wrong numbers where they are equal.",
        "Which shape must a mask (batch, num_keys) get to fit scores (batch, num_queries, "
        "num_keys)?",
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
        "mask_before_lengths",
        _mask_before_lengths,
        "Your function takes `mask` before `valid_lens`: lengths given by position arrive as the "
        "mask.",
        "In which order does the exercise list the two?",
    ),
    Mistake(
        "lengths_of_zero_ignored",
        _zero_lengths_ignored,
        "Lengths that are all 0 are treated like no lengths.",
        "How does one ask whether an argument is None?",
    ),
    Mistake(
        "empty_mask_ignored",
        _empty_mask_ignored,
        "A mask without any True is treated like no mask.",
        "How does one ask whether an argument is None?",
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
        "You write a finite number such as -1e6 into the caller's scores: the caller's tensor "
        "changes, and the number is only relatively small.",
        "Which function fills a copy, and with which value?",
    ),
    Mistake(
        "empty_row_nan",
        _wrong(lambda scores, allowed: torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)),
        "A row in which no key is allowed becomes NaN: it is 0 / 0.",
        "What should a query that may attend to nothing receive?",
    ),
    Mistake(
        "infinity_times_zero",
        _wrong(_infinity_times_zero),
        "You multiply a mask of 0 and 1 by infinity: 0 * inf is not 0 but NaN, at every key that "
        "is kept.",
        "Which function puts a number in some places and leaves the others alone?",
    ),
    Mistake(
        "infinity_times_zero_swept_away",
        _wrong(lambda scores, allowed: _infinity_times_zero(scores, allowed).nan_to_num(0.0)),
        "All weights are 0: you multiply a mask of 0 and 1 by infinity, 0 * inf is NaN, and "
        "`nan_to_num` hides it.",
        "Which function puts a number in some places and leaves the others alone?",
    ),
    Mistake(
        "leaks_1e6",
        _fill(-1e6),
        "A finite number such as -1e6 is only relatively small: in an empty row every key gets "
        "weight 1/m, and scores below it lose to the filled ones.",
        "Which value is smaller than every score? And what then happens in an empty row?",
    ),
    Mistake(
        "leaks_1e9",
        _fill(-1e9),
        "A finite number such as -1e9 is only relatively small: in an empty row every key gets "
        "weight 1/m, and scores below it lose to the filled ones.",
        "Which value is smaller than every score? And what then happens in an empty row?",
    ),
    Mistake(
        "leaks_1e6_only",
        _fill(-1e6, zero_empty=True),
        "A finite number such as -1e6 is only relatively small: scores below it lose to the "
        "filled ones.",
        "Which value is smaller than every score?",
    ),
    Mistake(
        "leaks_1e9_only",
        _fill(-1e9, zero_empty=True),
        "A finite number such as -1e9 is only relatively small: scores below it lose to the "
        "filled ones.",
        "Which value is smaller than every score?",
    ),
    Mistake(
        "finite_mask_added",
        _wrong(lambda scores, allowed: torch.softmax(scores + ~allowed * -1e9, -1)),
        "You add a finite number such as -1e9 to dropped scores. In a row in which no key is "
        "allowed all scores sink by the same number, and the dropped keys share the weight.",
        "Which rows have no allowed key, and what should they receive?",
    ),
    Mistake(
        "empty_row_unmasked",
        _wrong(lambda scores, allowed: _right(scores, allowed | ~allowed.any(-1, keepdim=True))),
        "A row in which no key is allowed gets weights as if all keys were.",
        "Which rows have no allowed key, and what should they receive?",
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
)
