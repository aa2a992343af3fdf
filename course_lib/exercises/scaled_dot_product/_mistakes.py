"""The known mistakes of an attention, as a function, in NumPy and as a module.

Each is the right attention with one thing replaced: the scale, what becomes of dropped scores, the
axis of the softmax, or which of lengths and mask are used.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from course_lib.checks.judge.exercise import Mistake


def allowed_keys(scores, valid_lens=None, mask=None):
    """Bool tensor of the shape of the scores."""
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        real = torch.arange(scores.shape[-1], device=scores.device) < valid_lens[..., None]
        if valid_lens.dim() == 1:
            real = real.unsqueeze(-2)
        while real.dim() < scores.dim():
            real = real.unsqueeze(1)
        allowed = allowed & real
    return allowed if mask is None else allowed & mask


def masked_softmax(scores, allowed, dim=-1):
    """The right one for dim=-1."""
    empty = ~allowed.any(dim, keepdim=True)
    filled = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
    return torch.softmax(filled, dim).masked_fill(empty, 0.0)


def _filled(value):
    return lambda scores, allowed: torch.softmax(scores.masked_fill(~allowed, value), -1)


def _inverted(scores, allowed):
    return masked_softmax(scores, allowed if allowed.all() else ~allowed)


def _zero_one_added(scores, allowed):
    return torch.softmax(scores if allowed.all() else scores + allowed.to(scores.dtype), -1)


def _exp_over_sum(scores, allowed):
    e = torch.exp(scores.masked_fill(~allowed, -math.inf))
    return e / e.sum(-1, keepdim=True)


def _recoded_twice(scores, allowed):
    if allowed.all():
        return torch.softmax(scores, -1)
    numbers = allowed.to(scores.dtype)
    for _ in range(2):
        numbers = numbers.masked_fill(numbers == 0, -math.inf).masked_fill(numbers == 1, 0.0)
    return torch.softmax(scores + numbers, -1)


def _maximum_of_the_matrix(scores, allowed):
    kept = scores.masked_fill(~allowed, -math.inf)
    e = torch.exp(kept - kept[allowed].max() if allowed.any() else kept)
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


def _root(queries):
    return math.sqrt(queries.shape[-1])


def wrong(
    weigh: Callable = masked_softmax,
    *,
    divisor: Callable = _root,
    read: Callable = lambda valid_lens, mask: (valid_lens, mask),
    product: Callable = lambda queries, keys: queries @ keys.mT,
):
    """A wrong `scaled_dot_product_attention`.

    Args:
        weigh: from scores and allowed keys to weights.
        divisor: what the products are divided by.
        read: which of lengths and mask are used.
        product: scores before scaling.
    """

    def model(queries, keys, values, valid_lens=None, mask=None):
        scores = product(queries, keys) / divisor(queries)
        weights = weigh(scores, allowed_keys(scores, *read(valid_lens, mask)))
        return weights @ values, weights

    return model


def in_numpy(model):
    """The same mistake for NumPy arrays without lengths."""

    def numpy_model(queries, keys, values, mask=None):
        tensors = [torch.from_numpy(x.copy()) for x in (queries, keys, values)]
        outputs = model(*tensors, None, None if mask is None else torch.from_numpy(mask.copy()))
        return tuple(x.numpy() for x in outputs)

    return numpy_model


def _reshaped(queries, keys):
    return queries @ keys.reshape(*keys.shape[:-2], keys.shape[-1], keys.shape[-2])


class Known(NamedTuple):
    """A wrong attention, the fact and the question."""

    model: Callable
    fact: str
    hint: str


_ROOT = "Which number brings the variance of q . k back to 1?"
_TRUE = "True means 'may attend'. Which keys does your code fill?"

KNOWN = {
    "unscaled": Known(
        wrong(divisor=lambda queries: 1.0),
        "The scores are not divided by sqrt(d): your weights are too sharp.",
        "By what must q . k be divided so that its size does not grow with d?",
    ),
    "divided_by_d": Known(
        wrong(divisor=lambda queries: queries.shape[-1]),
        "The scores are divided by d, or by sqrt(d) twice: your weights are too flat.",
        _ROOT,
    ),
    "over_queries": Known(
        wrong(lambda s, allowed: torch.softmax(s.masked_fill(~allowed, -math.inf), -2)),
        "The softmax runs over the queries: columns sum to 1 instead of rows.",
        "Which axis of the scores holds the keys?",
    ),
    "mask_ignored": Known(
        wrong(read=lambda valid_lens, mask: (None, None)),
        "No mask changes anything: keys that may not be attended get weight too.",
        "Where does what is masked enter your computation?",
    ),
    "lengths_ignored": Known(
        wrong(read=lambda valid_lens, mask: (None, mask)),
        "The lengths change nothing.",
        "Where does `valid_lens` enter your computation?",
    ),
    "bool_mask_ignored": Known(
        wrong(read=lambda valid_lens, mask: (valid_lens, None)),
        "The bool mask changes nothing.",
        "Where does `mask` enter your computation?",
    ),
    "inverted": Known(
        wrong(_inverted),
        "The mask is upside down: the keys that should be dropped get all the weight.",
        _TRUE,
    ),
    "bool_mask_inverted": Known(
        wrong(read=lambda valid_lens, mask: (valid_lens, None if mask is None else ~mask)),
        "The bool mask is upside down: the keys that should be dropped are kept, and the others "
        "are dropped.",
        "True means 'may attend'. Does your code expect the opposite?",
    ),
    "filled_with_zero": Known(
        wrong(_filled(0.0)),
        "Dropped scores become 0, but exp(0) = 1: those keys still get weight.",
        "Which score has an exponential of 0?",
    ),
    "zero_after_softmax": Known(
        wrong(lambda scores, allowed: torch.softmax(scores, -1) * allowed),
        "Weights are set to 0 after the softmax, so what is left no longer sums to 1.",
        "Did you apply the mask before or after the softmax?",
    ),
    "zero_one_mask_added": Known(
        wrong(_zero_one_added),
        "The mask is added as the numbers 0 and 1. That raises the allowed scores by 1 and drops "
        "nothing.",
        "What must be added to a score so that its exponential is 0?",
    ),
    "empty_row_nan": Known(
        wrong(_filled(-math.inf)),
        "A query that may attend to nothing becomes NaN: its row is 0 / 0.",
        "What should such a query receive, and where does your code treat its row apart?",
    ),
    "empty_row_uniform": Known(
        wrong(_filled(-1e30)),
        "A query that may attend to nothing gives every key weight 1/m. Dropped scores that become "
        "a finite number, such as -1e9, are all equal in such a row.",
        "Which rows have no allowed key, and what should they receive?",
    ),
    "keys_reshaped": Known(
        wrong(product=_reshaped),
        "The keys are reshaped to (d, m), which mixes the features of different keys; they must be "
        "transposed.",
        "What is the difference between `reshape` and `mT`?",
    ),
    "no_maximum_subtracted": Known(
        wrong(_exp_over_sum),
        "The exponentials overflow for large scores, and inf / inf is NaN; a row of nothing but "
        "exp(-inf) = 0 is 0 / 0.",
        "Which number can be subtracted from all scores of a row without changing its weights?",
    ),
    "maximum_of_matrix": Known(
        wrong(_maximum_of_the_matrix),
        "You subtract the largest score of the whole matrix. A row whose scores are far below it "
        "vanishes: all its exponentials are 0.",
        "Which scores share one softmax, and so one maximum?",
    ),
    "mask_recoded_twice": Known(
        wrong(_recoded_twice),
        "With a mask everything becomes NaN. Either the mask is turned from 0 and 1 into -inf and "
        "0 twice, so that the zeros that mean 'keep' are taken for 'drop'; or -inf is multiplied "
        "by 0, which is NaN.",
        "What does your recoding do to a key that is allowed, and what if it is done twice?",
    ),
}


def known(*ids: str, wrap: Callable = lambda model: model) -> tuple[Mistake, ...]:
    """The mistakes with these ids, as `wrap` makes them of a wrong attention."""
    return tuple(Mistake(i, wrap(KNOWN[i].model), KNOWN[i].fact, KNOWN[i].hint) for i in ids)
