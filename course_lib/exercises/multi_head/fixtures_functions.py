"""Functions of a sequence `(batch, num_positions, d)`, for exercises that test such functions.

They run beside the student's code and use only torch. The oracle has its own version of each.
"""

import math

import torch


def _attend(x, mask=None):
    scores = x @ x.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
        empty = ~mask.any(-1, keepdim=True)
        return torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0) @ x
    return torch.softmax(scores, -1) @ x


def _lower(x, diagonal=0):
    size = x.shape[1]
    return torch.ones(size, size, dtype=torch.bool, device=x.device).tril(diagonal)


def _shift(x, offset):
    filler = torch.zeros_like(x[:, :1])
    return torch.cat([filler, x[:, :-1]] if offset < 0 else [x[:, 1:], filler], dim=1)


def _looks_ahead(x, i):
    if x.shape[1] <= i + 1:  # no later position
        return x
    return torch.cat([x[:, :i], x[:, i + 1 : i + 2] * x[:, i : i + 1], x[:, i + 1 :]], dim=1)


def _near_ones_count_more(x):
    positions = torch.arange(x.shape[1], device=x.device)
    return (1.0 / (1 + (positions[:, None] - positions).abs())).to(x.dtype) @ x


SEQUENCE_FUNCTIONS = {
    "each_on_its_own": lambda x: torch.tanh(x) + x**2,
    "self_attention": _attend,
    "causal_attention": lambda x: _attend(x, _lower(x)),
    "strictly_causal_attention": lambda x: _attend(x, _lower(x, -1)),
    "anticausal_attention": lambda x: _attend(x, _lower(x).mT),
    "average_over_positions": lambda x: x - x.mean(dim=1, keepdim=True),
    "running_sum": lambda x: x.cumsum(dim=1),
    "share_of_all": lambda x: x.cumsum(dim=1) / x.shape[1],
    "previous_position": lambda x: _shift(x, -1),
    "next_position": lambda x: _shift(x, 1),
    "next_but_not_the_last": lambda x: torch.cat([x[:, 1:-1], x[:, -2:]], dim=1),
    "second_looks_ahead": lambda x: _looks_ahead(x, 1),
    "third_looks_ahead": lambda x: _looks_ahead(x, 2),
    "copies_of_the_first": lambda x: x[:, :1].expand_as(x) + 1,
    "first_sees_last": lambda x: torch.cat([x[:, :1] + x[:, -1:], x[:, 1:]], dim=1),
    "circular_neighbours": lambda x: x - 2 * x.roll(-1, dims=1),
    "near_ones_count_more": _near_ones_count_more,
    "reversed": lambda x: x.flip(1),
    "scaled_by_position": lambda x: (
        x * torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)[:, None]
    ),
    "one_number_each": lambda x: x.sum(-1, keepdim=True) + x.amax((1, 2), keepdim=True),
    "doubled": lambda x: 2 * x,
    "always_nan": lambda x: x + x.sum(dim=1, keepdim=True) + math.nan,
}


def nudged(of, amount, direction, row=None):
    """Return the function 50 + tanh(x) with errors of up to `amount * direction`."""

    def function(x):
        rows = torch.arange(x.shape[1], device=x.device)
        if of == "order":
            effect = (x[:, 1:, 1] < x[:, :-1, 1]).any(1)[:, None].to(x.dtype).expand(x.shape[:2])
            unseen = effect > 0
        else:
            away = x[..., 2:] - 0.37
            away = torch.where(away >= 0, away, -away).sum(-1)  # also has a slope at 0
            ahead = away.flip(1).cumsum(1).flip(1) - away
            effect = torch.where(rows < x.shape[1] - 1, 1 / (1 + 10 * ahead), 0.0)
            unseen = effect < 0.9
        effect = effect * x[..., 0]
        if row is not None:
            effect = torch.where(rows == row % x.shape[1], effect, 0.0)
        if amount != amount:  # nan
            effect = torch.where(unseen & (effect != 0), amount, effect)
        else:
            effect = effect * amount
        return 50 + torch.tanh(x) + effect[..., None] * torch.tensor(direction, dtype=x.dtype)

    return function


def rounding(x):
    """Process each position alone, up to differences below 1e-6 in outputs near 0."""
    outputs = 0.015 * (1 + 0.3 * torch.tanh(x.double()))
    return (outputs + 0.9e-6 * jitter(x, x.shape)).to(x.dtype)


def jitter(x, shape):
    """Return numbers in 0..1 that any change of `x` changes, like the last digits of a sum."""
    weights = torch.arange(1, x.numel() + 1, dtype=torch.float64).sqrt().reshape(x.shape)
    total = float((x.detach().double().cpu() * weights).sum()) * 1000
    places = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).sqrt()
    return (total * places % 1).reshape(shape).to(x.device)
