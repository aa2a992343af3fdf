"""`softmax_statistics`: the running maximum and the running sum of a softmax."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._builders import FLOAT32, Case, case, edge, in_eighths, in_steps, mistake


def _blocks(scores, *sizes) -> list[Array]:
    """Split the columns of `scores` into blocks of these sizes."""
    assert sum(sizes) == scores.shape[-1]
    return [tensor(part) for part in np.split(scores, np.cumsum(sizes)[:-1], axis=-1)]


def _probe(name, scores, *sizes, **options) -> Case:
    blocks = _blocks(np.asarray(scores), *sizes)
    return case(name, blocks=blocks, scenario="one_at_a_time", **options)


def _draw(rng) -> Callable:
    return lambda *shape: rng.normal(0, 1.5, shape)


def _values(rng) -> list[Probe]:
    both = "The result is each row's largest score and its sum of exp(score - largest)."
    draw = _draw(rng)
    return [
        _probe("worked_number", [[1.0, 0.0, 2.0]], 2, 1).says(both),
        _probe("rising", np.sort(draw(4, 9), axis=-1), 3, 3, 3).says(
            "If the largest score comes last, everything before it must be rescaled."
        ),
        _probe("more_axes", draw(2, 3, 8), 3, 3, 2).says("Rows may have several axes."),
        _probe("memory", draw(6, 378), *[16] * 23, 10, at_most={"peak": 12_000}).says(
            "Only the current block may be in memory: 24 blocks come by, the last one narrower."
        ),
    ]


def _edges(rng) -> list[Probe]:
    probe, draw = functools.partial(_probe, part="edges"), _draw(rng)
    empty_alone, empty_first = draw(3, 4), draw(3, 8)
    empty_alone[1] = empty_first[1, :3] = -math.inf
    large = np.array([[800.0, -900.0, 801.0, 799.0, 802.0], [-900.0, -901.0, -902.0, -899.5, -950]])
    below = in_eighths(draw(3, 6))
    below[:2] += [[-1030, -1030, -510, -510, 0, 0], [-1100, -1100, 0, 0, -300, -300]]
    return [
        edge("any_iterable", blocks=draw(3, 4, 5)).says(
            "`blocks` may be anything a `for` loop takes, and must stay unchanged."
        ),
        edge("float32", blocks=draw(2, 3, 5), **FLOAT32).says(
            "Float32 scores must give float32 results."
        ),
        probe("large_scores", large, 2, 3).says("Large scores must not overflow."),
        probe("first_block_far_below", below, 2, 2, 2).says(
            "A first block may lie 1000 below a later one, which must not overflow."
        ),
        probe("empty_block", empty_first, 3, 5).says(
            "A row whose first block holds only -inf must continue with the next block."
        ),
        probe("empty_row_in_one_block", empty_alone, 4).says(
            "A row of nothing but -inf must have maximum -inf and sum 0, even in a single block."
        ),
    ]


def _finite(x) -> torch.Tensor:
    return x.masked_fill(x == -math.inf, 0.0)


@in_steps(
    larger=torch.maximum,
    shift=_finite,
    fade=lambda maxima, shift: torch.exp(maxima - shift),
    start=-math.inf,
    end=lambda maxima, totals: totals,
)
def _model(larger, shift, fade, start, end) -> Callable:
    """Return the running statistics; each argument is one of their steps."""

    def softmax_statistics(blocks) -> tuple[torch.Tensor, torch.Tensor]:
        maxima: Any = None
        totals: Any = None
        for block in blocks:
            if maxima is None:
                maxima = torch.full_like(block[..., 0], start)
                totals = torch.zeros_like(maxima)
            new = larger(maxima, block.amax(-1))
            summed = torch.exp(block - shift(new).unsqueeze(-1)).sum(-1)
            maxima, totals = new, totals * fade(maxima, shift(new)) + summed
        return maxima, end(maxima, totals)

    return softmax_statistics


def _not_faded(maxima, shift) -> float:
    return 1.0


def _in_two_loops(blocks, start=torch.zeros_like) -> tuple[torch.Tensor, torch.Tensor]:
    maxima = functools.reduce(torch.maximum, [block.amax(-1) for block in blocks])
    exponentials = (torch.exp(block - maxima.unsqueeze(-1)).sum(-1) for block in blocks)
    return maxima, sum(exponentials, start(maxima))


EXERCISE = Exercise(
    points=2,
    minutes=20,
    difficulty=2,
    returns=(
        Returned("maxima", "tensor", "float", ("rows",)),
        Returned("totals", "tensor", "float", ("rows",)),
    ),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    mistakes=(
        mistake("sum_not_rescaled", _model(fade=_not_faded)).says(
            "You do not rescale the sum so far when the maximum rises: its terms are still "
            "shifted by the old maximum, the new ones by the new.",
            "What must exp(s - old) be multiplied by to become exp(s - new)?",
        ),
        mistake(
            "blocks_read_twice",
            _in_two_loops,
            twins=(functools.partial(_in_two_loops, start=lambda maxima: 0),),
        ).says(
            "You loop over `blocks` twice. A generator yields each block only once, so the second "
            "loop gets none, and its sums are 0.",
            "Which numbers must you keep so that one loop is enough?",
        ),
        mistake("starts_at_zero", _model(start=0.0)).says(
            "Your maximum starts at 0, which is wrong for a row whose scores are all negative.",
            "Which number is never larger than a score?",
        ),
        mistake("empty_row", _model(shift=lambda larger: larger)).says(
            "If all scores of a row so far are -inf, you compute -inf - (-inf), which is NaN, and "
            "the NaN stays in the sum.",
            "What could you subtract there instead of the maximum?",
        ),
        mistake(
            "logsumexp_returned",
            _model(end=lambda maxima, totals: maxima + totals.log()),
            twins=(_model(end=lambda maxima, totals: totals.log()),),
        ).says(
            "You return a logarithm in place of the sum of exp(score - largest).",
            "What is the second result that the statement asks for?",
        ),
    ),
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
