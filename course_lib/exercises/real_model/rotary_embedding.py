"""`rotary_embedding`: rotate pairs of features by an angle that depends on the position."""

import functools

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import tensor
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    def draw(*shape) -> np.ndarray:
        return rng.normal(0, 1.3, shape)

    yield "Features 2i and 2i + 1 at position p must turn by p / base^(2i/d), counterclockwise."
    yield call([[1.0, 0.0, 0.0, 2.0]] * 2)
    yield "Positions must be counted along the second-to-last axis, whatever the leading axes."
    yield call(draw(2, 3, 5, 4))
    yield "With an offset, the first row must be at that position and the others follow."
    yield call(draw(2, 3, 4), offset=int(rng.integers(5, 9)))
    yield "With another `base`, pair i must turn by p / base^(2i/d)."
    yield call(draw(2, 3, 6), base=float(rng.integers(20, 90)))
    yield "`offset` and `base` must work together."
    yield call(draw(4, 8), offset=int(rng.integers(5, 9)), base=100_000.0)
    yield "The gradient must reach `x`."
    x = tensor(draw(2, 3, 4), requires_grad=True)
    yield call(x, offset=1, grad_outputs=draw(2, 3, 4))
    yield "Position 0 must not be rotated at all."
    yield edge(draw(2, 1, 6))
    yield "The offset may be any whole number."
    far = {"offset": 3000, "tolerance": 5e-3}  # float32 rounds an angle of 3000 to about 2e-4
    yield edge(draw(2, 10), **far)
    yield "Float32 must stay float32."
    yield edge(draw(2, 5, 4), dtype="float32")
    yield (
        "If `x` is bfloat16, the angles must still be computed in float32 or better, because "
        "bfloat16 cannot represent a position such as 3001."
    )
    yield edge(draw(2, 6), offset=3000, dtype="bfloat16")
    yield "An odd number of features must raise a ValueError, because the last has no partner."
    yield edge(draw(2, 3), raises="ValueError")


def angles_of(x, offset, base) -> Tensor:
    if x.shape[-1] % 2:
        raise ValueError("the number of features is odd")
    positions = offset + torch.arange(x.shape[-2]).double()[:, None]
    angles = positions * base ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    return angles.to(x.device)


def turned(first, second, angles) -> tuple[Tensor, Tensor]:
    cos, sin = angles.cos(), angles.sin()
    return first * cos - second * sin, first * sin + second * cos


def pairs(x) -> tuple[Tensor, Tensor]:
    return x[..., 0::2], x[..., 1::2]


def interleaved(first, second) -> Tensor:
    return torch.stack([first, second], dim=-1).flatten(-2)


