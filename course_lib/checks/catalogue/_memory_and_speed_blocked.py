"""`blocked_attention`: where blocks lose a factor, a column, or a whole block."""

import math

import numpy as np
import torch

from course_lib.checks.catalogue import _memory_and_speed_mistakes as wrong
from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Array, Probe, tensor
from course_lib.reference import memory_and_speed as oracle


def problem(rng, n, m, d, v, *batch, scale=1.2, **options):
    """Queries, keys and values of these sizes."""
    shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v)}
    return {k: tensor(rng.normal(0, scale, (*batch, *s)), **options) for k, s in shapes.items()}


def some(rng, *shape):
    """A mask that allows about two thirds, and the last key to every query."""
    mask = rng.random(shape) < 0.65
    mask[..., -1] = True
    return mask


def lengths(m, *lens):
    """A mask (batch, 1, m) that allows so many keys of each item."""
    return np.arange(m) < np.array(lens)[:, None, None]


def rising(rng, n, m, d, v):
    """Later keys have ever larger scores, with steps of about 1."""
    given = problem(rng, n, m, d, v)
    queries = np.abs(given["queries"].data) + 0.5
    keys = np.abs(given["keys"].data) * 0.2 + np.arange(m)[:, None] * 0.6
    return given | {"queries": tensor(queries), "keys": tensor(keys)}


def by_hand(**options):
    """The example that the lesson works out: the scores 1, 0, 2."""
    shapes = {"queries": [[1.0]], "keys": [[1.0], [0.0], [2.0]], "values": [[1.0], [3.0], [5.0]]}
    return {name: tensor(data, **options) for name, data in shapes.items()}


