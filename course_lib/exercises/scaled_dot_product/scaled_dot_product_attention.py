"""`scaled_dot_product_attention`: every part of a wrong one has a problem of its own."""

import functools

import numpy as np

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import OWN_SOFTMAX, known
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import largest_padding
from course_lib.exercises._rows import Given
from course_lib.exercises.scaled_dot_product._problems import (
    EMPTY,
    PROPERTIES,
    large,
    problem_of,
    random_mask,
    replaced,
)
from course_lib.reference import scaled_dot_product as oracle

_FORMULA = "The outputs must be softmax(Q K^T / sqrt(d)) V, and the weights that softmax."
_MASK = "A key with False in the mask gets weight 0, as if it were deleted."
_BOTH = "With lengths and a mask, a key must be allowed by both."
_EMPTY = "A query that may attend to no key gets zeros in outputs and weights."
_HEADS = "Lengths belong to the first axis: with (batch, heads, n, d), they hold for every head."


def worked() -> Given:
    """The worked number of the statement."""
    return {
        "queries": tensor([[[2.0, 0, 0, 0]]]),
        "keys": tensor([[[1.0, 0, 0, 0], [0.0, 0, 0, 0]]]),
        "values": tensor([[[10.0], [0.0]]]),
    }


def _values_probes(rng) -> list[Probe]:
    def problem(*shape, **options) -> Given:
        return problem_of(rng, *shape, **options)

    return [
        Probe("worked", _FORMULA, args=worked()),
        Probe("batch", "Each item of a batch must use its own queries, keys and values.",
              args=problem((2,), 3, 4, 5, 6)),
        Probe("matrices", "Without a batch axis it must work too: queries (n, d), keys (m, d), "
              "values (m, v).", args=problem((), 4, 5, 3, 2)),
        Probe("lengths_per_item", "Lengths of shape (batch,) give every item its own length.",
              args={**problem((3,), 2, 5, 6, 4), "valid_lens": tensor([4, 1, 3])}),
        Probe("lengths_per_query", "Lengths of shape (batch, num_queries) give every query its "
                                   "own length.",
              args={**problem((2,), 3, 5, 6, 4), "valid_lens": tensor([[1, 4, 2], [3, 2, 4]])}),
        Probe("mask_of_all_items", _MASK, args=problem((2,), 3, 4, 5, 6, strided=True),
              kwargs={"mask": tensor(random_mask(rng, 3, 4))}),
        Probe("lengths_and_mask", _BOTH,
              args={**problem((2,), 3, 4, 7, 6), "valid_lens": tensor([2, 3])},
              kwargs={"mask": tensor(np.tril(np.ones((3, 4), dtype=bool), 1))}),
    ]  # fmt: skip


def _edge(name, says, args, mask=None, **options) -> Probe:
    kwargs = {} if mask is None else {"mask": tensor(mask)}
    return Probe(name, says, part="edges", args=args, kwargs=kwargs, **options)


def _edge_probes(rng) -> list[Probe]:
    problem, probe = functools.partial(problem_of, rng), _edge
    zeros = replaced(problem((), 2, 3, 4, 5), queries=np.zeros((2, 4)))
    return [
        probe("empty_row", _EMPTY, zeros, EMPTY),
        probe("lengths_zero", _EMPTY, {**problem((2,), 3, 4, 5, 2), "valid_lens": tensor([0, 0])}),
        probe("large_scores", "Scores may be very large, and the weights must still follow them, "
                              "without overflow or clipping.", large(rng, batch=(1,))),
        probe("mask_of_keys", "A (num_keys,) mask holds for every query of every item.",
              problem((2,), 3, 5, 4, 6), [True, False, True, True, False]),
        probe("mask_of_padding", "A (batch, 1, num_keys) mask holds for every query of an item.",
              problem((2,), 3, 5, 6, 4),
              [[[True, True, False, True, False]], [[False] + [True] * 4]]),
        probe("mask_per_item", _BOTH,
              {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([[4, 2, 5], [3, 5, 1]])},
              random_mask(rng, 2, 3, 5) | (np.arange(5) == 0)),
        probe("heads_and_mask", "A (batch, 1, n, m) mask holds for every head of its item.",
              problem((2, 3), 4, 5, 6, 7, strided=True), random_mask(rng, 2, 1, 4, 5)),
        probe("heads_and_lengths_per_query", _HEADS,
              {**problem((2, 3), 4, 5, 7, 6), "valid_lens": tensor([[3, 5, 2, 4], [4, 1, 5, 3]])}),
        *largest_padding(valid_lens=[2]),
    ]  # fmt: skip


def _size_probes(rng) -> list[Probe]:
    problem, probe = functools.partial(problem_of, rng), _edge
    return [
        probe("five_axes", "Any number of leading axes must work.",
              {**problem((2, 1, 2), 3, 4, 5, 2), "valid_lens": tensor([3, 1])}),
        probe("one_key", "A single key gets weight 1.", problem((1,), 1, 1, 1, 1)),
        probe("float32", "Float32 queries, keys and values must work and give float32.",
              {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([2, 4])}, dtype="float32",
              tolerance=1e-4),
        probe("between_other_calls", "Each call is independent: other calls with the same shapes "
                                     "change nothing.",
              {**problem((2,), 3, 4, 5, 2), "valid_lens": tensor([3, 1])},
              scenario="between_calls"),
    ]  # fmt: skip


def _gradient_probes(rng) -> list[Probe]:
    def probe(name, says, batch, n, m, d, v, mask=None, **args) -> Probe:
        return Probe(
            name,
            says,
            part="gradients",
            args={**problem_of(rng, batch, n, m, d, v, requires_grad=True), **args},
            kwargs={} if mask is None else {"mask": tensor(mask)},
            grad_outputs=rng.normal(0, 1, (*batch, n, v)),
        )

    formula = "The gradients of queries, keys and values must be those of the formula."
    empty = "A query without keys gets gradient 0 and must not turn the others into NaN."
    return [
        probe("gradient", formula, (1,), 2, 3, 2, 2, valid_lens=tensor([2])),
        probe("gradient_with_empty_row", empty, (), 2, 3, 1, 1, EMPTY),
    ]  # fmt: skip


RETURNS = (
    Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
    Returned("attention_weights", "tensor", "float", ("...", "num_queries", "num_keys")),
)

EXERCISE = Exercise(
    points=8,
    minutes=20,
    difficulty=2,
    returns=RETURNS,
    probes=lambda rng: [
        *(*_values_probes(rng), *_edge_probes(rng)),
        *(*_size_probes(rng), *_gradient_probes(rng)),
    ],
    oracle=oracle.scaled_dot_product_attention,
    builds_on=("masked_softmax", "batched_scores", "attention_pooling"),
    forbidden={
        "scaled_dot_product_attention": "Here you write it yourself; the section after it compares."
    },
    mistakes=known(Attention, without=OWN_SOFTMAX),
    properties=PROPERTIES,
    hints=(
        "Three steps, all of which you already have: compare every query with every key, turn the "
        "scores of a row into weights, average the values with them. The number of features tells "
        "you how far to scale the scores down.",
        "scores = Q K^T / sqrt(d), shape (..., n, m): `keys.mT` swaps the last two axes only. "
        "Weights from `masked_softmax`, with lengths and mask. Outputs: weights times values.",
        "Take one query, two keys and d = 4: a score is the dot product over 2, and the two "
        "weights sum to 1. If that works with three axes but not with four, look at how you "
        "transpose the keys.",
    ),
)
