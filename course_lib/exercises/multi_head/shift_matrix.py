"""`shift_matrix`: a matrix that moves positional encodings a few positions on."""

import math

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.exercises.kit import Problems, call, edge, like, mistake
from course_lib.reference import multi_head as oracle

_SHIFTS = (
    "The matrix times the encoding of any position must be the encoding `offset` positions later."
)


def problems(rng) -> Problems:
    further, back, far = rng.integers([3, -60, 1100], [60, -1, 1300]).tolist()
    yield _SHIFTS
    yield call(1, 2)
    yield call(further, 2 * int(rng.integers(3, 15)))
    yield "A negative offset must go back."
    yield edge(back, 2)
    yield "An offset of 0 must change nothing."
    yield edge(0, 2 * int(rng.integers(2, 30)))
    yield "Any offset must work."
    yield edge(far, 4, tolerance=5e-3)
    yield "`device=` and `dtype=` must set the device and the dtype, as in `torch.ones`."
    yield edge(further, 4, scenario="with_a_device_and_a_dtype")


def does_not_arrive(probe, seen) -> Problem | None:
    offset, size = (probe.args[name] for name in ("offset", "embed_dim"))
    start = max(0, -offset)
    table = oracle.positional_encoding(start + 4 + max(0, offset), size).outputs
    for p in range(start, start + 4):
        found, expected = seen.outputs.data @ table[p], table[p + offset]
        if not np.allclose(found, expected, atol=1e-2):
            where = int(np.argmax(~(np.abs(found - expected) <= 1e-2)))
            return Problem(
                "does_not_arrive",
                f"{_SHIFTS} For position {p}, yours gives {found[where]:.2f} in column {where}, "
                f"and the encoding of position {p + offset} has {expected[where]:.2f} there.",
                "By which angle must each pair of columns turn, in which direction, and which "
                "columns are a pair?",
            )
    return None


def in_blocks(block, offset, embed_dim, base=10000.0) -> Tensor:
    """Put `block(cosine, sine)` of each pair's angle on the diagonal."""
    angles = offset / base ** (torch.arange(0, embed_dim, 2).double() / embed_dim)
    blocks = (torch.tensor(block(math.cos(a), math.sin(a))) for a in angles.tolist())
    return torch.block_diag(*blocks).double()


def turned(c, s) -> list[list[float]]:
    return [[c, s], [-s, c]]


@mistake
def backwards(offset, embed_dim, **to) -> Tensor:
    """Your matrix shifts by -offset, for all offsets or for those below 0.

    Each pair is (sine, cosine), in this order. What does your matrix make of (0, 1)?
    """
    return in_blocks(turned, -offset, embed_dim).to(**to)


@like(backwards)
def always_forwards(offset, embed_dim, **to) -> Tensor:
    return in_blocks(lambda c, s: turned(c, abs(s)), offset, embed_dim).to(**to)


@mistake
def forward_only(offset, embed_dim, **to) -> Tensor:
    """For an offset below 0, your matrix is the identity.

    Which step treats an offset below 0 as 0, such as a loop over `range(offset)`?
    """
    return in_blocks(turned, max(offset, 0), embed_dim).to(**to)


@mistake
def in_halves(offset, embed_dim, **to) -> Tensor:
    """Your matrix is correct for encodings with all sines in the first half and all cosines in the
    second. In `positional_encoding` they alternate.

    Which two columns hold the first pair?
    """
    angles = offset / 10000.0 ** (torch.arange(0, embed_dim, 2).double() / embed_dim)
    c, s = angles.cos().diag(), angles.sin().diag()
    return torch.cat([torch.cat([c, s], 1), torch.cat([-s, c], 1)]).to(**to)


@mistake
def base_100(offset, embed_dim, **to) -> Tensor:
    """Your pair i is rotated by offset / 10000^(i/D) instead of offset / 10000^(2i/D).

    Write down the angles of offset 1 for D = 4. Are they 1 and 1/100?
    """
    return in_blocks(turned, offset, embed_dim, base=100.0).to(**to)


@mistake
def exponent_doubled(offset, embed_dim, **to) -> Tensor:
    """Your pair i is rotated by offset / 10000^(4i/D) instead of offset / 10000^(2i/D).

    Does your range already count in steps of two?
    """
    return in_blocks(turned, offset, embed_dim, base=1e8).to(**to)


@mistake
def no_minus(offset, embed_dim, **to) -> Tensor:
    """In each 2 x 2 block all four entries enter with a plus sign, but one of the two addition
    formulas has a minus.

    By which angle must each pair of columns turn, in which direction, and which columns are a pair?
    """
    return in_blocks(lambda c, s: [[c, s], [s, c]], offset, embed_dim).to(**to)


EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=2,
    starred=True,
    builds_on=("positional_encoding",),
    returns=(Returned("matrix", "tensor", "any float", ("embed_dim", "embed_dim")),),
    probes=problems,
    properties=(does_not_arrive,),
    hints=(
        "Each pair of columns is a clock hand. To move on by some positions is to turn every "
        "hand, each by an angle that does not depend on where it points.",
        "Take one pair, (sin a, cos a), and a step that turns it by b. The angle addition "
        "formulas write the new sine and the new cosine as sums of the two old numbers: their "
        "four factors form a 2 x 2 block. One block for each pair, along the diagonal.",
        "By hand, with two columns: which four numbers take (0, 1), position 0, to (sin 1, cos 1), "
        "and that to (sin 2, cos 2)? Then look up what `torch.block_diag` does with a list.",
    ),
)
