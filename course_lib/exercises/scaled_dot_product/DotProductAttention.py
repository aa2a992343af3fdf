"""`DotProductAttention`: in eval and in train mode, with dropout judged from one call."""

import functools

import numpy as np

from course_lib.checks.judge.comparisons import dropout_values
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._attention.mistakes import known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._builders import FLOAT32, INDEPENDENT, Given, case, edge
from course_lib.exercises.scaled_dot_product._problems import (
    BOTH,
    EMPTY,
    MASK,
    PER_QUERY,
    SECOND_ROW_EMPTY,
    problem_of,
    random_mask,
)
from course_lib.exercises.scaled_dot_product.scaled_dot_product_attention import RETURNS, worked
from course_lib.reference import scaled_dot_product as oracle

_EVAL = "In eval mode nothing may be dropped, whatever `dropout` is."
_GRADIENT = (
    "The gradients of queries, keys and values must match the formula, also where a query may "
    "attend to no key."
)


def _module(dropout=0.0) -> Given:
    return {"construct": {"dropout": dropout}, "attributes": (KEPT,)}


def _values(rng) -> list[Probe]:
    problem = functools.partial(problem_of, rng)
    per_query = [[1, 4, 2], [3, 2, 4]]
    mask, past = random_mask(rng, 3, 5), np.tri(3, 5, 1, dtype=bool)
    wide = problem((8,), 16, 20, 3, 1)
    wide |= {"values": dropout_values(rng, 8, 20), "compare": "dropout_on_weights"}
    per_item = random_mask(rng, 2, 3, 5) | (np.arange(5) == 0)
    default: Given = {"construct": {}, "attributes": (KEPT,), "training": True}
    return [
        case("worked", **worked(), **_module(0.5)).says(_EVAL),
        case("lengths_per_query", **problem((2,), 3, 5, 4, 6, per_query), **_module()).says(
            PER_QUERY
        ),
        case("mask", **problem((2,), 3, 5, 7, 6, mask=mask), **_module()).says(MASK),
        case("lengths_and_mask", **problem((2,), 3, 5, 4, 6, [3, 4], past), **_module(0.3)).says(
            BOTH
        ),
        case(
            "dropout_in_train", **wide, **_module(0.2), training=True, seed=int(rng.integers(9999))
        ).says(
            "In train mode each attention weight must be dropped with probability `dropout` and "
            "the others divided by 1 - dropout; `attention_weights` must hold the weights before "
            "dropout."
        ),
        case("train_as_made", **problem((2,), 3, 5, 4, 6, [3, 4], per_item), **default).says(
            "`dropout` is 0 by default; train mode must then equal eval mode, even with lengths "
            "and a mask."
        ),
    ]


def _edges(rng) -> list[Probe]:
    problem = functools.partial(problem_of, rng)
    nothing = np.zeros((3, 4), dtype=bool)
    late = np.tri(3, 4, 0, dtype=bool)[:, ::-1]  # with two keys, two queries of item 0 are empty
    other_call: Given = {"scenario": "after_another_call"}
    return [
        edge("empty_mask", **problem((2,), 3, 4, 5, 2, mask=nothing), **_module()).says(EMPTY),
        edge("empty_by_both", **problem((2,), 3, 4, 5, 2, [2, 4], late), **_module()).says(EMPTY),
        edge("four_axes", **problem((2, 3), 2, 4, 5, 6, [3, 1]), **_module()).says(
            "Like the function, the module must accept any number of leading axes."
        ),
        edge("float32", **problem((2,), 3, 5, 4, 6, [3, 4]), **_module(0.1), **FLOAT32).says(
            "Float32 inputs must work and give float32 outputs."
        ),
        edge(
            "after_another_call", **problem((2,), 3, 4, 3, 5, [3, 2]), **_module(0.1), **other_call
        ).says(INDEPENDENT),
        edge(
            "after_a_call_with_lengths",
            **problem((1,), 2, 3, 2, 1),
            **_module(0.1),
            scenario="after_a_call_with_lengths",
        ).says(INDEPENDENT),
        *largest_padding(rng, with_mask=True, construct={}, attributes=(KEPT,)),
        *far_above(rng, construct={}, attributes=(KEPT,), by_name={"mask": FAR}),
    ]


def _gradients(rng) -> list[Probe]:
    given = problem_of(rng, (1,), 2, 3, 2, 2, requires_grad=True)
    given |= {"grad_outputs": rng.normal(size=(1, 2, 2))}
    empty = given | {"by_name": {"mask": SECOND_ROW_EMPTY}}
    return [
        case("gradient", **given, valid_lens=[2], **_module(0.5)).says(_GRADIENT),
        case("gradient_in_train_mode", **empty, **_module(), training=True).says(_GRADIENT),
    ]


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    builds_on=("scaled_dot_product_attention",),
    is_class=True,
    returns=(RETURNS[0],),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    oracle=oracle.dot_product_attention,
    mistakes=known(AttentionModule),
    properties=WEIGHTS,
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
