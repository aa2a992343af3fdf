"""`positional_encoding`: sines and cosines that tell positions apart."""

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Dtype
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    yield "Column 2i must hold sin(p / 10000^(2i/D)), column 2i + 1 the cosine of the same."
    yield call(2, 3)
    num_positions = int(rng.integers(20, 60))
    yield call(num_positions, 2 * int(rng.integers(3, 7)))
    yield "An odd size ends with a sine."
    num_positions = int(rng.integers(6, 20))
    yield edge(num_positions, 3 + 2 * int(rng.integers(1, 4)))
    yield "One column holds the sine of the position."
    yield edge(int(rng.integers(3, 20)), 1)
    yield "Any number of positions must work."
    many = int(rng.integers(1100, 1300))
    yield edge(many, 8, tolerance=5e-3)  # float32 rounds angles of 1200 to about 1e-4
    yield "Half precision must round the result, not the positions."
    yield edge(int(rng.integers(300, 400)), 6, by_name={"dtype": Dtype("bfloat16")})
    yield "`device=` and `dtype=` must set the device and the dtype, as in `torch.ones`."
    yield edge(int(rng.integers(3, 9)), 6, scenario="with_a_device_and_a_dtype")


def alternating(positions, columns, exponents, base=10000.0) -> Tensor:
    """Return sines in even columns and cosines in odd ones, of positions / base^exponents."""
    angles = positions.double()[:, None] / base**exponents
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())


@mistake
def in_halves(num_positions, embed_dim, **to) -> Tensor:
    """Your sines fill the first half and your cosines the second. They must alternate.

    Which columns does `encoding[:, 0::2]` name?
    """
    pairs = torch.arange((embed_dim + 1) // 2, dtype=torch.float64)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None]
    angles = angles / 10000.0 ** (2 * pairs / embed_dim)
    return torch.cat([angles.sin(), angles[:, : embed_dim // 2].cos()], dim=-1).to(**to)


@like(in_halves)
def in_halves_from_1_to_10000(num_positions, embed_dim, **to) -> Tensor:
    half = (embed_dim + 1) // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / max(half - 1, 1))
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :embed_dim].to(**to)


@mistake
def sine_and_cosine_exchanged(num_positions, embed_dim, **to) -> Tensor:
    """Your even columns are not sines, or your odd ones are not cosines. Column 0 must begin with
    the sine.

    What is the first row of the formula, for position 0?
    """
    columns = torch.arange(embed_dim)
    exponents = (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(num_positions), columns + 1, exponents).to(**to)


@like(sine_and_cosine_exchanged)
def only_sines(num_positions, embed_dim, **to) -> Tensor:
    columns = torch.arange(embed_dim)
    exponents = (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(num_positions), 0 * columns, exponents).to(**to)


@mistake
def exponent_doubled(num_positions, embed_dim, **to) -> Tensor:
    """Your exponent is 4i/D instead of 2i/D for columns 2i and 2i + 1.

    Does your range already count in steps of two?
    """
    columns = torch.arange(embed_dim)
    exponents = 2 * (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(num_positions), columns, exponents).to(**to)


@mistake
def positions_from_one(num_positions, embed_dim, **to) -> Tensor:
    """Your first position is number 1; it must be 0.

    What is sin(0)?
    """
    columns = torch.arange(embed_dim)
    exponents = (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(1, num_positions + 1), columns, exponents).to(**to)


@mistake
def base_100(num_positions, embed_dim, **to) -> Tensor:
    """Columns 2i and 2i + 1 of your encoding do not use the angle p / 10000^(2i/D). The base or the
    exponent is another one, such as 1000 or i/D.

    Write down the angles of position 1 for D = 4. Are they 1 and 1/100?
    """
    columns = torch.arange(embed_dim)
    exponents = (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(num_positions), columns, exponents, base=100.0).to(**to)


@like(base_100)
def base_1000(num_positions, embed_dim, **to) -> Tensor:
    columns = torch.arange(embed_dim)
    exponents = (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(num_positions), columns, exponents, base=1000.0).to(**to)


@like(base_100)
def base_inverted(num_positions, embed_dim, **to) -> Tensor:
    columns = torch.arange(embed_dim)
    exponents = (columns - columns % 2).double() / embed_dim
    return alternating(torch.arange(num_positions), columns, exponents, base=1e-4).to(**to)


@like(base_100)
def exponent_rounded_down(num_positions, embed_dim, **to) -> Tensor:
    columns = torch.arange(embed_dim)
    return alternating(torch.arange(num_positions), columns, torch.zeros(embed_dim)).to(**to)


@like(base_100)
def rates_to_the_last(num_positions, embed_dim, **to) -> Tensor:
    columns, half = torch.arange(embed_dim), (embed_dim + 1) // 2
    exponents = (columns // 2).double() / max(half - 1, 1)
    return alternating(torch.arange(num_positions), columns, exponents).to(**to)


@mistake
def column_exponent(num_positions, embed_dim, **to) -> Tensor:
    """Every column of your encoding has an angle of its own. The sine and the cosine of a pair must
    have the same angle.

    What are the exponents of columns 0 and 1?
    """
    columns = torch.arange(embed_dim)
    return alternating(torch.arange(num_positions), columns, columns.double() / embed_dim).to(**to)


@like(column_exponent)
def column_exponent_doubled(num_positions, embed_dim, **to) -> Tensor:
    columns = torch.arange(embed_dim)
    exponents = 2 * columns.double() / embed_dim
    return alternating(torch.arange(num_positions), columns, exponents).to(**to)


@mistake
def odd_size_fails(num_positions, embed_dim, **to) -> Tensor:
    """Your code fails for `embed_dim` = 3: an odd number needs one more sine than cosines.

    Of five columns, how many are in `encoding[:, 1::2]`?
    """
    pairs = torch.arange(0, embed_dim, 2, dtype=torch.float64)
    angles = torch.arange(num_positions)[:, None] / 10000.0 ** (pairs / embed_dim)
    encoding = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()
    return encoding.to(**to)


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    returns=(Returned("encoding", "tensor", "any float", ("num_positions", "embed_dim")),),
    probes=problems,
    hints=(
        "Each pair of columns is a clock hand: position p turns it by an angle. The first pair "
        "turns by 1 a step, later ones ever more slowly.",
        "Make a column of positions and a row of rates 10000^(2i/D), one for each pair, and "
        "divide. Put the sines into the even columns and the cosines into the odd ones, of which "
        "there may be one fewer.",
        "Position 1 by hand, with `embed_dim` 4: two angles, 1 and 1/100, and from each a "
        "sine and a cosine side by side. A column of positions meets a row of frequencies, "
        "one for each *pair* of columns; then the sines go to every second column.",
    ),
)
