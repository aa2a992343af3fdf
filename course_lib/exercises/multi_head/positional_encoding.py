"""Lesson 06: sines and cosines that tell positions apart."""

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import Case, case, in_steps, mistake


def _encoding_probes(rng) -> list[Probe]:
    def probe(name, positions, size, **options: Any) -> Case:
        sizes = {"num_positions": int(positions), "embed_dim": int(size)}
        return case(name, args=sizes, **options)

    columns = "Column 2i must hold sin(p / 10000^(2i/D)), column 2i + 1 the cosine of the same."
    return [
        probe("worked_number", 2, 3).says(columns),
        probe("longer", rng.integers(20, 60), 2 * rng.integers(3, 7)).says(columns),
        probe("odd", rng.integers(6, 20), 3 + 2 * rng.integers(1, 4), part="edges").says(
            "An odd size ends with a sine."
        ),
        probe("one_column", rng.integers(3, 20), 1, part="edges").says(
            "One column holds the sine of the position."
        ),
        probe(  # float32 rounds angles of 1200 to about 1e-4
            "many_positions", rng.integers(1100, 1300), 8, part="edges", tolerance=5e-3
        ).says("Any number of positions must work."),
    ]


@in_steps(exponent=lambda column, size: (column - column % 2) / size, base=10000.0, start=0, sine=0)
def _encoding(exponent, base, start, sine) -> Callable:
    """Return a wrong encoding with this exponent, base, first position and parity of the sines."""

    def positional_encoding(num_positions, embed_dim) -> torch.Tensor:
        positions = torch.arange(start, start + num_positions, dtype=torch.float64)[:, None]
        columns = torch.arange(embed_dim)
        rates = base ** exponent(columns.double(), embed_dim)
        angles = positions / rates
        return torch.where(columns % 2 == sine, angles.sin(), angles.cos())

    return positional_encoding


def _halves_of(num_positions, embed_dim) -> torch.Tensor:
    first, second = (embed_dim + 1) // 2, embed_dim // 2
    pairs = torch.arange(first, dtype=torch.float64)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None]
    angles = angles / 10000.0 ** (2 * pairs / embed_dim)
    return torch.cat([angles.sin(), angles[:, :second].cos()], dim=-1)


def _for_even_sizes(num_positions, embed_dim) -> torch.Tensor:
    pairs = torch.arange(0, embed_dim, 2, dtype=torch.float64)
    angles = torch.arange(num_positions)[:, None] / 10000.0 ** (pairs / embed_dim)
    encoding = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()
    return encoding


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    returns=(Returned("encoding", "tensor", "any float", ("num_positions", "embed_dim")),),
    probes=_encoding_probes,
    mistakes=(
        mistake("in_halves", _halves_of).says(
            "Your sines fill the first half and your cosines the second. They must alternate.",
            "Which columns does `encoding[:, 0::2]` name?",
        ),
        mistake(
            "exponent_doubled",
            _encoding(exponent=lambda column, size: 2 * (column - column % 2) / size),
        ).says(
            "Your exponent is 4i/D instead of 2i/D for columns 2i and 2i + 1.",
            "Does your range already count in steps of two?",
        ),
        mistake("positions_from_one", _encoding(start=1)).says(
            "Your first position is number 1; it must be 0.", "What is sin(0)?"
        ),
        mistake("base_100", _encoding(base=100.0)).says(
            "Columns 2i and 2i + 1 of your encoding use the angle p / 10000^(i/D) instead of "
            "p / 10000^(2i/D).",
            "Write down the angles of position 1 for D = 4. Are they 1 and 1/100?",
        ),
        mistake(
            "column_exponent",
            _encoding(exponent=lambda column, size: column / size),
            twins=(_encoding(exponent=lambda column, size: 2 * column / size),),
        ).says(
            "Every column of your encoding has an angle of its own. The sine and the cosine of a "
            "pair must have the same angle.",
            "What are the exponents of columns 0 and 1?",
        ),
        mistake("odd_size_fails", _for_even_sizes).says(
            "Your code fails for `embed_dim` = 3: an odd number needs one more sine than cosines.",
            "Of five columns, how many are in `encoding[:, 1::2]`?",
        ),
    ),
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
