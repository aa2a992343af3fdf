"""`scaled_dot_product_attention`: every part of a wrong one has a problem of its own."""

import numpy as np

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
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import scaled_dot_product as oracle


def _values_probes(rng):
    zero_query = problem_of(rng, (2,), 3, 5, 4, 6)
    zero_query = replaced(zero_query, queries=np.zeros((2, 3, 4)))
    twice = problem_of(rng, (2,), 3, 4, 6, 2)
    twice = replaced(
        twice, **{k: np.concatenate([twice[k].data] * 2, -1) for k in ("queries", "keys")}
    )
    identity = problem_of(rng, (2,), 3, 5, 7, 5)
    identity = replaced(identity, values=np.stack([np.eye(5)] * 2))
    return [
        Probe(
            "tiny",
            "The outputs must be softmax(Q K^T / sqrt(d)) V, and the weights that softmax.",
            args=tiny(),
        ),
        Probe(
            "batch",
            "Each item of a batch must be worked out with its own queries, keys and values.",
            args=problem_of(rng, (2,), 3, 4, 5, 6),
        ),
        Probe(
            "values_identity",
            "With values that form an identity matrix the outputs are the weights, and the ratio "
            "of two weights is exp of the difference of q . k / sqrt(d).",
            args=identity,
        ),
        Probe(
            "twice_the_features",
            "Writing every feature down twice doubles q . k and d, so the scaled scores grow by "
            "sqrt(2).",
            args=twice,
        ),
        Probe(
            "matrices",
            "Without a batch axis it must work too: queries (n, d), keys (m, d), values (m, v).",
            args=problem_of(rng, (), 8, 9, 3, 2),
            kwargs={"mask": tensor(random_mask(rng, 8, 9))},
        ),
        Probe(
            "lengths_per_item",
            "One length an item: keys beyond it get weight 0, as if they were deleted.",
            args={**problem_of(rng, (3,), 2, 5, 3, 4), "valid_lens": tensor([4, 1, 3])},
        ),
        Probe(
            "lengths_per_query",
            "Lengths of shape (batch, num_queries) give every query a length of its own.",
            args={
                **problem_of(rng, (2,), 3, 5, 6, 4),
                "valid_lens": tensor([[1, 4, 2], [3, 2, 4]]),
            },
        ),
        Probe(
            "mask_of_all_items",
            "A (num_queries, num_keys) mask holds for every item; False gets weight 0.",
            args=problem_of(rng, (2,), 3, 5, 4, 6, strided=True),
            kwargs={"mask": tensor(random_mask(rng, 3, 5))},
        ),
        Probe(
            "lengths_and_mask",
            "With lengths and a mask, a key must be allowed by both.",
            args={**problem_of(rng, (2,), 4, 4, 7, 6), "valid_lens": tensor([2, 3])},
            kwargs={"mask": tensor(np.tril(np.ones((4, 4), dtype=bool), 1))},
        ),
        Probe(
            "heads",
            "With (batch, heads, n, d) the lengths (batch,) hold for every head.",
            args={**problem_of(rng, (2, 3), 4, 5, 7, 6), "valid_lens": tensor([2, 4])},
        ),
        Probe(
            "heads_and_mask",
            "Non-contiguous queries, keys and values with heads must work, as a transpose makes "
            "them; a mask of shape (batch, 1, n, m) holds for every head of its item.",
            args=problem_of(rng, (2, 3), 4, 5, 6, 7, strided=True),
            kwargs={"mask": tensor(random_mask(rng, 2, 1, 4, 5))},
        ),
        Probe(
            "mask_per_item",
            "A (batch, num_queries, num_keys) mask holds for each item on its own.",
            args={
                **problem_of(rng, (2,), 3, 5, 4, 6),
                "valid_lens": tensor([[4, 2, 5], [3, 5, 1]]),
            },
            kwargs={"mask": tensor(random_mask(rng, 2, 3, 5) | (np.arange(5) == 0))},
        ),
        Probe(
            "mask_of_padding",
            "A (batch, 1, num_keys) mask holds for every query of an item.",
            args=problem_of(rng, (2,), 3, 5, 6, 4),
            kwargs={"mask": tensor([[[True, True, False, True, False]], [[False] + [True] * 4]])},
        ),
        Probe(
            "heads_lengths_and_mask",
            "With heads, lengths and a mask for each head, a key must be allowed by both.",
            args={**problem_of(rng, (2, 3), 4, 5, 7, 6), "valid_lens": tensor([3, 4])},
            kwargs={"mask": tensor(random_mask(rng, 2, 3, 4, 5) | (np.arange(5) == 0))},
        ),
        Probe(
            "as_many_of_everything",
            "Three items of three queries, four keys of four features: what has the same size is "
            "not the same axis.",
            args={**problem_of(rng, (3,), 3, 4, 4, 6), "valid_lens": tensor([4, 1, 3])},
        ),
        Probe(
            "zero_query",
            "A query of zeros scores all keys alike: its output is the mean of the allowed values.",
            args={**zero_query, "valid_lens": tensor([4, 2])},
        ),
        Probe(
            "one_allowed_key",
            "A query that may attend to one key only returns the value of that key.",
            args={**problem_of(rng, (2,), 4, 6, 5, 3), "valid_lens": tensor([1, 1])},
        ),
    ]


