"""Answers to `length_mask`."""

import torch

from course_lib.checks.matrix import right, wrong


@right
def compare(valid_lens, max_len):
    return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]


@right
def cumulative_sum(valid_lens, max_len):
    ones = valid_lens.new_ones(*valid_lens.shape, max_len)
    return ones.cumsum(-1) <= valid_lens.unsqueeze(-1)


@right
def loop(valid_lens, max_len):
    mask = torch.zeros(*valid_lens.shape, max_len, dtype=torch.bool)
    for index in torch.cartesian_prod(*(torch.arange(n) for n in valid_lens.shape)).reshape(
        -1, valid_lens.dim()
    ):
        place = tuple(index.tolist())
        mask[place][: int(valid_lens[place])] = True
    return mask


@right
def through_numpy(valid_lens, max_len):
    import numpy as np

    return torch.from_numpy(np.arange(max_len) < valid_lens.numpy()[..., None])


@right
def steps(valid_lens, max_len):
    rows = torch.tril(torch.ones(max_len + 1, max_len, dtype=torch.bool), -1)
    return rows.to(valid_lens.device)[valid_lens]


@right
def negated(valid_lens, max_len):
    positions = torch.arange(max_len).to(valid_lens)
    return ~(positions.expand(*valid_lens.shape, -1) >= valid_lens.unsqueeze(-1))


@wrong("positions_on_the_cpu")
def positions_on_the_cpu(valid_lens, max_len):
    return torch.stack([torch.arange(max_len) < n for n in valid_lens.unbind(-1)], -2)


@wrong("one_too_many")
def less_or_equal(valid_lens, max_len):
    return torch.arange(max_len) <= valid_lens[..., None]


@wrong("starts_at_one")
def from_one(valid_lens, max_len):
    return torch.arange(1, max_len + 1) < valid_lens[..., None]


@wrong("inverted")
def padding_is_true(valid_lens, max_len):
    return torch.arange(max_len) >= valid_lens[..., None]


@wrong("float_mask")
def float_zero_one(valid_lens, max_len):
    return (torch.arange(max_len) < valid_lens[..., None]).to(torch.float64)


@wrong("integer_mask")
def int_zero_one(valid_lens, max_len):
    return (torch.arange(max_len) < valid_lens[..., None]).int()


@wrong("transposed")
def keys_first(valid_lens, max_len):
    return torch.arange(max_len)[:, None] < valid_lens.unsqueeze(-2)


@wrong("longest_for_all")
def longest(valid_lens, max_len):
    mask = torch.zeros(*valid_lens.shape, max_len, dtype=torch.bool)
    mask[..., : int(valid_lens.max())] = True
    return mask


@wrong("only_one_length_per_item")
def one_dimension(valid_lens, max_len):
    return torch.arange(max_len)[None, :] < valid_lens[:, None]


@wrong()
def keeps_the_last_keys(valid_lens, max_len):
    return torch.arange(max_len) >= max_len - valid_lens[..., None]


@wrong()
def only_the_last_real_key(valid_lens, max_len):
    return torch.arange(max_len) == valid_lens[..., None] - 1


@wrong()
def everything(valid_lens, max_len):
    return torch.ones(*valid_lens.shape, max_len, dtype=torch.bool)


@wrong()
def at_least_one(valid_lens, max_len):
    mask = torch.arange(max_len) < valid_lens[..., None]
    mask[..., 0] = True
    return mask


@wrong("wrong_type")
def list_of_lists(valid_lens, max_len):
    return [[j < n for j in range(max_len)] for n in valid_lens.flatten().tolist()]


@wrong("input_mutated")
def changes_the_lengths(valid_lens, max_len):
    mask = torch.arange(max_len) < valid_lens[..., None]
    valid_lens.zero_()
    return mask


@wrong("wrong_shape")
def width_of_the_longest(valid_lens, max_len):
    return torch.arange(int(valid_lens.max()) + 1) < valid_lens[..., None]
