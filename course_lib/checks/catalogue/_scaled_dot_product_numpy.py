"""`numpy_attention`: from scratch, without lengths and without a batch."""

import math

import numpy as np
import torch

from course_lib.checks.catalogue import _scaled_dot_product_mistakes as make
from course_lib.checks.catalogue._scaled_dot_product_pairs import pairs, singles
from course_lib.checks.catalogue._scaled_dot_product_problems import (
    EMPTY,
    PROPERTIES,
    far_above,
    problem_of,
    random_mask,
    replaced,
    tiny,
)
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, array
from course_lib.reference import scaled_dot_product as oracle


def _numpy_probes(rng):
    def problem(n, m, d, v, **options):
        return problem_of(rng, (), n, m, d, v, make_array=array, **options)

    zeros = replaced(problem(2, 3, 4, 5), queries=np.zeros((2, 4)))
    nothing = replaced(problem(3, 5, 7, 6), queries=np.zeros((3, 7)))
    large = replaced(
        problem(2, 3, 4, 2),
        queries=[[900.0, 0, 0, 0], [0, 900.0, 0, 0]],
        keys=[[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]],
    )

    def low(size):
        return replaced(
            problem(1, 4, 4, 2),
            queries=[[size, 0, 0, 0]],
            keys=[[-1e5, 0, 0, 0], [-3e5, 0, 0, 0], [-2e5, 0, 0, 0], [-4e5, 1e5, 0, 0]],
        )

    identity = replaced(problem(3, 5, 7, 5), values=np.eye(5))
    return [
        Probe(
            "tiny",
            "The outputs must be softmax(Q K^T / sqrt(d)) V, and the weights that softmax.",
            args=tiny(array, batch=False),
        ),
        Probe(
            "random",
            "Every query attends to all keys: its row of weights sums to 1.",
            args=problem(3, 5, 6, 4),
        ),
        Probe(
            "values_identity",
            "With values that form an identity matrix the outputs are the weights, and the ratio "
            "of two weights is exp of the difference of q . k / sqrt(d).",
            args=identity,
        ),
        Probe(
            "masked",
            "True = may attend: keys with False get weight 0, as if they were deleted.",
            args={**problem(3, 4, 5, 2), "mask": array(random_mask(rng, 3, 4))},
        ),
        Probe(
            "causal",
            "A lower triangular mask lets no query see a later key.",
            args={**problem(4, 4, 6, 3), "mask": array(np.tri(4, dtype=bool))},
        ),
        Probe(
            "one_row_mask",
            "A mask of shape (1, num_keys) holds for every query.",
            args={
                **problem(4, 5, 7, 2, strided=True),
                "mask": array([[True, False, True, True, False]]),
            },
        ),
        Probe(
            "zero_query",
            "A query of zeros scores all keys alike: its output is the mean of the allowed values.",
            args={**nothing, "mask": array(random_mask(rng, 3, 5))},
        ),
        Probe(
            "large_scores",
            "Scores may be very large: exp(1000) is inf, yet the weights exist, and no limit is "
            "set to the scores.",
            part="edges",
            args=large,
        ),
        Probe(
            "mask_of_keys",
            "A (num_keys,) mask holds for every query.",
            part="edges",
            args={**problem(3, 4, 5, 2), "mask": array([True, False, True, True])},
        ),
        Probe(
            "masked_score_far_above",
            "A masked key changes nothing, however large its score is.",
            part="edges",
            args={**far_above(rng, array), "mask": array([[True, True, False]])},
        ),
        Probe(
            "empty_row",
            "A query that may attend to nothing gets output 0 and weights 0.",
            part="edges",
            args={**zeros, "mask": array(EMPTY)},
        ),
        Probe(
            "nothing_allowed",
            "Where the mask allows nothing at all, all outputs and weights are 0.",
            part="edges",
            args={**problem(2, 4, 3, 5), "mask": array(np.zeros((2, 4), dtype=bool))},
        ),
        Probe(
            "very_low_scores",
            "Scores may be very low (-5e7 here and less): the allowed keys still share a weight "
            "of 1, and masked ones, filled with -1e6 perhaps, have none.",
            part="edges",
            args={**low(1e3), "mask": array([[True, True, False, False]])},
        ),
        Probe(
            "lowest_scores",
            "Scores may be very low (-5e11 here and less): the allowed keys still share a weight "
            "of 1, and masked ones, filled with -1e9 perhaps, have none.",
            part="edges",
            args={**low(1e7), "mask": array([[True, True, False, False]])},
        ),
    ]


