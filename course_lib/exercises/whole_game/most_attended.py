"""`most_attended`: where a map of attention points."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, STRIDED, Given, case, edge, mistake


def _map(rng, *shape, **options) -> Given:
    """Rows of weights, no two alike, each row with one largest."""
    weights = np.exp(rng.normal(0, 1.3, shape))
    return {"attention_weights": tensor(weights / weights.sum(axis=-1, keepdims=True), **options)}


def _values(rng) -> list[Probe]:
    worked = [[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]
    two = [worked, [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2]]]
    return [
        case("worked", attention_weights=worked).says(
            "Row 0 has its largest weight at position 2; row 1 has two, and the first is at 0."
        ),
        case(
            "close",
            attention_weights=[[0.332, 0.331, 0.334, 0.003], [0.2501, 0.2496, 0.2502, 0.2501]],
        ).says("The largest weight may lead by only a thousandth."),
        case("one_map", **_map(rng, 4, 6)).says(
            "Each query, a row of the map, gets the position of the largest weight in its row."
        ),
        case("square", **_map(rng, 5, 5)).says(
            "With as many queries as keys, rows are still queries."
        ),
        case("two_maps", attention_weights=two).says(
            "Two maps, of shape (2, 2, 3), give positions of shape (2, 2): a row for each map."
        ),
        case("batch", **_map(rng, 3, 4, 6)).says(
            "Maps of several items, (batch, n, m), give a row of positions for each item."
        ),
        case("heads", **_map(rng, 2, 3, 4, 5)).says(
            "With heads, (batch, heads, n, m), each head has its own positions."
        ),
    ]


def _edges(rng) -> list[Probe]:
    ties = rng.permuted([[0.3, 0.3, 0.3, 0.1, 0.0], [0.4, 0.4, 0.1, 0.1, 0.0]], axis=1)
    return [
        edge("ties", attention_weights=[*ties.tolist(), [0.2] * 5, [0.1, 0.2, 0.35, 0.0, 0.35]])
        .says("If several weights in a row are the largest, the first counts."),
        edge("nothing_attended", attention_weights=[[0.0] * 4, [0.0, 0.0, 1.0, 0.0]]).says(
            "In a row of zeros all weights are the largest, so position 0 is the first of them."
        ),
        edge("one_query", **_map(rng, 1, 6)).says("One query gives one position, of shape (1,)."),
        edge("one_key", **_map(rng, 4, 1)).says(
            "A single key is at position 0 for every query, and the shape is still (n,)."
        ),
        edge("one_item_one_head", **_map(rng, 1, 1, 4, 3)).says(
            "One item and one head keep their axes."
        ),
        edge("hundreds_of_keys", **_map(rng, 2, 700)).says("Hundreds of keys work like a few."),
        edge("strided", **_map(rng, 3, 5, 4, strided=True)).says(STRIDED),
        edge("with_gradients", **_map(rng, 4, 3, requires_grad=True)).says(
            "Weights straight from a layer in training, which track gradients, must work."
        ),
        edge("float32", **_map(rng, 3, 2, 5), **FLOAT32).says(
            "Float32 weights, as a layer gives them, must work."
        ),
    ]  # fmt: skip


def _row_by_row(attention_weights) -> torch.Tensor:
    return torch.tensor([int(row.argmax()) for row in attention_weights])


def _along(axis: int | None, *, keepdim: bool = False) -> Callable:
    """The position of the largest weight along an axis, the right one or another."""
    return lambda attention_weights: attention_weights.argmax(dim=axis, keepdim=keepdim)


def _of_changed(change: Callable) -> Callable:
    """The right answer, for weights that were changed before."""
    return lambda attention_weights: change(attention_weights).argmax(dim=-1)


def _last_of_ties(attention_weights) -> torch.Tensor:
    return attention_weights.shape[-1] - 1 - attention_weights.flip(-1).argmax(dim=-1)


def _one_hot(attention_weights) -> torch.Tensor:
    places = attention_weights.argmax(dim=-1)
    return torch.nn.functional.one_hot(places, attention_weights.shape[-1])


def _all_maps_averaged(attention_weights) -> torch.Tensor:
    return attention_weights.reshape(-1, *attention_weights.shape[-2:]).mean(dim=0)


def _average_position(attention_weights) -> torch.Tensor:
    places = torch.arange(attention_weights.shape[-1]).to(attention_weights)
    return (attention_weights @ places).round().long()


def _not_the_largest(probe, outputs) -> str | None:
    """The first row whose position is not that of its largest weight."""
    weights, got = probe.args["attention_weights"].data, outputs.data
    if got is None or got.shape != weights.shape[:-1]:
        return None
    for index in np.ndindex(got.shape):
        row, place = weights[index], int(got[index])
        if not 0 <= place < len(row):
            return f"Row {list(index)} has {len(row)} keys, and your position there is {place}."
        if row[place] < row.max():
            return (
                f"In row {list(index)} you point at position {place}, where the weight is "
                f"{row[place]:.2f}; the largest is {row.max():.2f}."
            )
    return None


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("positions", "tensor", "int", ("...", "num_queries")),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    mistakes=(
        mistake("over_queries", _along(-2)).says(
            "You look down the columns: for each key, which query looks at it most.",
            "Which axis belongs to the keys, the last or the one before?",
        ),
        mistake(
            "weight_instead_of_place", lambda attention_weights: attention_weights.amax(-1)
        ).says(
            "You return the largest weights. The exercise asks for their positions.",
            "What else does `max` along an axis return, besides the largest numbers?",
        ),
        mistake("last_of_ties", _last_of_ties).says(
            "Where two weights tie for the largest, you return the last. The exercise asks for "
            "the first.",
            "From which end do you search a row?",
        ),
        mistake(
            "counted_from_one", lambda attention_weights: _along(-1)(attention_weights) + 1
        ).says("Each position is one too large.", "Which number does the first key have?"),
        mistake("least_attended", _of_changed(torch.neg)).says(
            "You point at the smallest weight of each row.", "Is it `argmin` or `argmax`?"
        ),
        mistake("one_row_at_a_time", _row_by_row).says(
            "For one map, (n, m), your result is correct. With a batch or heads in front, each "
            "step of your loop gets a whole map instead of a row.",
            "What does a loop over a tensor give you, and which axis should disappear instead?",
        ),
        mistake("second_axis", _along(1)).says(
            "For one map, (n, m), your result is correct. With a batch in front, axis 1 belongs to "
            "the queries.",
            "Which number names the last axis, however many come before it?",
        ),
        mistake("first_axis", _along(0)).says(
            "You compare along the first axis. In one map it belongs to the queries, and with a "
            "batch in front to the items.",
            "Which axis belongs to the keys, and which number names it in both cases?",
        ),
        mistake("in_the_whole_map", _of_changed(lambda weights: weights.flatten(-2))).says(
            "You return one position for a whole map. Every query should get its own.",
            "Which axis should disappear, and which should stay?",
        ),
        mistake("one_number_for_all", _along(None)).says(
            "You return a single number. Without an axis, `argmax` treats the tensor as one row.",
            "Along which axis should it look?",
        ),
        mistake(
            "in_one_line", lambda attention_weights: _along(-1)(attention_weights).flatten()
        ).says(
            "All positions are there, but the axes before the queries are lost.",
            "What shape do the weights have up to their last axis?",
        ),
        mistake("axis_kept", _along(-1, keepdim=True)).says(
            "The positions are right, but an axis of size 1 is left at the end.",
            "What does `keepdim` keep?",
        ),
        mistake("one_hot", _one_hot).says(
            "You mark the position in a row of zeros. The exercise asks for its index.",
            "How do you get from the mark to its position?",
        ),
        mistake("heads_averaged", _of_changed(_all_maps_averaged)).says(
            "You first average all items and heads into one map. Each should have its own "
            "positions.",
            "Which axes of the weights should be left in the result?",
        ),
        mistake("average_position", _average_position).says(
            "You return the average position, weighted by attention.",
            "Where would it be if half of the weight were on the first key and half on the last?",
        ),
    ),
    properties=(Property("not_the_largest", _not_the_largest, "Which axis do you compare along?"),),
    hints=(
        "Read the map like the figure: one row for each word, one column for each character. In "
        "each row, find the column with the largest number.",
        "`max` along an axis returns the largest numbers, and `argmax` their positions, the first "
        "on ties. The axis of the keys is always the last one.",
        "positions = attention_weights.argmax(dim=...)  # which axis should disappear?\n"
        "return positions",
    ),
)
