"""`previous_token_score`: which head looks one step back."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, STRIDED, case, edge, mistake
from course_lib.exercises.language_model._scores import (
    equal_weights,
    mean_of,
    same_everywhere,
    weights_of,
)

WORKED = [[[1.0, 0.0, 0.0], [0.8, 0.2, 0.0], [0.1, 0.6, 0.3]]]


def _values(rng) -> list[Probe]:
    return [
        case("worked", attention_weights=WORKED).says(
            "Positions 1 and 2 have one before them: the score is the mean of their two weights."
        ),
        case("causal", attention_weights=weights_of(rng, 3, 5, causal=True)).says(
            "Each head's score is the mean, over positions i >= 1, of its weight on position i - 1."
        ),
        case("both_sides", attention_weights=weights_of(rng, 2, 7)).says(
            "Where heads see later positions too, the score is still that of position i - 1."
        ),
        case("same_everywhere", attention_weights=same_everywhere(rng, 3, 6)).says(
            "If a head does the same at every position, its score is its weight one step back."
        ),
        case("equal_weights", attention_weights=equal_weights(2, 5)).says(
            "A head that looks everywhere equally has the score 1/n: the score is a mean of "
            "weights."
        ),
        case("strided", attention_weights=tensor(weights_of(rng, 4, 6), strided=True)).says(
            STRIDED
        ),
    ]


def _edges(rng) -> list[Probe]:
    return [
        edge("itself", attention_weights=np.stack([np.eye(4)] * 2)).says(
            "A head that never looks back has the score 0."
        ),
        edge("one_head", attention_weights=weights_of(rng, 1, 6)).says(
            "With a single head the result still has one axis."
        ),
        edge("two_positions", attention_weights=weights_of(rng, 3, 2)).says(
            "With two positions one weight is all that counts: that of position 1 on position 0."
        ),
        edge("one_position", attention_weights=weights_of(rng, 3, 1)).says(
            "A single position has none before it, so the scores are 0."
        ),
        edge("float32", attention_weights=weights_of(rng, 3, 5), **FLOAT32).says(
            "Float32 weights give float32 scores."
        ),
    ]


def _mean(offset, first, counted) -> Callable:
    """The mean of the weights [i, i + offset] over i >= first."""
    return lambda w: mean_of(w, range(first, w.shape[-1]), offset, counted(w.shape[-1]))


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("scores", "tensor", "float", ("num_heads",)),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    mistakes=(
        mistake("divided_by_n", _mean(-1, 1, lambda n: n)).says(
            "The sum is right, but you divide it by the number of positions, and the first of "
            "them has no position before it.",
            "How many weights do you add up for n positions?",
        ),
        mistake("wraps_around", _mean(-1, 0, lambda n: n)).says(
            "You also count position 0, with its weight on position -1, which is the last one.",
            "What does Python make of the index 0 - 1?",
        ),
        mistake("transposed", _mean(1, 0, lambda n: n - 1)).says(
            "You read the weight of i - 1 on i, how much each position is looked at by the one "
            "before it: the next token instead of the previous one.",
            "Which axis holds the position that looks, and which one the position it looks at?",
        ),
        mistake("own_position", _mean(0, 0, lambda n: n)).says(
            "You average the weight of each position on itself.",
            "How far does the diagonal have to move, and in which direction?",
        ),
        mistake("summed", _mean(-1, 1, lambda n: 1)).says(
            "You add up the weights without dividing by their number.",
            "What score would a head get that always looks at the previous token?",
        ),
        mistake("over_heads", lambda w: w.diagonal(-1, 1, 2).mean()).says(
            "You average over the heads as well; each head must get its own score.",
            "Over which axis must the mean not run?",
        ),
        mistake("nan_of_nothing", lambda w: w.diagonal(-1, 1, 2).mean(-1)).says(
            "The mean of nothing is NaN: a single position has nothing to look back at.",
            "What should the score of a text of one token be?",
        ),
    ),
    hints=(
        "In the matrix of one head, row i says where position i looks. For n = 4, mark the cells "
        "that you need: they lie on a line.",
        "They form the diagonal below the main one, n - 1 numbers for each head. Add them up "
        "along that axis and divide by their number, but not by 0.",
        "below = attention_weights.diagonal(offset=..., dim1=-2, dim2=-1)  # (h, n - 1)\n"
        "... below.sum(dim=-1) ...",
    ),
)
