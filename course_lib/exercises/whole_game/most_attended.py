"""`most_attended`: the position of the largest weight in each row."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import FLOAT32, Given, case, edge, mistake


def _map(rng, *shape, **options) -> Given:
    """Draw rows of weights, each with a single maximum."""
    weights = np.exp(rng.normal(0, 1.3, shape))
    return {"attention_weights": tensor(weights / weights.sum(axis=-1, keepdims=True), **options)}


def _probes(rng) -> list[Probe]:
    worked = [[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]
    close = [[0.332, 0.331, 0.334, 0.003], [0.2501, 0.2496, 0.2502, 0.2501]]
    ties = rng.permuted([[0.3, 0.3, 0.3, 0.1, 0.0], [0.4, 0.4, 0.1, 0.1, 0.0]], axis=1)
    return [
        case("worked", attention_weights=worked).says(
            "A row (0.1, 0.2, 0.7) must give position 2, and (0.4, 0.4, 0.2) position 0."
        ),
        case("close", attention_weights=rng.permuted(close, axis=1)).says(
            "The largest weight may lead by only a thousandth."
        ),
        case("heads", **_map(rng, 2, 3, 4, 5)).says(
            "With heads, (batch, heads, n, m), each head has its own positions."
        ),
        edge("ties", attention_weights=[*ties.tolist(), [0.2] * 5, [0.0] * 5]).says(
            "If several weights in a row are the largest, the first counts."
        ),
        edge("one_of_each", **_map(rng, 1, 1, 1, 1)).says(
            "An item, a head and a query must keep their axes, even if there is only one of each."
        ),
        edge("with_gradients", **_map(rng, 4, 3, requires_grad=True)).says(
            "Weights that require gradients, as they do during training, must work."
        ),
        edge("batch", **_map(rng, 3, 2, 5)).says("A map (batch, n, m) without heads must work."),
        edge("float32", **_map(rng, 4, 3), **FLOAT32).says("Float32 weights must work."),
    ]


def _along(axis: int) -> Callable:
    """Find the largest weight along another axis."""
    return lambda attention_weights: attention_weights.argmax(dim=axis)


def _last_of_ties(attention_weights) -> torch.Tensor:
    return attention_weights.shape[-1] - 1 - attention_weights.flip(-1).argmax(dim=-1)


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("positions", "tensor", "int", ("...", "num_queries")),),
    probes=_probes,
    mistakes=(
        mistake("over_queries", _along(-2)).says(
            "You look down the columns: for each key, you find the query that looks at it most.",
            "Which axis belongs to the keys, the last or the one before?",
        ),
        mistake("weight_instead_of_place", lambda weights: weights.amax(-1)).says(
            "You return the largest weights. The exercise asks for their positions.",
            "What else does `max` along an axis return, besides the largest numbers?",
        ),
        mistake("last_of_ties", _last_of_ties).says(
            "Where several weights tie for the largest, you return a later one. The exercise asks "
            "for the first.",
            "If weights tie, which step of your code decides between them?",
        ),
    ),
    hints=(
        "Read the map like the figure: one row for each word, one column for each character. In "
        "each row, find the column with the largest number.",
        "`max` along an axis returns the largest numbers, and `argmax` their positions, the first "
        "on ties. The axis of the keys is always the last one.",
        "positions = attention_weights.argmax(dim=...)  # which axis should disappear?\n"
        "return positions",
    ),
)
