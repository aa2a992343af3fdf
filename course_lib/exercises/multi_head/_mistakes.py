"""Wrong models of lesson 06: loaders, tests of functions, encodings."""

import math
from collections.abc import Callable

import torch

from course_lib.exercises._rows import in_steps


# ---------------------------------------------------------------- load_into_torch
def _share(mha, reference) -> None:
    reference.out_proj.weight = mha.W_o.weight


@in_steps(order="qkv", weight=None, out=None, biases=True, after=lambda mha, reference: None)
def loader(order, weight, out, biases: bool | str, after) -> Callable:
    """A wrong `load_into_torch`: `weight` and `out` change what is copied."""

    def load_into_torch(mha, reference) -> None:
        layers = [getattr(mha, f"W_{part}") for part in order]
        with torch.no_grad():
            if weight is not False:
                weights = [(weight or (lambda w: w))(x.weight) for x in layers]
                reference.in_proj_weight.copy_(torch.cat(weights))
            if out is not False:
                reference.out_proj.weight.copy_((out or (lambda w: w))(mha.W_o.weight))
            if biases:
                load_biases(mha, reference, layers, biases)
        after(mha, reference)

    return load_into_torch


def load_biases(mha, reference, layers, biases) -> None:
    """Copies the biases, or zeros unless `biases` is "own"."""
    if reference.in_proj_bias is None:
        return
    if mha.W_o.bias is not None:
        reference.in_proj_bias.copy_(torch.cat([x.bias for x in layers]))
        reference.out_proj.bias.copy_(mha.W_o.bias)
    elif biases != "own":
        reference.in_proj_bias.zero_()
        reference.out_proj.bias.zero_()


load_shared = loader(after=_share)


def load_nothing(mha, reference) -> None:
    reference.load_state_dict(mha.state_dict(), strict=False)


# ---------------------------------------------------------------- tests of functions
def same(a, b) -> bool:
    return bool(a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-5))


def equivariance(change, output=None, agree=same) -> Callable:
    """A test that permutes with `change(x)`; `output` is what is done to the outputs."""

    def is_permutation_equivariant(fn, x) -> bool:
        return agree(fn(change(x)), (output or change)(fn(x)))

    return is_permutation_equivariant


def swap_first_two(x) -> torch.Tensor:
    return torch.cat([x[:, 1:2], x[:, :1], x[:, 2:]], dim=1)


def both(*tests) -> Callable:
    return lambda fn, x: all(test(fn, x) for test in tests)


def causality(change, before=lambda outputs, t: outputs[:, :t], cuts=None) -> Callable:
    """A test that changes x with `change(x, t)` and compares what `before` picks."""

    def is_causal(fn, x) -> bool:
        outputs, found = fn(x), True
        for t in cuts(x.shape[1]) if cuts else range(1, x.shape[1]):
            found = found and same(before(fn(change(x, t)), t), before(outputs, t))
        return found

    return is_causal


def causality_in_place(fn, x) -> bool:
    outputs, found = fn(x).clone(), True
    for t in range(1, x.shape[1]):
        x[:, t:] += 1.3
        found = found and same(fn(x)[:, :t], outputs[:, :t])
    return found


def from_t_on(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], x[:, t:].flip(-1) * 1.7 + 0.9], dim=1)


def first_feature_from_t_on(x, t) -> torch.Tensor:
    return torch.cat([torch.cat([x[:, :t, :1], x[:, t:, :1] + 1.7], dim=1), x[..., 1:]], dim=-1)


def only_t(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], x[:, t : t + 1] + 1.3, x[:, t + 1 :]], dim=1)


def up_to_t(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t] + 1.3, x[:, t:]], dim=1)


def nan_from_t_on(x, t) -> torch.Tensor:
    return torch.cat([x[:, :t], torch.full_like(x[:, t:], math.nan)], dim=1)


# ---------------------------------------------------------------- positional_encoding
@in_steps(exponent=lambda column, size: (column - column % 2) / size, base=10000.0, start=0, sine=0)
def encoding(exponent, base, start, sine) -> Callable:
    """A wrong encoding: `exponent(column, embed_dim)`, first position, parity of the sines."""

    def positional_encoding(num_positions, embed_dim) -> torch.Tensor:
        positions = torch.arange(start, start + num_positions, dtype=torch.float64)[:, None]
        columns = torch.arange(embed_dim)
        rates = base ** exponent(columns.double(), embed_dim)
        angles = positions / rates
        return torch.where(columns % 2 == sine, angles.sin(), angles.cos())

    return positional_encoding


def halves_of(num_positions, embed_dim) -> torch.Tensor:
    first, second = (embed_dim + 1) // 2, embed_dim // 2
    pairs = torch.arange(first, dtype=torch.float64)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None]
    angles = angles / 10000.0 ** (2 * pairs / embed_dim)
    return torch.cat([angles.sin(), angles[:, :second].cos()], dim=-1)


def even_sizes_only(num_positions, embed_dim) -> torch.Tensor:
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None]
    angles = angles / 10000.0 ** (torch.arange(0, embed_dim, 2).double() / embed_dim)
    result = torch.zeros(num_positions, embed_dim, dtype=torch.float64)
    result[:, 0::2] = angles.sin()
    result[:, 1::2] = angles.cos()
    return result