def _edge_probes(rng):
    zeros = replaced(problem_of(rng, (), 2, 3, 4, 5), queries=np.zeros((2, 4)))
    item = replaced(problem_of(rng, (2,), 2, 3, 4, 5), queries=np.zeros((2, 2, 4)))
    large = replaced(
        problem_of(rng, (1,), 2, 3, 4, 2),
        queries=[[[900.0, 0, 0, 0], [0, 900.0, 0, 0]]],
        keys=[[[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]]],
    )

    def low(size):
        return replaced(
            problem_of(rng, (1,), 1, 4, 4, 2),
            queries=[[[size, 0, 0, 0]]],
            keys=[[[-1e5, 0, 0, 0], [-3e5, 0, 0, 0], [-2e5, 0, 0, 0], [-4e5, 1e5, 0, 0]]],
        )

    garbage = problem_of(rng, (2,), 2, 5, 3, 4)
    keys, values = garbage["keys"].data.copy(), garbage["values"].data.copy()
    keys[:, 3:], values[:, 3:] = 1e5 * keys[:, 3:], 1e5 * values[:, 3:]
    garbage = replaced(garbage, queries=np.zeros((2, 2, 3)), keys=keys, values=values)
    return [
        Probe(
            "masked_score_far_above",
            "A masked key changes nothing, however large its score is.",
            part="edges",
            args=far_above(rng),
            kwargs={"mask": tensor([[True, True, False]])},
        ),
        Probe(
            "empty_row",
            "A query that may attend to nothing gets output 0 and weights 0.",
            part="edges",
            args=zeros,
            kwargs={"mask": tensor(EMPTY)},
        ),
        Probe(
            "length_zero",
            "An item of length 0 gets outputs 0 and weights 0, not NaN and not the mean.",
            part="edges",
            args={**item, "valid_lens": tensor([0, 2])},
        ),
        Probe(
            "lengths_zero",
            "Where no item has a real key, all outputs and weights are 0: 0 is a length too.",
            part="edges",
            args={**problem_of(rng, (2,), 3, 4, 5, 2), "valid_lens": tensor([0, 0])},
        ),
        Probe(
            "int32_lengths",
            "Lengths may be int32 as well as int64.",
            part="edges",
            args={
                **problem_of(rng, (2,), 3, 4, 5, 2),
                "valid_lens": tensor(np.array([[1, 4, 2], [3, 2, 0]], dtype=np.int32)),
            },
        ),
        Probe(
            "mask_of_keys",
            "A (num_keys,) mask holds for every query of every item.",
            part="edges",
            args=problem_of(rng, (2,), 3, 5, 4, 6),
            kwargs={"mask": tensor([True, False, True, True, False])},
        ),
        Probe(
            "heads_and_lengths_per_query",
            "With heads, lengths of shape (batch, num_queries) hold for every head.",
            part="edges",
            args={
                **problem_of(rng, (2, 3), 4, 5, 7, 6),
                "valid_lens": tensor([[3, 5, 2, 4], [4, 1, 5, 3]]),
            },
        ),
        Probe(
            "five_axes",
            "Any number of leading axes must work.",
            part="edges",
            args={**problem_of(rng, (2, 1, 2), 3, 4, 5, 2), "valid_lens": tensor([3, 1])},
        ),
        Probe(
            "float32",
            "Queries, keys and values in float32 give outputs and weights in float32.",
            part="edges",
            args={**problem_of(rng, (2,), 3, 5, 4, 6), "valid_lens": tensor([2, 4])},
            dtype="float32",
            tolerance=1e-4,
        ),
        Probe(
            "between_other_calls",
            "Each call counts on its own: other calls with the same shapes change nothing.",
            part="edges",
            args={**problem_of(rng, (2,), 3, 4, 5, 2), "valid_lens": tensor([3, 1])},
            scenario="between_calls",
        ),
        Probe(
            "large_scores",
            "Scores may be very large, and the weights still follow them: neither overflow nor a "
            "limit.",
            part="edges",
            args=large,
        ),
        Probe(
            "very_low_scores",
            "Scores may be very low (-5e7 here and less): the allowed keys still share a weight "
            "of 1, and masked ones, filled with -1e6 perhaps, have none.",
            part="edges",
            args={**low(1e3), "valid_lens": tensor([2])},
        ),
        Probe(
            "lowest_scores",
            "Scores may be very low (-5e11 here and less): the allowed keys still share a weight "
            "of 1, and masked ones, filled with -1e9 perhaps, have none.",
            part="edges",
            args={**low(1e7), "valid_lens": tensor([2])},
        ),
        Probe(
            "garbage_behind_the_mask",
            "Whatever stands in masked keys and values changes nothing.",
            part="edges",
            args={**garbage, "valid_lens": tensor([3, 2])},
        ),
        Probe(
            "ones",
            "One item, one query, one key: no axis may be lost.",
            part="edges",
            args=problem_of(rng, (1,), 1, 1, 1, 1),
        ),
    ]