def _probes(rng):
    def probe(name, says, args, block_size, mask=None, **options):
        given = None if mask is None else tensor(mask)
        return Probe(name, says, args=args | {"mask": given, "block_size": block_size}, **options)

    scaled = {
        "queries": tensor([[2.0, 0.0, 0.0, 0.0]]),
        "keys": tensor([[0.0, 1, 0, 0], [1.0, 0, 0, 0], [3.0, 0, 1, 0]]),
        "values": tensor([[1.0], [3.0], [5.0]]),
    }
    falling = rising(rng, 3, 8, 2, 3)
    falling = falling | {"keys": tensor(falling["keys"].data[::-1].copy())}
    late = some(rng, 4, 7)
    late[1, :3], late[2, :6] = False, False
    empty = some(rng, 2, 3, 8)
    empty[0, 1], empty[1, 2] = False, False
    large = {
        "queries": tensor([[900.0, 0.0], [-900.0, 0.0], [0.5, -1.0]]),
        "keys": tensor([[1.0, 0.3], [-1.2, 2.0], [1.1, -0.7], [0.9, 0.0], [-1.3, 1.0]]),
        "values": tensor(rng.normal(0, 1, (5, 2))),
    }
    far_below = {
        "queries": tensor([[30.0, 0.0], [-30.0, 0.2], [0.5, -1.0]]),  # the second one's fall
        "keys": tensor([[-27.0, 0.3], [-26.9, 2.0], [0.4, -0.7], [0.3, 1.0], [26.9, 0.1]]),
        "values": tensor(rng.normal(0, 1, (5, 2))),
    }
    limit = {"peak": 65_000}  # the scores have 76 800 bytes, those of a block 7680
    same = "The result must be softmax(Q K^T / sqrt(d)) V and the log sum exp of each query."
    return [
        probe("tiny", same, by_hand(), 2),
        probe("scaled", "The scores are divided by sqrt(d), here by 2.", scaled, 2),
        probe("random", same, problem(rng, 3, 7, 4, 5, 2), 3),
        probe("no_batch", "Without a batch it must work too.", problem(rng, 4, 9, 3, 2), 4),
        probe(
            "square",
            "As many keys as queries: without a mask every query still sees all of them.",
            problem(rng, 5, 5, 3, 3),
            2,
        ),
        probe("heads", "Any number of leading axes.", problem(rng, 2, 5, 3, 4, 2, 3), 2),
        probe(
            "rising",
            "Where later keys score higher, everything before them must be rescaled.",
            rising(rng, 3, 8, 2, 3),
            3,
        ),
        probe("falling", "Where the first keys score highest, later ones count less.", falling, 3),
        probe("mask", "A mask (n, m).", problem(rng, 3, 7, 4, 2), 3, some(rng, 3, 7)),
        probe(
            "mask_of_items",
            "A mask (B, n, m) has columns for every block.",
            problem(rng, 2, 8, 3, 4, 3),
            3,
            some(rng, 3, 2, 8),
        ),
        probe(
            "lengths",
            "A mask (B, 1, m), as lengths make it.",
            problem(rng, 3, 7, 2, 3, 2),
            2,
            lengths(7, 5, 3),
        ),
        probe(
            "causal",
            "A causal mask.",
            problem(rng, 5, 7, 3, 2),
            2,
            np.tril(np.ones((5, 7), dtype=bool), 2),
        ),
        probe(
            "memory",
            "With 120 keys in blocks of 12, the 80 x 120 scores may never be there together.",
            problem(rng, 80, 120, 2, 1),
            12,
            at_most=limit,
        ),
        probe("strided", "Non-contiguous inputs.", problem(rng, 3, 6, 2, 4, strided=True), 4),
        probe("fitting", "Blocks that fit exactly.", problem(rng, 2, 6, 3, 4), 3, part="edges"),
        probe("one_by_one", "Blocks of one key.", problem(rng, 3, 4, 2, 3), 1, part="edges"),
        probe(
            "one_block", "A block larger than needed.", problem(rng, 2, 5, 3, 2), 9, part="edges"
        ),
        probe(
            "late_start",
            "A query whose first blocks are masked altogether begins with the next.",
            problem(rng, 4, 7, 3, 2),
            3,
            late,
            part="edges",
        ),
        probe(
            "empty_row",
            "A query that may attend to no key gets zeros, and the log sum exp -inf.",
            problem(rng, 3, 8, 2, 4, 2),
            3,
            empty,
            part="edges",
        ),
        probe(
            "one_column",
            "A mask (n, 1) with one column stands for all keys, in every block.",
            problem(rng, 3, 7, 2, 3),
            3,
            np.array([[True], [False], [True]]),
            part="edges",
        ),
        probe(
            "memory_masked",
            "With a mask of a single row, which stands for all queries, memory must stay as small.",
            problem(rng, 80, 120, 2, 1),
            12,
            some(rng, 1, 120),
            part="edges",
            at_most=limit,
        ),
        probe("large_scores", "Large scores must not overflow.", large, 2, part="edges"),
        probe(
            "first_block_far_below",
            "A first block whose scores lie 1000 below later ones must not make these overflow.",
            far_below,
            2,
            part="edges",
        ),
        probe(
            "float32",
            "Inputs in float32 give results in float32.",
            problem(rng, 3, 7, 4, 2),
            3,
            part="edges",
            dtype="float32",
            tolerance=1e-4,
        ),
        probe(
            "gradient",
            "The gradient must come through all blocks.",
            problem(rng, 2, 5, 2, 3, requires_grad=True),
            2,
            some(rng, 2, 5),
            part="gradients",
            grad_outputs=rng.normal(0, 1, (2, 3)),
        ),
        probe(
            "gradient_of_empty_row",
            "A query without keys gets the gradient 0, and the others are not disturbed.",
            problem(rng, 3, 4, 2, 2, requires_grad=True),
            2,
            np.array([[True] * 4, [False] * 4, [False, False, True, True]]),
            part="gradients",
            grad_outputs=rng.uniform(-1, 1, (3, 2)),  # so that none overflows over `tiny`
        ),
    ]


def _outside(probe, outputs):
    """Outputs are averages of the values that may be attended."""
    found, values = outputs.items[0].data, probe.args["values"].data
    if found.shape[:-2] != values.shape[:-2]:
        return None
    low, high = values.min(-2, keepdims=True), values.max(-2, keepdims=True)
    mask = probe.args["mask"]
    if isinstance(mask, Array) and not mask.data.any(-1).all():
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    slack = 1e-4 * (1 + np.abs(values).max())
    wrong = (found > high + slack) | (found < low - slack) | ~np.isfinite(found)
    if not wrong.any():
        return None
    at = tuple(np.argwhere(wrong)[0])
    return (
        f"An output is {found[at]:.4g}, outside the values it averages; its weights do not sum "
        "to 1."
    )


