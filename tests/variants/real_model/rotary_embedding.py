"""Answers to `rotary_embedding`."""

import math

import torch

from course_lib.authoring.variants import faulty, right, wrong


def angles_of(x, offset, base):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("d must be even")
    rates = base ** (-torch.arange(0, d, 2) / d)
    return (torch.arange(offset, offset + x.shape[-2])[:, None] * rates).to(x.device)


@right
def complex_numbers(x, offset=0, base=10000.0):
    angles = angles_of(x, offset, base)
    points = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    turned = points * torch.polar(torch.ones_like(angles).double(), angles.double())
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


@right
def partners(x, offset=0, base=10000.0):
    """x cos + (x turned by a quarter) sin."""
    angles = angles_of(x, offset, base).repeat_interleave(2, dim=-1)
    quarter = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)
    return (x * angles.cos() + quarter * angles.sin()).to(x.dtype)


@right
def loops(x, offset=0, base=10000.0):
    if x.shape[-1] % 2 == 1:
        raise ValueError(f"odd: {x.shape[-1]}")
    n, d = x.shape[-2:]
    out = torch.empty_like(x)
    for p in range(n):
        for i in range(d // 2):
            angle = (p + offset) / base ** (2 * i / d)
            a, b = x[..., p, 2 * i], x[..., p, 2 * i + 1]
            out[..., p, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
            out[..., p, 2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
    return out


def woven(new):
    return torch.stack(new, dim=-1).flatten(-2)


@right
def in_steps(
    x,
    offset=0,
    base=10000.0,
    *,
    rates=lambda d, base: base ** (-torch.arange(0, d, 2) / d),
    place=lambda x, offset: torch.arange(offset, offset + x.shape[-2])[:, None],
    pair=lambda x: (x[..., ::2], x[..., 1::2]),
    turn=lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos),
    join=woven,
):
    """A right answer; the wrong ones below change a step."""
    if x.shape[-1] % 2:
        raise ValueError("d must be even")
    angles = (place(x, offset) * rates(x.shape[-1], base)).to(x.device)
    return join(turn(*pair(x), angles.cos(), angles.sin())).to(x.dtype)


@wrong("other_error")
def asserted(x, offset=0, base=10000.0):
    assert x.shape[-1] % 2 == 0
    return in_steps(x, offset, base)


@wrong("input_mutated")
def in_place(x, offset=0, base=10000.0):
    cos, sin = (f(angles_of(x, offset, base)).to(x.dtype) for f in (torch.cos, torch.sin))
    a, b = x[..., ::2].clone(), x[..., 1::2].clone()
    x.data[..., ::2] = a * cos - b * sin
    x.data[..., 1::2] = a * sin + b * cos
    return x


@wrong("wrong_values")
def angles_as_coarse_as_the_input(x, offset=0, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("d must be even")
    p = torch.arange(x.shape[-2], dtype=x.dtype) + offset
    angles = p[:, None] / base ** (torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return woven((a * cos - b * sin, a * sin + b * cos)).to(x.dtype)


@wrong("dtype_changed")
def returned_in_float32(x, offset=0, base=10000.0):
    return in_steps(x.float(), offset, base)


@wrong("raised")
def table_of_2048(x, offset=0, base=10000.0):
    angles = angles_of(x.new_zeros(2048, x.shape[-1]), 0, base)[offset : offset + x.shape[-2]]
    a, b = x[..., ::2], x[..., 1::2]
    new = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return woven(new).to(x.dtype)


@wrong("gradient_cut")
def gradient_cut(x, offset=0, base=10000.0):
    with torch.no_grad():
        return in_steps(x, offset, base)


@faulty("offset", "odd", "float32")
def slips_of_a_turn(faults):
    def rotary_embedding(x, offset=0, base=10000.0):
        start = 0 if "offset" in faults else offset
        if "odd" in faults and x.shape[-1] % 2:
            return x
        result = in_steps(x, start, base)
        return result.float() if "float32" in faults else result

    return rotary_embedding