def _gradient_probes(rng):
    def problem(batch, n, m, d, v):
        return problem_of(rng, batch, n, m, d, v, requires_grad=True)

    return [
        Probe(
            "gradient",
            "The gradients of queries, keys and values must be those of the formula.",
            part="gradients",
            args={**problem((1,), 2, 4, 3, 2), "valid_lens": tensor([3])},
            grad_outputs=rng.normal(0, 1, (1, 2, 2)),
        ),
        Probe(
            "gradient_without_mask",
            "The gradients of queries, keys and values must be those of the formula.",
            part="gradients",
            args=problem((), 3, 2, 4, 1),
            grad_outputs=rng.normal(0, 1, (3, 1)),
        ),
        Probe(
            "gradient_with_empty_row",
            "An empty row has gradient 0; it must not turn the other gradients into NaN.",
            part="gradients",
            args=problem((), 2, 3, 2, 2),
            kwargs={"mask": tensor(EMPTY)},
            grad_outputs=rng.normal(0, 1, (2, 2)),
        ),
    ]


def _without_mask(queries, keys, values, valid_lens=None):
    return make.wrong()(queries, keys, values, valid_lens)


RETURNS = (
    Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
    Returned("attention_weights", "tensor", "float", ("...", "num_queries", "num_keys")),
)

SCALED_DOT_PRODUCT_ATTENTION = Exercise(
    name="scaled_dot_product_attention",
    points=8,
    minutes=35,
    difficulty=2,
    returns=RETURNS,
    probes=lambda rng: [*_values_probes(rng), *_edge_probes(rng), *_gradient_probes(rng)],
    oracle=oracle.scaled_dot_product_attention,
    builds_on=("masked_softmax", "batched_scores", "weighted_sum"),
    forbidden={
        "scaled_dot_product_attention": "Here you write it yourself; the section after it compares."
    },
    mistakes=(
        Mistake(
            "mask_not_accepted",
            _without_mask,
            "Your function takes no `mask`.",
            "Which arguments does the exercise give it?",
        ),
        *singles(),
        *pairs(),
    ),
    properties=PROPERTIES,
    hints=(
        "Three steps, each of which you have: compare every query with every key, turn the scores "
        "of a row into weights, average the values with them. The number of features tells how "
        "far the scores must be brought down.",
        "scores = Q K^T / sqrt(d), shape (..., n, m): `keys.mT` turns the last two axes only. "
        "Weights from `masked_softmax`, with lengths and mask. Outputs: weights times values.",
        "scores = queries @ keys.mT / math.sqrt(queries.shape[-1])\n"
        "attention_weights = masked_softmax(scores, ..., ...)\n"
        "return attention_weights @ ..., attention_weights",
    ),
)
