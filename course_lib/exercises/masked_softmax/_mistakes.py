"""What a wrong `masked_softmax` does, one model for each known mistake."""

import math

import torch

from course_lib.checks.judge.exercise import Mistake


def _real(scores, valid_lens):
    """Which keys the lengths call real, in a shape that fits the scores."""
    real = torch.arange(scores.shape[-1]) < valid_lens[..., None]
    while real.dim() < scores.dim():
        real = real.unsqueeze(1) if valid_lens.dim() == 2 else real.unsqueeze(-2)
    return real


def _allowed(scores, valid_lens, mask):
    allowed = torch.ones(scores.shape, dtype=torch.bool)
    if valid_lens is not None:
        allowed = allowed & _real(scores, valid_lens)
    return allowed if mask is None else allowed & mask


def _right(scores, allowed):
    empty = ~allowed.any(-1, keepdim=True)
    filled = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
    return torch.softmax(filled, -1).masked_fill(empty, 0.0)


def _wrong(change):
    """A wrong masked softmax: `change(scores, allowed)` replaces filling and softmax."""
    return lambda scores, valid_lens=None, mask=None: change(
        scores, _allowed(scores, valid_lens, mask)
    )


def _filled(scores, allowed, number=-math.inf):
    return scores.masked_fill(~allowed, number)


def _with_lengths(read):
    """Right but for `read(scores, valid_lens)`, which makes a mask of the lengths."""

    def model(scores, valid_lens=None, mask=None):
        allowed = _allowed(scores, None, mask)
        if valid_lens is not None:
            allowed = allowed & read(scores, valid_lens)
        return _right(scores, allowed)

    return model


def _tiled(scores, valid_lens):
    if valid_lens.dim() == 2:
        return _real(scores, valid_lens)
    rows = scores[..., 0].numel()
    flat = valid_lens.repeat(rows // len(valid_lens)).reshape(scores.shape[:-1])
    return torch.arange(scores.shape[-1]) < flat[..., None]


def _without_query_axis(scores, valid_lens):
    return torch.arange(scores.shape[-1]) < valid_lens[..., None]


def _without_head_axis(scores, valid_lens):
    return torch.arange(scores.shape[-1]) < valid_lens.reshape(len(valid_lens), -1, 1)


def _overwritten(scores, valid_lens=None, mask=None):
    if valid_lens is not None or mask is not None:
        scores[~_allowed(scores, valid_lens, mask)] = -1e6
    return torch.softmax(scores, -1)


def _inverted(scores, valid_lens=None, mask=None):
    allowed = _allowed(scores, valid_lens, mask)
    if valid_lens is not None or mask is not None:
        allowed = ~allowed
    return _right(scores, allowed)


def _mask_added(scores, valid_lens=None, mask=None):
    raised = scores if mask is None else scores + mask.to(scores.dtype)
    return _right(raised, _allowed(scores, valid_lens, None))


def _nan_behind(scores, allowed):
    added = torch.where(allowed, 0.0, -math.inf).to(scores.dtype)
    return torch.softmax(scores + added, -1).masked_fill(~allowed, 0.0)


MISTAKES = (
    Mistake(
        "empty_row_nan",
        _wrong(lambda scores, allowed: torch.softmax(_filled(scores, allowed), -1)),
        "A row in which no key is allowed becomes NaN: it is 0 / 0.",
        "What should a query that may attend to nothing receive?",
    ),
    Mistake(
        "leaks_1e9",
        _wrong(lambda scores, allowed: torch.softmax(_filled(scores, allowed, -1e9), -1)),
        "A finite number such as -1e9 is only relatively small: in an empty row every key gets "
        "weight 1/m, and scores below it lose to the filled ones.",
        "Which value is smaller than every score? And what then happens in an empty row?",
    ),
    Mistake(
        "bool_mask_ignored",
        lambda scores, valid_lens=None, mask=None: _right(
            scores, _allowed(scores, valid_lens, None)
        ),
        "The bool mask changes nothing.",
        "Where does `mask` enter your computation?",
    ),
    Mistake(
        "inverted",
        _inverted,
        "Your mask is upside down: the keys that should be dropped get all the weight.",
        "True means 'may attend'. Which keys does your code fill?",
    ),
    Mistake(
        "zero_after_softmax",
        _wrong(lambda scores, allowed: torch.softmax(scores, -1) * allowed),
        "You set weights to 0 after the softmax, so what is left no longer sums to 1.",
        "Does masking before the softmax need a second normalisation?",
    ),
    Mistake(
        "filled_with_zero",
        _wrong(
            lambda scores, allowed: (
                torch.softmax(_filled(scores, allowed, 0.0), -1) * allowed.any(-1, keepdim=True)
            )
        ),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    Mistake(
        "empty_row_gradient_nan",
        _wrong(_nan_behind),
        "The weights are right, but the gradient of an empty row is NaN: the softmax saw "
        "nothing but -inf, and backward runs through it.",
        "Can the empty rows be given harmless scores before the softmax?",
    ),
    Mistake(
        "query_axis_forgotten",
        _with_lengths(_without_query_axis),
        "The mask made of the lengths is laid over the scores as it is, without axes for queries "
        "and heads. Its batch axis meets another axis: an error where the sizes differ, and wrong "
        "numbers where they are equal.",
        "Which shape must a mask (batch, num_keys) get to fit scores (batch, num_queries, "
        "num_keys)?",
        fails=True,
    ),
    Mistake(
        "head_axis_forgotten",
        _with_lengths(_without_head_axis),
        "With a head axis in the scores, the mask made of the lengths has none: its batch axis "
        "meets the heads, which is an error where the two differ in size and gives wrong numbers "
        "where they do not.",
        "Which shape must a mask (batch, 1, num_keys) get to fit scores (batch, heads, "
        "num_queries, num_keys)?",
        fails=True,
    ),
    Mistake(
        "over_queries",
        _wrong(lambda scores, allowed: torch.softmax(_filled(scores, allowed), -2).nan_to_num(0.0)),
        "Your softmax runs over the queries: the columns sum to 1 instead of the rows.",
        "Which axis holds the keys?",
    ),
    Mistake(
        "mask_added",
        _mask_added,
        "You add the mask as the numbers 0 and 1. That raises the allowed scores by 1 and "
        "drops nothing.",
        "What must be added to a score so that its exponential is 0?",
    ),
    Mistake(
        "scores_overwritten",
        _overwritten,
        "You write a number such as -1e6 into the caller's scores, which fails for scores that "
        "need a gradient. The number is only relatively small, too: an empty row gets weights 1/m.",
        "Which function fills a copy, and with which value?",
    ),
    Mistake(
        "lengths_tiled",
        _with_lengths(_tiled),
        "The lengths are handed out in the wrong order: rows 0, 1, 2, ... take the lengths of "
        "items 0, 1, 0, 1, ... in turn.",
        "What is the difference between `repeat` and `repeat_interleave`?",
    ),
    Mistake(
        "empty_row_uniform",
        _wrong(
            lambda scores, allowed: torch.softmax(
                _filled(scores, allowed, torch.finfo(scores.dtype).min), -1
            )
        ),
        "In a row in which no key is allowed every key gets weight 1/m.",
        "Which rows have no allowed key, and what should they receive?",
    ),
)
