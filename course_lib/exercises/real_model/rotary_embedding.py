"""`rotary_embedding`: rotate pairs of features by an angle that depends on the position."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import (
    FLOAT32,
    Case,
    Given,
    case,
    edge,
    in_steps,
    mistake,
)

_TURNED = "Features 2i and 2i + 1 at position p must turn by p / base^(2i/d), counter-clockwise."


def _probe(make, name, x, offset=None, base=None, **options) -> Case:
    given: Given = {} if offset is None else {"offset": int(offset)}
    given |= {} if base is None else {"base": float(base)}
    return make(name, x=x, by_name=given, **options)


def _values(rng, draw) -> list[Probe]:
    probe = functools.partial(_probe, case)
    return [
        probe("worked_number", [[1.0, 0.0, 0.0, 2.0]] * 2).says(_TURNED),
        probe("heads", draw(2, 3, 5, 4)).says(
            "Positions must be counted along the second-to-last axis, whatever the leading axes."
        ),
        probe("offset", draw(2, 3, 4), rng.integers(5, 9)).says(
            "With an offset, the first row must be at that position and the others follow."
        ),
        probe("base", draw(2, 3, 6), base=rng.integers(20, 90)).says(
            "With another `base`, pair i must turn by p / base^(2i/d)."
        ),
        probe("offset_and_base", draw(4, 8), rng.integers(5, 9), 100_000.0).says(
            "`offset` and `base` must work together."
        ),
        probe("gradient", tensor(draw(2, 3, 4), requires_grad=True), 1,
              grad_outputs=draw(2, 3, 4)).says("The gradient must reach `x`."),
    ]  # fmt: skip


def _edges(draw) -> list[Probe]:
    probe = functools.partial(_probe, edge)
    far: Given = {"tolerance": 5e-3}  # float32 rounds an angle of 3000 to about 2e-4
    return [
        probe("one_position", draw(2, 1, 6)).says("Position 0 must not be rotated at all."),
        probe("far_away", draw(2, 10), 3000, **far).says("The offset may be any whole number."),
        probe("float32", draw(2, 5, 4), **FLOAT32).says("Float32 must stay float32."),
        probe("half_precision_far_away", draw(2, 6), 3000, dtype="bfloat16").says(
            "If `x` is bfloat16, the angles must still be computed in float32 or better, because "
            "bfloat16 cannot represent a position such as 3001."
        ),
        probe("odd", draw(2, 3), raises="ValueError").says(
            "An odd number of features must raise a ValueError, because the last has no partner."
        ),
    ]


def _probes(rng) -> list[Probe]:
    def draw(*shape) -> np.ndarray:
        return rng.normal(0, 1.3, shape)

    return [*_values(rng, draw), *_edges(draw)]


def _rates(d, base) -> torch.Tensor:
    return base ** (-torch.arange(0, d, 2).double() / d)


def _places(x, offset) -> torch.Tensor:
    return offset + torch.arange(x.shape[-2]).double()[:, None]


def _turned(first, second, angles) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = angles.cos(), angles.sin()
    return first * cos - second * sin, first * sin + second * cos


def _turned_one_by_one(first, second, angles) -> tuple[torch.Tensor, torch.Tensor]:
    first, _ = _turned(first, second, angles)
    return first, _turned(first, second, angles)[1]


@in_steps(
    pair=lambda x: (x[..., 0::2], x[..., 1::2]),
    unpair=lambda first, second: torch.stack([first, second], dim=-1).flatten(-2),
    turn=_turned,
    places=_places,
    rates=_rates,
)
def _model(pair, unpair, turn, places, rates) -> Callable:
    """Return a correct answer in which each step may be changed."""

    def rotary_embedding(x, offset=0, base=10000.0) -> torch.Tensor:
        if x.shape[-1] % 2:
            raise ValueError("the number of features is odd")
        angles = (places(x, offset) * rates(x.shape[-1], base)).to(x.device)
        return unpair(*turn(*pair(x), angles)).to(x.dtype)

    return rotary_embedding


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=3,
    returns=(Returned("turned", "tensor", "float", ("...", "n", "d")),),
    probes=_probes,
    mistakes=(
        mistake(
            "halves_paired",
            _model(
                pair=lambda x: x.chunk(2, dim=-1), unpair=lambda *halves: torch.cat(halves, dim=-1)
            ),
            twins=(
                _model(unpair=lambda *halves: torch.cat(halves, dim=-1)),
                _model(pair=lambda x: x.chunk(2, dim=-1)),
            ),
        ).says(
            "You pair feature i with feature i + d/2 where you read the pairs, where you write "
            "them, or in both places. Here, features 2i and 2i + 1 are a pair.",
            "Which feature is the partner of feature 0?",
        ),
        mistake(
            "clockwise", _model(turn=lambda first, second, angles: _turned(first, second, -angles))
        ).says(
            "You rotate the pairs clockwise. The sines need the opposite sign.",
            "Where does (1, 0) go in a quarter turn, counter-clockwise?",
        ),
        mistake("new_value_used_too_early", _model(turn=_turned_one_by_one)).says(
            "You compute the second feature of a pair from the new value of the first one.",
            "Which line needs the old value of the first feature?",
        ),
        mistake("offset_ignored", _model(places=lambda x, offset: _places(x, 0))).says(
            "`offset` has no effect: your first row is always at position 0.",
            "What do you add to the positions 0, 1, 2, ...?",
        ),
        mistake("base_ignored", _model(rates=lambda d, base: _rates(d, 10000.0))).says(
            "`base` has no effect: your rates are always those of 10000.",
            "Which number in your code must become `base`?",
        ),
        mistake("exponent_halved", _model(rates=lambda d, base: _rates(d, base) ** 0.5)).says(
            "You rotate pair i by p / base^(i/d) instead of p / base^(2i/d).",
            "Write down the angles of position 1 for d = 4 and base 10000. Are they 1 and 1/100?",
        ),
    ),
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
