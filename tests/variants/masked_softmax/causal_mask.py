"""Answers to `causal_mask`."""

import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def lower_triangle(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(
        num_keys - num_queries
    )


@right
def moved_afterwards(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    mask = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)
    return mask if device is None else mask.to(device)


@wrong("raised")
def without_device(num_queries, num_keys=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)


@wrong("not_as_requested")
def device_ignored(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)


@right
def compare_positions(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    i = torch.arange(num_queries, device=device)[:, None] + num_keys - num_queries
    return torch.arange(num_keys, device=device)[None, :] <= i


@right
def not_the_future(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    return ~torch.triu(
        torch.ones(num_queries, m, device=device), diagonal=m - num_queries + 1
    ).bool()


@right
def loop(num_queries, num_keys=None, *, device=None):
    m = num_queries if num_keys is None else num_keys
    rows = [[j <= i + m - num_queries for j in range(m)] for i in range(num_queries)]
    return torch.tensor(rows, dtype=torch.bool, device=device)


@right
def last_rows_of_a_square(num_queries, num_keys=None, *, device=None):
    m = num_keys if num_keys is not None else num_queries
    size = max(num_queries, m)
    square = torch.ones(size, size, dtype=torch.bool, device=device).tril()
    return square[size - num_queries :, size - m :]


@wrong("upper_triangular")
def future_only(num_queries, num_keys=None, *, device=None):
    m = num_keys or num_queries
    return torch.ones(num_queries, m, device=device).triu(m - num_queries).bool()


@wrong("top_left_aligned")
def torch_alignment(num_queries, num_keys=None, *, device=None):
    m = num_keys or num_queries
    return (
        torch.arange(m, device=device)[None, :] <= torch.arange(num_queries, device=device)[:, None]
    )


@wrong("own_key_dropped")
def strictly_before(num_queries, num_keys=None, *, device=None):
    m = num_keys or num_queries
    return (
        torch.arange(m, device=device)[None, :]
        < torch.arange(num_queries, device=device)[:, None] + m - num_queries
    )


@wrong("wrong_dtype_kind")
def float_triangle(num_queries, num_keys=None, *, device=None):
    m = num_keys or num_queries
    return torch.tril(torch.ones(num_queries, m, device=device), m - num_queries)


square_always = wrong("num_keys_ignored")(
    lambda num_queries, num_keys=None, *, device=None: (
        torch.ones(num_queries, num_queries, device=device).tril().bool()
    )
)


@wrong()
def shifted_the_wrong_way(num_queries, num_keys=None, *, device=None):
    m = num_keys or num_queries
    return torch.ones(num_queries, m, device=device).tril(num_queries - m).bool()


@wrong("one_step_ahead")
def one_step_ahead(num_queries, num_keys=None, *, device=None):
    m = num_keys or num_queries
    return torch.ones(num_queries, m, device=device).tril(m - num_queries + 1).bool()


@wrong()
def fails_for_none(num_queries, num_keys=None, *, device=None):
    return torch.ones(num_queries, num_keys, device=device).tril(num_keys - num_queries).bool()


@right
def from_a_mask_to_add(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    added = torch.full((num_queries, num_keys), -torch.inf, device=device).triu(
        num_keys - num_queries + 1
    )
    return added == 0


@wrong("wrong_shape")
def or_for_is_none(num_queries, num_keys=None, *, device=None):
    num_keys = num_keys or num_queries
    rows, columns = (
        torch.arange(num_queries, device=device)[:, None],
        torch.arange(num_keys, device=device),
    )
    return columns - num_keys <= rows - num_queries


@wrong("true_means_drop")
def true_where_dropped(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.triu(num_keys - num_queries + 1)


@wrong("future_seen")
def what_transformer_code_has(num_queries, num_keys=None, *, device=None):
    shape = (num_queries, num_queries if num_keys is None else num_keys)
    return torch.triu(torch.ones(shape, device=device), diagonal=1) == 1


@wrong("no_mask_at_all")
def fills_and_forgets(num_queries, num_keys=None, *, device=None):
    keys = num_queries if num_keys is None else num_keys
    allowed = torch.full((num_queries, keys), True, device=device)
    allowed.tril(keys - num_queries)
    return allowed


@wrong()
def sees_500_back(num_queries, num_keys=None, *, device=None):
    num_keys = num_queries if num_keys is None else num_keys
    back = (
        torch.arange(num_queries, device=device)[:, None]
        + num_keys
        - num_queries
        - torch.arange(num_keys, device=device)
    )
    return (back >= 0) & (back < 500)


@wrong("additive_instead_of_bool")
def minus_infinity_above_the_diagonal(num_queries, num_keys=None, *, device=None):
    columns = num_queries if num_keys is None else num_keys
    return torch.triu(
        torch.full((num_queries, columns), -torch.inf, device=device), columns - num_queries + 1
    )


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