def _below_maximum(probe, outputs):
    found = outputs.items[1].data
    queries, keys = probe.args["queries"].data, probe.args["keys"].data
    if isinstance(probe.args["mask"], Array) or found.shape != queries.shape[:-1]:
        return None
    largest = (queries @ np.swapaxes(keys, -1, -2) / math.sqrt(queries.shape[-1])).max(-1)
    wrong = ~(found >= largest - 1e-4 * (1 + np.abs(largest)))
    if not wrong.any():
        return None
    return (
        f"A log sum exp is {found[wrong].flat[0]:.4g}; it cannot be below the largest score, "
        f"{largest[wrong].flat[0]:.4g}."
    )


def _with_whole_mask(queries, keys, values, mask=None, block_size=128):
    """Blocks of scores, beside a mask of numbers that is there as a whole."""
    if mask is not None:
        bias = queries.new_zeros(*queries.shape[:-1], keys.shape[-2]).masked_fill(~mask, -math.inf)
        mask = bias == 0
    return wrong.blocked()(queries, keys, values, mask, block_size)


_LOOP = "Here the loop over blocks, which such a call hides, is what you write."

BLOCKED_ATTENTION = Exercise(
    name="blocked_attention",
    points=4,
    minutes=35,
    difficulty=3,
    returns=(
        Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
        Returned("logsumexp", "tensor", "float", ("...", "num_queries")),
    ),
    probes=_probes,
    oracle=oracle.blocked_attention,
    builds_on=("softmax_statistics",),
    forbidden={"scaled_dot_product_attention": _LOOP, "flex_attention": _LOOP},
    mistakes=(
        Mistake(
            "nothing_rescaled",
            wrong.blocked(fade_totals=False, fade_outputs=False),
            "Neither the sums nor the outputs so far are rescaled when the maximum rises.",
            "By which factor must everything so far be multiplied for a new maximum?",
        ),
        Mistake(
            "sum_not_rescaled",
            wrong.blocked(fade_totals=False),
            "The outputs so far are rescaled when the maximum rises, the sums are not.",
            "What do a weight's numerator and denominator have in common?",
        ),
        Mistake(
            "outputs_not_rescaled",
            wrong.blocked(fade_outputs=False),
            "The sums so far are rescaled when the maximum rises, the outputs are not.",
            "What do a weight's numerator and denominator have in common?",
        ),
        Mistake(
            "maximum_not_carried",
            wrong.blocked(maximum=lambda maxima, scores: scores.amax(-1, True)),
            "The maximum is not carried on: each block takes its own, even where an earlier block "
            "had a larger one.",
            "Does the running maximum ever fall?",
        ),
        Mistake(
            "maximum_of_first_block_for_all",
            wrong.blocked(maximum=wrong.first_maximum),
            "All blocks are shifted by the maximum of the first one: where a later block lies far "
            "above it, the exponentials overflow.",
            "What is exp(1000) in float64?",
        ),
        Mistake(
            "own_maximum_nothing_rescaled",
            wrong.blocked(
                maximum=lambda maxima, scores: scores.amax(-1, True),
                fade_totals=False,
                fade_outputs=False,
            ),
            "Each block is shifted by its own maximum, and the sums are added as they are.",
            "What must be the same for two sums of exponentials before they can be added?",
        ),
        Mistake(
            "rescaled_the_wrong_way",
            wrong.blocked(fading=lambda maxima, shift: torch.exp(shift - wrong.finite(maxima))),
            "What is there so far is multiplied by exp(new - old); it must shrink when the maximum "
            "rises, not grow.",
            "Which sign has old - new?",
        ),
        Mistake(
            "blocks_averaged",
            wrong.each_apart(lambda results: results.mean(0)),
            "Each block is normalised by itself, and the results are averaged: all blocks weigh "
            "the "
            "same, whatever their scores.",
            "How much does each block weigh in the whole softmax?",
        ),
        Mistake(
            "blocks_added_up",
            wrong.each_apart(lambda results: results.sum(0)),
            "Each block is normalised by itself, and the results are added: the weights of a query "
            "sum to the number of blocks.",
            "When should the division by the sum take place?",
        ),
        Mistake(
            "short_block_dropped",
            wrong.blocked(blocks=wrong.full_blocks),
            "The last block is left out where it is shorter than the others.",
            "Where does the last block begin if block_size does not divide the number of keys?",
        ),
        Mistake(
            "last_block_dropped",
            wrong.blocked(blocks=lambda m, b: wrong.starts(m, b)[:-1]),
            "The last block is left out.",
            "Where does the last block begin, and does your loop get there?",
        ),
        Mistake(
            "first_block_skipped",
            wrong.blocked(blocks=lambda m, b: wrong.starts(m, b)[1:] or [0]),
            "The first block is left out.",
            "Where does the first block begin?",
        ),
        Mistake(
            "first_block_only",
            wrong.one_block(0),
            "Only the first block counts.",
            "Does your `return` stand inside the loop?",
        ),
        Mistake(
            "last_block_only",
            wrong.one_block(-1),
            "Only the last block counts: each one starts from nothing.",
            "Which lines belong before the loop?",
        ),
        Mistake(
            "mask_shifted",
            wrong.blocked(part=wrong.shifted_columns),
            "The mask is shifted by a block: each block of keys meets the columns of the next.",
            "Is the same slice taken of keys, values and mask?",
        ),
        Mistake(
            "mask_shifted_back",
            wrong.blocked(part=wrong.columns_before),
            "The mask is shifted by a block: each block of keys meets the columns of the one "
            "before.",
            "Is the same slice taken of keys, values and mask?",
        ),
        Mistake(
            "first_columns_of_mask",
            wrong.blocked(part=wrong.first_columns),
            "Every block meets the first columns of the mask.",
            "Is the same slice taken of keys, values and mask?",
        ),
        Mistake(
            "one_column_mask",
            wrong.blocked(part=wrong.sliced_without_expanding),
            "A mask with a single column stands for all keys; sliced as it is, nothing is left of "
            "it after the first block.",
            "What does `expand` do to an axis of length 1?",
        ),
        Mistake(
            "mask_ignored",
            wrong.blocked(fill=wrong.no_fill),
            "The mask changes nothing.",
            "Where do the scores of forbidden keys become -inf?",
        ),
        Mistake(
            "mask_inverted",
            wrong.blocked(fill=lambda scores, allowed: wrong.infinity(scores, ~allowed)),
            "The mask is read the other way round: True = may attend.",
            "What does `masked_fill` fill, True or False?",
        ),
        Mistake(
            "mask_as_0",
            wrong.blocked(fill=lambda scores, allowed: scores * allowed),
            "Masked scores become 0, and exp(0) is 1.",
            "Which score gives the weight 0?",
        ),
        Mistake(
            "masked_after_the_sum",
            wrong.blocked(fill=wrong.no_fill, weigh=lambda weights, allowed: weights * allowed),
            "Masked keys still count in the sums that you divide by.",
            "Which comes first: the mask, or the sum?",
        ),
        Mistake(
            "large_negative_fill",
            wrong.blocked(fill=lambda scores, allowed: scores.masked_fill(~allowed, -1e9)),
            "Masked scores become -1e9: a query that may attend to no key then averages all of "
            "them.",
            "What is exp(-1e9 - largest) where the largest is -1e9 too?",
        ),
        Mistake(
            "empty_row",
            wrong.blocked(shift_of=lambda larger: larger),
            "Where a query has seen masked keys only, -inf - (-inf) is NaN, and NaN stays.",
            "What could be subtracted there instead of the maximum?",
        ),
        Mistake(
            "nan_hidden",
            wrong.blocked(
                shift_of=lambda larger: larger,
                divide=lambda outputs, totals: (outputs / totals).nan_to_num(0.0),
                end=lambda maxima, totals: torch.where(
                    totals.isnan(), -math.inf, maxima + totals.log()
                ),
            ),
            "NaN is replaced in the result; a query whose first block was masked altogether has "
            "lost its sums by then.",
            "In which step does -inf - (-inf) first come up, and what could it subtract instead?",
        ),
        Mistake(
            "zero_by_zero",
            wrong.blocked(divide=lambda outputs, totals: outputs / totals),
            "At the end a query that may attend to no key divides 0 by 0.",
            "What should a sum of 0 be replaced by before you divide?",
        ),
        Mistake(
            "not_scaled",
            wrong.blocked(root=lambda d: 1.0),
            "The scores are not divided by sqrt(d).",
            "What happens to the variance of q . k as d grows?",
        ),
        Mistake(
            "divided_by_d",
            wrong.blocked(root=lambda d: d),
            "The scores are divided by d, not by its square root.",
            "Is the scaling done in two places?",
        ),
        Mistake(
            "not_normalised",
            wrong.blocked(divide=lambda outputs, totals: outputs),
            "The outputs are never divided by the sums.",
            "What do the weights of a query have to sum to?",
        ),
        Mistake(
            "no_maximum",
            wrong.blocked(
                shift_of=torch.zeros_like,
                fading=lambda maxima, shift: torch.ones_like(shift),
                end=lambda maxima, totals: totals.log(),
            ),
            "No maximum is subtracted, so large scores overflow.",
            "What is exp(800) in float64?",
        ),
        Mistake(
            "one_maximum_for_all",
            wrong.blocked(maximum=wrong.shared_maximum),
            "All queries share one maximum: a query whose scores lie far below it loses "
            "everything.",
            "Along which axis does `amax` go?",
        ),
        Mistake(
            "maximum_for_logsumexp",
            wrong.blocked(end=lambda maxima, totals: maxima),
            "In the place of log sum exp you return the maximum; the sum is missing.",
            "log sum exp is maximum plus what?",
        ),
        Mistake(
            "maximum_not_added",
            wrong.blocked(end=lambda maxima, totals: totals.log()),
            "The logarithm of the sum lacks the maximum, which was subtracted in the exponent.",
            "What is log(exp(c) * total)?",
        ),
        Mistake(
            "total_for_logsumexp",
            wrong.blocked(end=lambda maxima, totals: totals),
            "In the place of log sum exp you return the sum.",
            "With the sum alone, could anybody compute a weight again?",
        ),
        Mistake(
            "unscaled_logsumexp",
            wrong.blocked(end=lambda maxima, totals: maxima + totals),
            "In log sum exp the logarithm is missing.",
            "What is log(exp(c) * total)?",
        ),
        Mistake(
            "keys_as_values",
            wrong.blocked(values_of=lambda keys, values: keys),
            "The outputs average the keys instead of the values.",
            "Which tensor is multiplied by the weights?",
        ),
        Mistake(
            "whole_mask_as_numbers",
            _with_whole_mask,
            "The numbers are right, but before the loop the mask becomes a floating-point number "
            "for each query and each key: n x m of them.",
            "Which columns of the mask does one block need?",
        ),
        Mistake(
            "all_at_once",
            wrong.at_once,
            "The numbers are right, but all scores, n x m of them, are there at the same time: in "
            "one tensor, or in a list of blocks.",
            "What has to stay of a block once it has been added?",
        ),
    ),
    properties=(
        Property("outside_values", _outside, "Which factors did sums and outputs get?"),
        Property("below_maximum", _below_maximum, "What does exp(largest - largest) add?"),
    ),
    hints=(
        "It is `softmax_statistics` with one more thing that runs along: the weighted sum of the "
        "values so far. It is shifted by the same maximum, so it needs the same factor.",
        "Before the loop: maxima -inf, totals 0, outputs 0. For each block: its scores, with -inf "
        "where the mask forbids; the larger maximum; fade totals and outputs by exp(old - larger); "
        "add the block's. After the loop: divide, and return maxima + log(totals) as well.",
        "for start in range(0, num_keys, block_size):\n"
        "    block = slice(start, start + block_size)\n"
        "    scores = queries @ keys[..., block, :].mT / root\n"
        "    ...  # mask[..., block], larger, shift\n"
        "    weights, fading = torch.exp(scores - shift), torch.exp(maxima - shift)\n"
        "    totals = totals * fading + weights.sum(dim=-1, keepdim=True)\n"
        "    outputs = outputs * fading + ...",
    ),
)
