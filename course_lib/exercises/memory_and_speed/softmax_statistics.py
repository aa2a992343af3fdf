"""`softmax_statistics`: the running maximum and the running sum of a softmax."""

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises.kit import Problems, call, edge, in_eighths, like, mistake


def blocks(scores, *sizes, **fields: Any) -> Probe:
    """Return a call with a generator of blocks with these numbers of columns."""
    parts = np.split(np.asarray(scores), np.cumsum(sizes)[:-1], axis=-1)
    return call([tensor(part) for part in parts], scenario="one_at_a_time", **fields)


def problems(rng) -> Problems:
    def draw(*shape) -> np.ndarray:
        return rng.normal(0, 1.5, shape)

    yield "The result is each row's largest score and its sum of exp(score - largest)."
    yield blocks([[1.0, 0.0, 2.0]], 2, 1)
    yield "If the largest score comes last, everything before it must be rescaled."
    yield blocks(np.sort(draw(4, 9), axis=-1), 3, 3, 3)
    yield "Rows may have several axes."
    yield blocks(draw(2, 3, 8), 3, 3, 2)
    yield "Only the current block may be in memory, however many blocks come by."
    yield blocks(draw(6, 378), *[16] * 23, 10, at_most={"peak": 12_000})
    yield from edges(draw)


def edges(draw) -> Problems:
    of_blocks = functools.partial(blocks, part="edges")
    empty_alone, empty_first = draw(3, 4), draw(3, 8)
    empty_alone[1] = empty_first[1, :3] = -math.inf
    large = np.array([[800.0, -900.0, 801.0, 799.0, 802.0], [-900.0, -901.0, -902.0, -899.5, -950]])
    below = in_eighths(draw(3, 6))
    below[:2] += [[-1030, -1030, -510, -510, 0, 0], [-1100, -1100, 0, 0, -300, -300]]
    yield "`blocks` may be anything a `for` loop takes, and must stay unchanged."
    yield edge(draw(3, 4, 5))
    yield "Float32 scores must give float32 results."
    yield edge(draw(2, 3, 5), dtype="float32")
    yield "Large scores must not overflow."
    yield of_blocks(large, 2, 3)
    yield "A first block may lie 1000 below a later one, which must not overflow."
    yield of_blocks(below, 2, 2, 2)
    yield "A row whose first block holds only -inf must continue with the next block."
    yield of_blocks(empty_first, 3, 5)
    yield "A row of nothing but -inf must have maximum -inf and sum 0, even in a single block."
    yield of_blocks(empty_alone, 4)


def finite(x) -> Tensor:
    return x.masked_fill(x == -math.inf, 0.0)


def running(blocks, shift, fade=torch.exp, start=-math.inf) -> tuple[Tensor, Tensor]:
    """Return the statistics; `shift` makes numbers to subtract of the maxima."""
    maxima: Any = None
    totals: Any = None
    for block in blocks:
        if maxima is None:
            maxima = torch.full_like(block[..., 0], start)
            totals = torch.zeros_like(maxima)
        larger = torch.maximum(maxima, block.amax(-1))
        summed = torch.exp(block - shift(larger).unsqueeze(-1)).sum(-1)
        maxima, totals = larger, totals * fade(maxima - shift(larger)) + summed
    return maxima, totals


@mistake
def sum_not_rescaled(blocks) -> tuple[Tensor, Tensor]:
    """You do not rescale the sum so far when the maximum rises: its terms are still shifted by the
    old maximum, the new ones by the new.

    What must exp(s - old) be multiplied by to become exp(s - new)?
    """
    return running(blocks, finite, fade=torch.ones_like)


@mistake
def factor_inverted(blocks) -> tuple[Tensor, Tensor]:
    """You rescale the sum so far by exp(new - old), where old and new are the maxima before and
    after a block, or you rescale the sum of the new block. The factor of the old sum must be
    exp(old - new).

    If the maximum rises, must the sum of exp(s - maximum) grow or shrink?
    """
    return running(blocks, finite, fade=lambda d: torch.exp(-d).nan_to_num(0.0, posinf=0.0))


@like(factor_inverted)
def factor_on_the_new_sum(blocks, on_both=False) -> tuple[Tensor, Tensor]:
    maxima: Any = None
    totals: Any = 0.0
    for block in blocks:
        largest = block.amax(-1)
        larger = largest if maxima is None else torch.maximum(maxima, largest)
        summed = torch.exp(block - finite(larger).unsqueeze(-1)).sum(-1)
        factor = torch.exp((larger if maxima is None else maxima) - finite(larger))
        maxima, totals = larger, (totals * factor if on_both else totals) + summed * factor
    return maxima, totals


like(factor_inverted)(functools.partial(factor_on_the_new_sum, on_both=True))


@mistake
def blocks_read_twice(blocks, start=torch.zeros_like) -> tuple[Tensor, Tensor]:
    """You loop over `blocks` twice. A generator yields each block only once, so the second loop
    gets none, and its sums are 0.

    Which numbers must you keep so that one loop is enough?
    """
    maxima = functools.reduce(torch.maximum, [block.amax(-1) for block in blocks])
    exponentials = (torch.exp(block - maxima.unsqueeze(-1)).sum(-1) for block in blocks)
    return maxima, sum(exponentials, start(maxima))


like(blocks_read_twice)(functools.partial(blocks_read_twice, start=lambda maxima: 0))


@mistake
def starts_at_zero(blocks) -> tuple[Tensor, Tensor]:
    """Your maximum starts at 0, which is wrong for a row whose scores are all negative.

    Which number is never larger than a score?
    """
    return running(blocks, finite, start=0.0)


@mistake
def empty_row(blocks) -> tuple[Tensor, Tensor]:
    """If all scores of a row so far are -inf, you compute -inf - (-inf), which is NaN, and the NaN
    stays in the sum.

    What could you subtract there instead of the maximum?
    """
    return running(blocks, lambda larger: larger)


@mistake
def logsumexp_returned(blocks) -> tuple[Tensor, Tensor]:
    """You return a logarithm in place of the sum of exp(score - largest).

    What is the second result that the statement asks for?
    """
    maxima, totals = running(blocks, finite)
    return maxima, maxima + totals.log()


@like(logsumexp_returned)
def logarithm_returned(blocks) -> tuple[Tensor, Tensor]:
    maxima, totals = running(blocks, finite)
    return maxima, totals.log()


EXERCISE = Exercise(
    points=2,
    minutes=20,
    difficulty=2,
    returns=(
        Returned("maxima", "tensor", "float", ("rows",)),
        Returned("totals", "tensor", "float", ("rows",)),
    ),
    probes=problems,
    hints=(
        "Suppose you know the maximum and the sum of everything so far, and a new block arrives. "
        "If it does not raise the maximum, what changes? If it does, by how much is each old term "
        "of the sum off, and is that the same for all of them?",
        "Go back to the example by hand in section 2: what turned 1.3679 into 0.5032? Then think "
        "about the start: what are the maximum and the sum of a row of which you have seen "
        "nothing yet? And which row of a later block is in the same state?",
        "Solve a smaller version first: one row, blocks of one number, plain floats and "
        "`math.exp`. The scores 1, 0, 2 must go through (1, 1), (1, 1.3679) and (2, 1.5032). Then "
        "the scores -inf, 0: print what you subtract in each step. Once both are right, replace "
        "the single number by the last axis of a block.",
    ),
)
