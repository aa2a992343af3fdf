"""Answers to `positional_encoding`."""

import math

import numpy as np
import torch

from course_lib.authoring.variants import faulty, on_request, right, wrong


@right
@on_request
def loops(num_positions, embed_dim):
    table = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
    for p in range(num_positions):
        for c in range(embed_dim):
            angle = p / 10000 ** (2 * (c // 2) / embed_dim)
            table[p, c] = math.sin(angle) if c % 2 == 0 else math.cos(angle)
    return table


@right
@on_request
def through_numpy(num_positions, embed_dim):
    p, c = np.meshgrid(np.arange(num_positions), np.arange(embed_dim), indexing="ij")
    angles = p / np.power(10000, (c - c % 2) / embed_dim)
    return torch.from_numpy(np.where(c % 2, np.cos(angles), np.sin(angles)))


def _angles(num_positions, embed_dim, start=0, base=10000.0):
    p = torch.arange(start, start + num_positions, dtype=torch.float64)[:, None]
    return p / base ** (torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)


def _zip(even, odd, embed_dim):
    return torch.stack([even, odd], dim=-1).flatten(1)[:, :embed_dim]


@right
@on_request
def sine_with_a_phase(num_positions, embed_dim):
    column = torch.arange(embed_dim)
    rates = 10000.0 ** (-(column - column % 2) / embed_dim)
    angles = torch.outer(torch.arange(num_positions).float(), rates)
    return torch.sin(angles + column % 2 * math.pi / 2)


fifty_positions_at_most = wrong("wrong_shape")(
    lambda num_positions, *rest, **to: sine_with_a_phase(min(num_positions, 50), *rest, **to)
)


def _turned(angles, embed_dim):
    return _zip(angles.sin(), angles.cos(), embed_dim)


@wrong()
def positions_rounded(num_positions, embed_dim, device=None, dtype=None):
    p = torch.arange(num_positions, device=device, dtype=dtype or torch.float32)[:, None]
    p = p.double()
    angles = p / 10000.0 ** (torch.arange(0, embed_dim, 2, device=device).double() / embed_dim)
    return _turned(angles, embed_dim).to(dtype)


options_ignored = wrong("not_as_requested")(lambda *sizes, **to: loops(*sizes))
half_precision = wrong()(
    lambda num_positions, embed_dim: _turned(
        torch.arange(num_positions)[:, None] * _angles(2, embed_dim)[1].half(), embed_dim
    )
)


@faulty("base of 100", "last column zero")
def with_faults(faults):
    @on_request
    def encode(num_positions, embed_dim):
        base = 100.0 if "base of 100" in faults else 10000.0
        table = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
        for p in range(num_positions):
            for column in range(embed_dim):
                angle = p / base ** (2 * (column // 2) / embed_dim)
                table[p, column] = math.cos(angle) if column % 2 else math.sin(angle)
        if "last column zero" in faults and embed_dim % 2:
            table[:, -1] = 0.0
        return table

    return encode
