"""`combine_masks`: allow the keys that all masks allow."""

import functools

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import case, edge, mistake


def _mask(rng, *shape) -> np.ndarray:
    drawn = rng.random(shape) < 0.6
    drawn.flat[0], drawn.flat[-1] = True, False
    return drawn


def _probes(rng) -> list[Probe]:
    three = [_mask(rng, 3, 5) for _ in range(3)]
    for i, allowed in enumerate(three):
        allowed[1, :3] = np.arange(3) != i  # each of them drops a key that the others keep
    first, second, third = three
    return [
        case("worked_number", first=[True, True, False], second=[True, False, False]).says(
            "A key is allowed only where both masks allow it."
        ),
        case("three_masks", first=first, second=second, third=third).says(
            "Of three masks all three must allow the key."
        ),
        case("broadcast", padding=_mask(rng, 2, 1, 5), causal=_mask(rng, 3, 5)).says(
            "A (batch, 1, num_keys) mask and a (num_queries, num_keys) mask broadcast."
        ),
        edge("none_in_between", first=None, second=first, third=None, fourth=second).says(
            "A None before or between masks must change nothing: every given mask must allow the "
            "key."
        ),
        edge("all_none", first=None, second=None).says(
            "Without any mask, the result must be None."
        ),
    ]


def _fold(masks, step) -> torch.Tensor | None:
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(step, given) if given else None


def _stops_at_none(*masks) -> torch.Tensor | None:
    return None if any(mask is None for mask in masks) else _fold(masks, torch.logical_and)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    starred=True,
    returns=(Returned("mask", "tensor", "bool", ("the broadcast shape",)),),
    probes=_probes,
    mistakes=(
        mistake("or_instead_of_and", lambda *masks: _fold(masks, torch.logical_or)).says(
            "You allow a key where any mask allows it; it must be allowed by all of them.",
            "A padded key in the past: the causal mask allows it, the padding mask does not. May "
            "a query attend to it?",
        ),
        mistake("stops_at_none", _stops_at_none).says(
            "Where one mask is None, you leave out others as well. They must still count.",
            "What does a mask that is None allow?",
        ),
    ),
    hints=(
        "A query may attend to a key if the first mask allows it AND the second does AND so on; "
        "None allows everything.",
        "Start with None. For each mask that is not None: take it if there is nothing yet, "
        "otherwise combine it with what you have, element by element.",
        "A smaller version first: two masks, either of which may be None. That makes four cases. "
        "Then do the same with the result and the next mask.",
    ),
)
