"""Answers to `length_mask`."""

import numpy as np
import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def compare(valid_lens, max_len):
    return torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]


@right
def cumulative_sum(valid_lens, max_len):
    ones = valid_lens.new_ones(*valid_lens.shape, max_len)
    return ones.cumsum(-1) <= valid_lens.unsqueeze(-1)


@right
def through_numpy(valid_lens, max_len):
    mask = np.arange(max_len) < valid_lens.cpu().numpy()[..., None]
    return torch.from_numpy(mask).to(valid_lens.device)


@wrong()
def at_least_one(valid_lens, max_len):
    mask = torch.arange(max_len) < valid_lens[..., None]
    mask[..., 0] = True
    return mask


@wrong("cpu_tensor")
def through_a_list(valid_lens, max_len):
    rows = [[j < n for j in range(max_len)] for n in valid_lens.flatten().tolist()]
    return torch.tensor(rows).view(*valid_lens.shape, max_len)


@wrong("squeezed")
def squeezed(valid_lens, max_len):
    lengths = valid_lens.unsqueeze(-1)
    return (torch.arange(max_len, device=lengths.device) < lengths).squeeze()


@wrong()
def compares_as_bytes(valid_lens, max_len):
    positions = torch.arange(max_len, device=valid_lens.device).to(torch.uint8)
    return positions < valid_lens.to(torch.uint8).unsqueeze(-1)


@wrong("cpu_tensor")
def column_against_row_on_the_cpu(valid_lens, max_len):
    row = torch.tensor(range(max_len))
    return torch.gt(valid_lens.unsqueeze(dim=-1), row)


float_zero_one = wrong("wrong_dtype_kind")(
    lambda valid_lens, max_len: (torch.arange(max_len) < valid_lens[..., None]).to(torch.float64)
)
width_of_the_longest = wrong("wrong_shape")(
    lambda valid_lens, max_len: torch.arange(int(valid_lens.max()) + 1) < valid_lens[..., None]
)


KEPT = {}


@wrong()
def kept_by_shape(valid_lens, max_len):
    key = *valid_lens.shape, max_len, valid_lens.device
    mask = torch.arange(max_len, device=valid_lens.device) < valid_lens[..., None]
    return KEPT.setdefault(key, mask)


@faulty("one_too_many", "lengths_of_items_only", "on_the_cpu")
def slips_of_a_comparison(faults):
    def length_mask(valid_lens, max_len):
        device = None if "on_the_cpu" in faults else valid_lens.device
        positions = torch.arange(max_len, device=device)
        if "one_too_many" in faults:
            positions = positions - 1
        if "lengths_of_items_only" in faults:
            return positions[None, :] < valid_lens[:, None]
        return positions < valid_lens[..., None]

    return length_mask
