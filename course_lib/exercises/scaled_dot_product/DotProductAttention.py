"""`DotProductAttention`: in eval and in train mode, with dropout judged from one call."""

import functools
from typing import Any

import numpy as np

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._attention.dropout import DROPPING, dropout_values
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises.kit import INDEPENDENT, Problems, call
from course_lib.exercises.scaled_dot_product._problems import (
    BOTH,
    EMPTY,
    MASK,
    PER_QUERY,
    SECOND_ROW_EMPTY,
    WORKED,
    drawn,
    random_mask,
)
from course_lib.exercises.scaled_dot_product.scaled_dot_product_attention import RETURNS
from course_lib.reference import scaled_dot_product as oracle

_EVAL = "In eval mode nothing may be dropped, whatever `dropout` is."


def module(*args, dropout: float | None = 0.0, **given: Any) -> Probe:
    """Return a call of a module that is built with this dropout, or without arguments."""
    built = {} if dropout is None else {"dropout": dropout}
    return call(*args, construct=built, attributes=(KEPT,), **given)


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    mask, past = random_mask(rng, 3, 5), np.tri(3, 5, 1, dtype=bool)
    wide = *draw((8,), 16, 20, 3, 1)[:2], dropout_values(rng, 8, 20)
    per_item = random_mask(rng, 2, 3, 5) | (np.arange(5) == 0)
    yield _EVAL
    yield module(*WORKED, dropout=0.5)
    yield PER_QUERY
    yield module(*draw((2,), 3, 5, 4, 6), [[1, 4, 2], [3, 2, 4]])
    yield MASK
    yield module(*draw((2,), 3, 5, 7, 6), mask=mask)
    yield BOTH
    yield module(*draw((2,), 3, 5, 4, 6), [3, 4], mask=past, dropout=0.3)
    yield (
        "In train mode each attention weight must be dropped with probability `dropout` and the "
        "others divided by 1 - dropout; `attention_weights` must hold the weights before dropout."
    )
    dropping = {"training": True, "seed": int(rng.integers(9999)), "compare": "dropout_on_weights"}
    yield module(*wide, dropout=0.2, **dropping)
    yield (
        "`dropout` is 0 by default; train mode must then equal eval mode, even with lengths and a "
        "mask."
    )
    given = draw((2,), 3, 5, 4, 6)
    yield module(*given, [3, 4], mask=per_item, dropout=None, training=True)
    yield from edges(rng)
    yield (
        "The gradients of queries, keys and values must match the formula, also where a query may "
        "attend to no key."
    )
    given = draw((1,), 2, 3, 2, 2, requires_grad=True)
    back = {"grad_outputs": rng.normal(size=(1, 2, 2))}
    yield module(*given, [2], dropout=0.5, **back)
    yield module(*given, mask=SECOND_ROW_EMPTY, training=True, **back)


def edges(rng) -> Problems:
    draw, edge = functools.partial(drawn, rng), functools.partial(module, part="edges")
    late = np.tri(3, 4, 0, dtype=bool)[:, ::-1]  # with two keys, two queries of item 0 are empty
    yield "An item of length 0 must get zeros."
    yield edge(*draw((2,), 3, 4, 5, 6), [0, 3])
    yield EMPTY
    yield edge(*draw((2,), 3, 4, 5, 2), mask=np.zeros((3, 4), dtype=bool))
    yield edge(*draw((2,), 3, 4, 5, 2), [2, 4], mask=late)
    yield "Like the function, the module must accept any number of leading axes."
    yield edge(*draw((2, 3), 2, 4, 5, 6), [3, 1])
    yield "Float32 inputs must work and give float32 outputs."
    yield edge(*draw((2,), 3, 5, 4, 6), [3, 4], dropout=0.1, dtype="float32")
    yield INDEPENDENT
    yield edge(*draw((2,), 3, 4, 3, 5), [3, 2], dropout=0.1, scenario="after_another_call")
    for given in ("lengths", "a_mask"):
        yield edge(*draw((1,), 2, 3, 2, 1), dropout=0.1, scenario=f"after_a_call_with_{given}")
    yield from largest_padding(rng, with_mask=True, construct={}, attributes=(KEPT,))
    yield from far_above(rng, construct={}, attributes=(KEPT,), mask=FAR)


EXERCISE = Exercise(
    points=3,
    minutes=8,
    difficulty=2,
    builds_on=("scaled_dot_product_attention",),
    is_class=True,
    returns=(RETURNS[0],),
    probes=problems,
    oracle=oracle.dot_product_attention,
    mistakes=shared(AttentionModule),
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
    marking=DROPPING,
)
