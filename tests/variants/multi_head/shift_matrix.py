"""Answers to `shift_matrix`."""

import math

import torch

from course_lib.authoring.variants import faulty, on_request, right, wrong


def _rates(embed_dim, base=10000.0):
    return base ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)


@right
@on_request
def loops(offset, embed_dim):
    matrix = torch.zeros(embed_dim, embed_dim)
    for i in range(0, embed_dim, 2):
        b = offset / 10000 ** (i / embed_dim)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(b)
        matrix[i, i + 1], matrix[i + 1, i] = math.sin(b), -math.sin(b)
    return matrix


@right
@on_request
def strided_assignment(offset, embed_dim):
    angles = offset * _rates(embed_dim)
    even = torch.arange(0, embed_dim, 2)
    matrix = torch.diag(angles.cos().repeat_interleave(2))
    matrix[even, even + 1] = angles.sin()
    matrix[even + 1, even] = -angles.sin()
    return matrix


@right
@on_request
def exponential_of_one_step(offset, embed_dim):
    rates = _rates(embed_dim)
    quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(offset * torch.block_diag(*(rate * quarter for rate in rates)))


stays = wrong()(lambda offset, embed_dim: torch.eye(embed_dim))
options_ignored = wrong("not_as_requested")(lambda *sizes, **to: loops(*sizes))
one_step_only = wrong()(lambda offset, embed_dim: loops(1, embed_dim))


@faulty("base of 100", "never back")
def with_faults(faults):
    @on_request
    def shift(offset, embed_dim):
        base = 100.0 if "base of 100" in faults else 10000.0
        angles = (abs(offset) if "never back" in faults else offset) * _rates(embed_dim, base)
        turns = [[[a.cos(), a.sin()], [-a.sin(), a.cos()]] for a in angles]
        return torch.block_diag(*(torch.tensor(turn) for turn in turns))

    return shift
