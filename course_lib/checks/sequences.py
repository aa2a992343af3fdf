"""Functions of a sequence `(batch, num_positions, d)`, for exercises that test such functions.

They run beside the student's code: torch only. The oracle has its own version of each.
"""

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


def _next_centred(x):
    following = _shift(x, 1)
    return following - following.mean(-1, keepdim=True)


def _with_positions(x):
    num_positions, d = x.shape[1:]
    columns = torch.arange(d, device=x.device)
    rates = 10000.0 ** (-(columns - columns % 2) / d)
    angles = torch.arange(num_positions, device=x.device)[:, None] * rates
    return x + torch.where(columns % 2 == 0, angles.sin(), angles.cos()).to(x.dtype)


def _some_items_causal(x, is_causal):
    return torch.stack(
        [_attend(row[None], _lower(x) if is_causal(b) else None)[0] for b, row in enumerate(x)]
    )


def _looks_ahead(x, i):
    if x.shape[1] <= i + 1:  # nothing is ahead
        return x
    return torch.cat([x[:, :i], x[:, i + 1 : i + 2] * x[:, i : i + 1], x[:, i + 1 :]], dim=1)


def _near_ones_count_more(x):
    positions = torch.arange(x.shape[1], device=x.device)
    return (1.0 / (1 + (positions[:, None] - positions).abs())).to(x.dtype) @ x


def _sorted_by_first_feature(x):
    order = x[..., 0].argsort(dim=1)
    return torch.take_along_dim(x, order[..., None], dim=1)


SEQUENCE_FUNCTIONS = {
    "each_on_its_own": lambda x: torch.tanh(x) + x**2,
    "self_attention": _attend,
    "causal_attention": lambda x: _attend(x, _lower(x)),
    "strictly_causal_attention": lambda x: _attend(x, _lower(x, -1)),
    "anticausal_attention": lambda x: _attend(x, _lower(x).mT),
    "attention_with_positions": lambda x: _attend(_with_positions(x)),
    "causal_in_first_item": lambda x: _some_items_causal(x, lambda b: b == 0),
    "causal_in_last_item": lambda x: _some_items_causal(x, lambda b: b != 0),
    "average_over_positions": lambda x: x - x.mean(dim=1, keepdim=True),
    "running_sum": lambda x: x.cumsum(dim=1),
    "previous_position": lambda x: _shift(x, -1),
    "next_position": lambda x: _shift(x, 1),
    "next_position_centred": _next_centred,
    "next_but_not_the_last": lambda x: torch.cat([x[:, 1:-1], x[:, -2:]], dim=1),
    "second_looks_ahead": lambda x: _looks_ahead(x, 1),
    "third_looks_ahead": lambda x: _looks_ahead(x, 2),
    "copies_of_the_first": lambda x: x[:, :1].expand_as(x) + 1,
    "first_sees_last": lambda x: torch.cat([x[:, :1] + x[:, -1:], x[:, 1:]], dim=1),
    "circular_neighbours": lambda x: x - 2 * x.roll(-1, dims=1),
    "near_ones_count_more": _near_ones_count_more,
    "sorted_by_first_feature": _sorted_by_first_feature,
    "reversed": lambda x: x.flip(1),
    "scaled_by_position": lambda x: (
        x * torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)[:, None]
    ),
    "last_one_special": lambda x: torch.cat([x[:, :-1], -x[:, -1:]], dim=1),
    "one_number_each": lambda x: x.sum(-1, keepdim=True) + x.amax((1, 2), keepdim=True),
}
