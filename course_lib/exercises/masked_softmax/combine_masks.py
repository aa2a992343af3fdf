"""`combine_masks`: allow the keys that all masks allow."""

import functools

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def drawn(rng, *shape) -> np.ndarray:
    mask = rng.random(shape) < 0.6
    mask.flat[0], mask.flat[-1] = True, False
    return mask


def problems(rng) -> Problems:
    names = ("first", "second", "third", "fourth")
    three = [drawn(rng, 3, 5) for _ in range(3)]
    for i, allowed in enumerate(three):
        allowed[1, :3] = np.arange(3) != i  # each of them drops a key that the others keep
    first, second, third = three
    yield "A key is allowed only where both masks allow it."
    yield call([True, True, False], [True, False, False], names=names[:2])
    yield "Of three masks all three must allow the key."
    yield call(first, second, third, names=names[:3])
    yield "A (batch, 1, num_keys) mask and a (num_queries, num_keys) mask broadcast."
    yield call(drawn(rng, 2, 1, 5), drawn(rng, 3, 5), names=("padding", "causal"))
    yield "A None before or between masks must change nothing: every given mask must allow the key."
    yield edge(None, first, None, second, names=names)
    yield "Without any mask, the result must be None."
    yield edge(None, None, names=names[:2])


def combined(masks, step) -> Tensor | None:
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(step, given) if given else None


@mistake
def or_instead_of_and(*masks) -> Tensor | None:
    """You combine the masks with "or" or "exclusive or" instead of "and". All masks must allow a
    key.

    A padded key in the past: the causal mask allows it, the padding mask does not. May a query
    attend to it?
    """
    return combined(masks, torch.logical_or)


@like(or_instead_of_and)
def exclusive_or(*masks) -> Tensor | None:
    return combined(masks, torch.logical_xor)


@mistake
def inverted(*masks) -> Tensor | None:
    """You invert the masks or the result. In the masks and in the result, True means that a key is
    allowed.

    Which step of your code swaps True and False without being undone?
    """
    allowed = combined(masks, torch.logical_and)
    return None if allowed is None else ~allowed


@like(inverted)
def each_inverted(*masks) -> Tensor | None:
    return combined([None if mask is None else ~mask for mask in masks], torch.logical_and)


@mistake
def masks_left_out(*masks) -> Tensor | None:
    """You use only some of the masks, such as the first two or the last one. Every mask must allow
    a key.

    What does your code do with the first mask, and with the third?
    """
    given = [mask for mask in masks if mask is not None]
    return combined(given[:2], torch.logical_and)


@like(masks_left_out)
def only_the_last(*masks) -> Tensor | None:
    return combined(masks, lambda _, mask: mask)


@like(masks_left_out)
def only_the_first_two_arguments(*masks) -> Tensor | None:
    return masks[0] & masks[1]


@mistake
def stops_at_none(*masks) -> Tensor | None:
    """Where one mask is None, you leave out others as well. They must still count.

    What does a mask that is None allow?
    """
    return None if any(mask is None for mask in masks) else combined(masks, torch.logical_and)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    starred=True,
    returns=(Returned("mask", "tensor", "bool", ("the broadcast shape",)),),
    probes=problems,
    hints=(
        "A query may attend to a key if the first mask allows it AND the second does AND so on; "
        "None allows everything.",
        "Start with None. For each mask that is not None: take it if there is nothing yet, "
        "otherwise combine it with what you have, element by element.",
        "A smaller version first: two masks, either of which may be None. That makes four cases. "
        "Then do the same with the result and the next mask.",
    ),
)