@mistake
def halves_paired(x, offset=0, base=10000.0) -> Tensor:
    """You pair feature i with feature i + d/2 where you read the pairs, where you write them, or in
    both places. Here, features 2i and 2i + 1 are a pair.

    Which feature is the partner of feature 0?
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat(turned(first, second, angles_of(x, offset, base)), dim=-1).to(x.dtype)


@like(halves_paired)
def pairs_written_as_halves(x, offset=0, base=10000.0) -> Tensor:
    return torch.cat(turned(*pairs(x), angles_of(x, offset, base)), dim=-1).to(x.dtype)


@like(halves_paired)
def halves_written_as_pairs(x, offset=0, base=10000.0) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return interleaved(*turned(first, second, angles_of(x, offset, base))).to(x.dtype)


@mistake
def angles_of_the_other_layout(x, offset=0, base=10000.0) -> Tensor:
    """You rotate pairs of one layout by the angles of another: the two features of a pair turn by
    different angles.

    Which angle belongs to feature 2i, and which to feature 2i + 1?
    """
    angles, (first, second) = angles_of(x, offset, base).repeat(1, 2), pairs(x)
    turned = interleaved(-second, first) * angles.sin() + x * angles.cos()
    return turned.to(x.dtype)


@like(angles_of_the_other_layout)
def halves_by_angles_of_neighbors(x, offset=0, base=10000.0) -> Tensor:
    angles = angles_of(x, offset, base).repeat_interleave(2, 1)
    first, second = x.chunk(2, dim=-1)
    return (torch.cat([-second, first], -1) * angles.sin() + x * angles.cos()).to(x.dtype)


@mistake
def clockwise(
    x, offset=0, base=10000.0, turn=lambda a, b, c, s: (a * c + b * s, b * c - a * s)
) -> Tensor:
    """You do not rotate the pairs counterclockwise. A sign is wrong, you swap sine and cosine, or
    you swap the two features of a pair.

    Where does (1, 0) go in a quarter turn, counterclockwise?
    """
    angles = angles_of(x, offset, base)
    return interleaved(*turn(*pairs(x), angles.cos(), angles.sin())).to(x.dtype)


for turn in (
    lambda a, b, c, s: (a * c + b * s, a * s + b * c),
    lambda a, b, c, s: (a * c - b * s, b * c - a * s),
    lambda a, b, c, s: (a * s - b * c, a * c + b * s),
    lambda a, b, c, s: (b * c - a * s, b * s + a * c),
):
    like(clockwise)(functools.partial(clockwise, turn=turn))


@mistake
def new_value_used_too_early(x, offset=0, base=10000.0) -> Tensor:
    """You compute the second feature of a pair from the new value of the first one.

    Which line needs the old value of the first feature?
    """
    (first, second), angles = pairs(x), angles_of(x, offset, base)
    first, _ = turned(first, second, angles)
    return interleaved(first, turned(first, second, angles)[1]).to(x.dtype)


@mistake
def offset_ignored(x, offset=0, base=10000.0) -> Tensor:
    """Your rows are not at the positions offset, offset + 1, and so on: `offset` has no effect, all
    rows have the same position, or the first position is another one.

    What do you add to the positions 0, 1, 2, ...?
    """
    return interleaved(*turned(*pairs(x), angles_of(x, 0, base))).to(x.dtype)


@like(offset_ignored)
def one_position_later(x, offset=0, base=10000.0) -> Tensor:
    return interleaved(*turned(*pairs(x), angles_of(x, offset + 1, base))).to(x.dtype)


@like(offset_ignored)
def one_position_for_all(x, offset=0, base=10000.0) -> Tensor:
    return interleaved(*turned(*pairs(x), angles_of(x, offset, base)[:1])).to(x.dtype)


@mistake
def base_ignored(x, offset=0, base=10000.0) -> Tensor:
    """`base` has no effect: your rates are always those of 10000.

    Which number in your code must become `base`?
    """
    return interleaved(*turned(*pairs(x), angles_of(x, offset, 10000.0))).to(x.dtype)


@mistake
def another_exponent(x, offset=0, base=10000.0) -> Tensor:
    """You do not rotate pair i by p / base^(2i/d): the exponent is i/d, 4i/d or positive, the pairs
    come in another order, or the angle is in degrees.

    Write down the angles of position 1 for d = 4 and base 10000. Are they 1 and 1/100?
    """
    return interleaved(*turned(*pairs(x), angles_of(x, offset, base**0.5))).to(x.dtype)


@like(another_exponent)
def exponent_doubled(x, offset=0, base=10000.0) -> Tensor:
    return interleaved(*turned(*pairs(x), angles_of(x, offset, base**2))).to(x.dtype)


@like(another_exponent)
def base_inverted(x, offset=0, base=10000.0) -> Tensor:
    return interleaved(*turned(*pairs(x), angles_of(x, offset, 1 / base))).to(x.dtype)


@like(another_exponent)
def pairs_in_reverse(x, offset=0, base=10000.0) -> Tensor:
    return interleaved(*turned(*pairs(x), angles_of(x, offset, base).flip(-1))).to(x.dtype)


@like(another_exponent)
def in_degrees(x, offset=0, base=10000.0) -> Tensor:
    return interleaved(*turned(*pairs(x), angles_of(x, offset, base).deg2rad())).to(x.dtype)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=3,
    returns=(Returned("turned", "tensor", "float", ("...", "n", "d")),),
    probes=problems,
    hints=(
        "Each pair of features is a clock hand. The first pair turns by 1 radian per position, "
        "and later pairs turn ever more slowly.",
        "Angles: a column of positions times a row of d/2 rates. Separate the even and the odd "
        "features, rotate them with the four products of the formula, and interleave the two "
        "results again.",
        "Rotate one pair by hand. At position 1, the first pair (1, 0) becomes (cos 1, sin 1), and "
        "at position 0 nothing turns. Rotate all pairs at once, as even and odd columns, and "
        "interleave the results. What does `torch.stack` do here that `torch.cat` does not?",
    ),
)
