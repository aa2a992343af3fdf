"""`additive_mask`: convert a bool mask to numbers that are added to the scores."""

import math

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Dtype
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    small, other = rng.random((2, 2, 4)) < 0.5
    for mask in (small, other):
        mask[0, :2] = True, False
    yield "Kept keys must get 0, dropped keys -inf."
    yield call(small, Dtype("float64"))
    yield "A mask may have any shape."
    yield call(rng.random((2, 2, 3, 4)) < 0.5, Dtype("float64"))
    yield "In float16 dropped keys must get -inf too; float16 cannot represent -1e9."
    yield edge([True, False], Dtype("float16"))
    yield edge(other, Dtype("float16"))
    yield "Each call must return the numbers for its own `mask`."
    yield edge([True, False], Dtype("float64"), scenario="between_calls")


@mistake
def infinity_times_zero(mask, dtype) -> Tensor:
    """Your result is NaN where a key is kept: 0 * inf is NaN, not 0.

    Which function chooses between two values without multiplying?
    """
    return (1 - mask.to(dtype)) * -math.inf


@mistake
def inverted(mask, dtype) -> Tensor:
    """The mask is inverted: it has -inf where a key is kept.

    What does True in `mask` mean, and where does your code put -inf?
    """
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


@mistake
def finite_fill(mask, dtype) -> Tensor:
    """A dropped key gets a finite number, such as -1e9, instead of -inf. A large enough score makes
    up for it.

    Which value is below every finite score, and does a later step replace it?
    """
    return torch.where(mask, 0.0, -1e9).to(dtype)


@like(finite_fill)
def smallest_number(mask, dtype) -> Tensor:
    return (~mask).to(dtype) * torch.finfo(dtype).min


@like(finite_fill)
def fill_in_the_dtype(mask, dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -1e9)


@like(finite_fill)
def ones_subtracted(mask, dtype) -> Tensor:
    return mask.to(dtype) - 1


@like(finite_fill)
def log_of_a_sum(mask, dtype) -> Tensor:
    return (mask.to(dtype) + 1e-9).log()


@like(finite_fill)
def fill_of_bert(mask, dtype) -> Tensor:
    return (~mask).to(dtype) * -10000.0


@mistake
def ones_kept(mask, dtype) -> Tensor:
    """A kept key gets 1 or another nonzero number.

    Which number can you add to a score without changing it?
    """
    return mask.to(dtype).masked_fill(~mask, -math.inf)


@like(ones_kept)
def ones_and_zeros(mask, dtype) -> Tensor:
    return mask.to(dtype)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    starred=True,
    returns=(Returned("numbers", "tensor", "float", ("the shape of mask",)),),
    probes=problems,
    hints=(
        "Adding 0 leaves a score as it is. What can you add so that its exponential becomes "
        "exactly 0?",
        "Start from zeros of the right shape and dtype, and fill in -inf where the mask is False.",
        "`masked_fill` fills where its first argument is True, and your mask is True where a key "
        "is *kept*. Try it on `torch.zeros(2)` and `torch.tensor([True, False])`; then give the "
        "zeros the mask's shape and device, and the requested dtype.",
    ),
    marking=Marking(shares={"values": 0.45, "edges": 0.25, "hygiene": 0.3}),
)
