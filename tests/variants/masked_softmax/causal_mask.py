"""Answers to `causal_mask`."""

import torch
from torch.nn.attention.bias import causal_lower_right

from course_lib.authoring.variants import faulty, right, wrong


@right
def lower_triangle(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(
        num_keys - num_queries
    )


@right
def compare_positions(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    i = torch.arange(num_queries, device=device)[:, None] + num_keys - num_queries
    return torch.arange(num_keys, device=device)[None, :] <= i


@right
def loop(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    rows = [[j <= i + m - num_queries for j in range(m)] for i in range(num_queries)]
    return torch.tensor(rows, dtype=torch.bool, device=device)


@right
def torchs_own(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return causal_lower_right(num_queries, num_keys)._materialize(device)


@wrong("not_as_requested")
def device_ignored(num_queries, num_keys=None, *, device=None):
    return lower_triangle(num_queries, num_keys)


@wrong("true_means_drop")
def what_transformer_code_has(num_queries, num_keys=None, *, device=None):
    shape = (num_queries, num_queries if num_keys is None else num_keys)
    return torch.triu(torch.ones(shape, device=device), diagonal=1) == 1


def of_ones(change):
    """A mask from `change(matrix of ones, num_keys - num_queries)`."""

    def causal_mask(num_queries, num_keys=None, *, device=None):
        num_keys = num_queries if num_keys is None else num_keys
        return change(torch.ones(num_queries, num_keys, device=device), num_keys - num_queries)

    return causal_mask


float_triangle = wrong("wrong_dtype_kind")(of_ones(lambda ones, more: ones.tril(more)))


KEPT = {}


@wrong()
def kept_by_number_of_queries(num_queries, num_keys=None, *, device=None):
    mask = lower_triangle(num_queries, num_keys, device=device)
    return KEPT.setdefault((num_queries, str(device)), mask)


@faulty("top_left", "floats", "or_for_none")
def slips_of_a_triangle(faults):
    def causal_mask(num_queries, num_keys=None, *, device=None):
        if "or_for_none" in faults:
            num_keys = num_keys or num_queries
        elif num_keys is None:
            num_keys = num_queries
        offset = 0 if "top_left" in faults else num_keys - num_queries
        mask = torch.ones(num_queries, num_keys, device=device).tril(offset)
        return mask if "floats" in faults else mask.bool()

    return causal_mask