def _recoded_twice(scores, allowed, dim):
    numbers = torch.where(allowed, 1.0, 0.0).double()
    for _ in range(0 if allowed.all() else 2):  # the cell that recodes 0 and 1, run twice
        numbers = numbers.masked_fill(numbers == 0, -math.inf).masked_fill(numbers == 1, 0.0)
    return torch.softmax(scores + (0.0 if allowed.all() else numbers), dim)


def _maximum(over):
    """The right one but for the axes over which the maximum is taken."""

    def masked_softmax(scores, allowed, dim):
        kept = scores.masked_fill(~allowed, -math.inf)
        largest = kept.amax(over, keepdim=True)
        e = torch.exp(kept - largest.masked_fill(largest == -math.inf, 0.0))
        total = e.sum(dim, keepdim=True)
        return e / total.masked_fill(total == 0, 1.0)

    return masked_softmax


make.MASKINGS |= {
    "recoded_twice": _recoded_twice,
    "maximum_of_matrix": _maximum((-2, -1)),
    "maximum_of_columns": _maximum(-2),
}


def _mask_overwritten(queries, keys, values, mask=None):
    outputs = make.in_numpy(make.wrong())(queries, keys, values, mask)
    if mask is not None:
        mask[...] = ~mask
    return outputs


_NUMPY_ONLY = (
    Mistake(
        "mask_recoded_twice",
        make.in_numpy(make.wrong(masking="recoded_twice")),
        "With a mask everything becomes NaN. Either the mask is turned from 0 and 1 into -inf and "
        "0 twice, so that the zeros that mean 'keep' are taken for 'drop'; or -inf is multiplied "
        "by 0, which is NaN.",
        "What does your recoding do to a key that is allowed, and what if it is done twice?",
    ),
    Mistake(
        "maximum_of_matrix",
        make.in_numpy(make.wrong(masking="maximum_of_matrix")),
        "You subtract the largest score of the whole matrix. A row whose scores are far below it "
        "vanishes: all its exponentials are 0.",
        "Which scores share one softmax, and so one maximum?",
    ),
    Mistake(
        "maximum_of_columns",
        make.in_numpy(make.wrong(masking="maximum_of_columns")),
        "You subtract the maximum of each column, another number for each key: that changes the "
        "weights.",
        "Which axis of the scores holds the keys of one query?",
    ),
    Mistake(
        "mask_overwritten",
        _mask_overwritten,
        "The result is right, but the caller's mask holds other values after the call.",
        "Which line writes into `mask`?",
    ),
    Mistake(
        "mask_transposed",
        make.in_numpy(
            make.wrong(
                allow=lambda scores, lens, mask: (
                    make.allowed_keys(scores)
                    if mask is None
                    else make.allowed_keys(scores, None, mask.mT)
                    if mask.shape[-1] == mask.shape[-2]
                    else make.allowed_keys(scores, None, mask)
                )
            )
        ),
        "A square mask is used transposed: row i of the mask belongs to query i.",
        "Which axis of the mask holds the keys?",
    ),
)

NUMPY_ATTENTION = Exercise(
    name="numpy_attention",
    points=4,
    minutes=25,
    difficulty=2,
    returns=(
        Returned("outputs", "array", "float", ("num_queries", "v")),
        Returned("attention_weights", "array", "float", ("num_queries", "num_keys")),
    ),
    probes=_numpy_probes,
    oracle=oracle.numpy_attention,
    builds_on=("stable_softmax",),
    mistakes=[
        mistake
        for mistake in (*singles(make.in_numpy, lengths=False), *_NUMPY_ONLY)
        if mistake.id
        not in (
            "root_of_first_axis",
            "batch_rolled",
            "keys_of_first_item",
            "over_batch",
            "three_axes_only",
            "gradient_cut",
            "empty_row_gradient_nan",
            "dropout_always_on",
            "dropout_always_on_tenth",
            "queries_overwritten",
        )
    ]
    + [
        mistake
        for mistake in pairs(make.in_numpy, lengths=False)
        if not mistake.id.startswith("queries_overwritten")
    ],
    properties=PROPERTIES,
    hints=(
        "Every output is an average of the values. The weights of the average come from comparing "
        "the query with every key.",
        "scores = Q K^T / sqrt(d); where the mask is False put -inf; subtract each row's maximum, "
        "take exp, divide by the row's sum. A row of nothing but -inf needs a thought of its own: "
        "its maximum is -inf, and its sum is 0.",
        "scores = queries @ keys.T / math.sqrt(queries.shape[-1])\n"
        "scores = np.where(mask, scores, -np.inf)  # if there is a mask\n"
        "largest = scores.max(axis=-1, keepdims=True)\n"
        "largest[np.isneginf(largest)] = 0\n"
        "exponentials = np.exp(scores - largest)\n"
        "totals = ...",
    ),
)
