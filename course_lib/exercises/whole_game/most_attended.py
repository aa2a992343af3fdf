"""`most_attended`: the position of the largest weight in each row."""

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kit import Problems, call, edge, mistake


def weights(rng, *shape, **options) -> Array:
    """Draw rows of weights, each with a single maximum."""
    drawn = np.exp(rng.normal(0, 1.3, shape))
    return tensor(drawn / drawn.sum(axis=-1, keepdims=True), **options)


def problems(rng) -> Problems:
    close = [[0.332, 0.331, 0.334, 0.003], [0.2501, 0.2496, 0.2502, 0.2501]]
    ties = rng.permuted([[0.3, 0.3, 0.3, 0.1, 0.0], [0.4, 0.4, 0.1, 0.1, 0.0]], axis=1)
    yield "A row (0.1, 0.2, 0.7) must give position 2, and (0.4, 0.4, 0.2) position 0."
    yield call([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    yield "The largest weight may lead by only a thousandth."
    yield call(rng.permuted(close, axis=1))
    yield "With heads, (batch, heads, n, m), each head has its own positions."
    yield call(weights(rng, 2, 3, 4, 5))
    yield "If several weights in a row are the largest, the first counts."
    yield edge([*ties.tolist(), [0.2] * 5, [0.0] * 5])
    yield "An item, a head and a query must keep their axes, even if there is only one of each."
    yield edge(weights(rng, 1, 1, 1, 1))
    yield "Weights that require gradients, as they do during training, must work."
    yield edge(weights(rng, 4, 3, requires_grad=True))
    yield "A map (batch, n, m) without heads must work."
    yield edge(weights(rng, 3, 2, 5))
    yield "Float32 weights must work."
    yield edge(weights(rng, 4, 3), dtype="float32")


@mistake
def over_queries(attention_weights) -> Tensor:
    """You look down the columns: for each key, you find the query that looks at it most.

    Which axis belongs to the keys, the last or the one before?
    """
    return attention_weights.argmax(dim=-2)


@mistake
def weight_instead_of_place(attention_weights) -> Tensor:
    """You return the largest weights. The exercise asks for their positions.

    What else does `max` along an axis return, besides the largest numbers?
    """
    return attention_weights.amax(-1)


@mistake
def last_of_ties(attention_weights) -> Tensor:
    """Where several weights tie for the largest, you return a later one. The exercise asks for the
    first.

    If weights tie, which step of your code decides between them?
    """
    return attention_weights.shape[-1] - 1 - attention_weights.flip(-1).argmax(dim=-1)


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("positions", "tensor", "int", ("...", "num_queries")),),
    probes=problems,
    hints=(
        "Read the map like the figure: one row for each word, one column for each character. In "
        "each row, find the column with the largest number.",
        "`max` along an axis returns the largest numbers, and `argmax` their positions, the first "
        "on ties. The axis of the keys is always the last one.",
        "positions = attention_weights.argmax(dim=...)  # which axis should disappear?\n"
        "return positions",
    ),
)
