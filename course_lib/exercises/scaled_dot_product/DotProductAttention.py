"""`DotProductAttention`: in eval and in train mode, with dropout judged from one call."""

import functools
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import dropout_values
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import OWN_SOFTMAX, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import largest_padding
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._rows import INDEPENDENT
from course_lib.exercises.scaled_dot_product._problems import (
    problem_of,
    random_mask,
    wrong_factor,
)
from course_lib.exercises.scaled_dot_product.scaled_dot_product_attention import RETURNS, worked
from course_lib.reference import scaled_dot_product as oracle

_EVAL = "In eval mode nothing is dropped, whatever `dropout` is."
_MASK = "A key with False in the mask gets weight 0, as if it were deleted."
_BOTH = "With lengths and a mask, a key must be allowed by both."
_TRAIN = (
    "In train mode each attention weight is dropped with probability `dropout` and the others are "
    "divided by 1 - dropout; `attention_weights` holds the weights from before that."
)
_EMPTY = "A query that may attend to no key gets output 0 and weights 0."
_GRADIENT = "The gradients of queries, keys and values must be those of the formula."


def probe(name, says, args, dropout=0.0, mask=None, **options: Any) -> Probe:
    options = {"construct": {"dropout": dropout}, "attributes": (KEPT,), **options}
    kwargs = {} if mask is None else {"mask": tensor(mask)}
    return Probe(name, says, args=args, kwargs=kwargs, **options)


_LENS = {"valid_lens": tensor([3, 4])}


def _values(rng) -> list[Probe]:
    problem, lens = functools.partial(problem_of, rng), _LENS
    wide = {
        "queries": tensor(rng.normal(0, 1.2, (8, 16, 3))),
        "keys": tensor(rng.normal(0, 1.2, (8, 20, 3))),
        "values": tensor(dropout_values(rng, 8, 20)),
    }
    long = {"valid_lens": tensor(np.array([14, 20, 17, 19, 20, 16, 18, 15]))}
    drawn = {"compare": "dropout_on_weights", "training": True}
    return [
        probe("worked", _EVAL, worked(), 0.5),
        probe("batch", _EVAL, problem((2,), 3, 5, 6, 4), 0.5),
        probe("lengths_per_query", "Lengths of shape (batch, num_queries) give every query its "
                                   "own length.",
              {**problem((2,), 3, 5, 4, 6), "valid_lens": tensor([[1, 4, 2], [3, 2, 4]])}),
        probe("mask", _MASK, problem((2,), 3, 5, 7, 6, strided=True), mask=random_mask(rng, 3, 5)),
        probe("lengths_and_mask", _BOTH, {**problem((2,), 3, 5, 4, 6), **lens}, 0.3,
              np.tril(np.ones((3, 5), dtype=bool), 1)),
        probe("train_with_dropout", _TRAIN, wide, 0.5, seed=int(rng.integers(1, 10_000)), **drawn),
        probe("train_with_rare_dropout", _TRAIN, {**wide, **long}, 0.2,
              seed=int(rng.integers(1, 10_000)), **drawn),
        probe("train_as_made", "`dropout` is 0 by default; train mode is then the same as eval "
                               "mode, also with lengths and a mask.",
              {**problem((2,), 3, 5, 4, 6), **lens},
              mask=random_mask(rng, 2, 3, 5) | (np.arange(5) == 0), construct={}, training=True),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    problem, lens = functools.partial(problem_of, rng), _LENS
    edge = functools.partial(probe, part="edges")
    return [
        edge("lengths_zero", _EMPTY, {**problem((2,), 3, 4, 5, 2), "valid_lens": tensor([0, 0])}),
        edge("empty_mask", _EMPTY, problem((2,), 3, 4, 5, 2), mask=np.zeros((3, 4), dtype=bool)),
        edge("mask_of_keys", "A (num_keys,) mask holds for every query of every item.",
             problem((2,), 3, 5, 4, 6), mask=[True, False, True, True, False]),
        edge("heads_lengths_and_mask", _BOTH,
             {**problem((2, 3), 4, 5, 7, 6),
              "valid_lens": tensor(np.array([[3, 5, 2, 4], [4, 1, 5, 3]], dtype=np.int32))},
             mask=random_mask(rng, 2, 3, 4, 5) | (np.arange(5) == 0)),
        edge("float32", "Float32 inputs must work and give float32 outputs.",
             {**problem((2,), 3, 5, 4, 6), **lens}, 0.1, dtype="float32", tolerance=1e-4),
        edge("after_another_call", INDEPENDENT,
             {**problem((2,), 3, 4, 3, 5), "valid_lens": tensor([3, 2])}, 0.1,
             scenario="after_another_call"),
        *largest_padding(valid_lens=[2], construct={}, attributes=(KEPT,)),
    ]  # fmt: skip


def _gradients(rng) -> list[Probe]:
    grads = problem_of(rng, (1,), 2, 3, 2, 2, requires_grad=True)
    grad_outputs = rng.normal(0, 1, (1, 2, 2))
    return [
        probe("gradient", _GRADIENT, {**grads, "valid_lens": tensor([2])}, 0.5, part="gradients",
              grad_outputs=grad_outputs),
        probe("gradient_in_train_mode", _GRADIENT, grads, part="gradients", training=True,
              grad_outputs=grad_outputs),
    ]  # fmt: skip


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    starred=True,
    is_class=True,
    returns=(RETURNS[0],),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    oracle=oracle.dot_product_attention,
    builds_on=("masked_softmax", "scaled_dot_product_attention"),
    mistakes=known(AttentionModule, without=OWN_SOFTMAX | {"divided_by_d", "keys_reshaped"}),
    properties=(wrong_factor(KEPT), *WEIGHTS),
    hints=(
        "It is the function you wrote, with a dropout layer between its weights and the values, "
        "and one line that remembers the weights.",
        "Make an `nn.Dropout(dropout)` in `__init__`: it follows train and eval mode by itself. "
        "In `forward`: compute the weights, store them detached, drop, multiply by the values.",
        "_, weights = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(...) @ values",
    ),
)
