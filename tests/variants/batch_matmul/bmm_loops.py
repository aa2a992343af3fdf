"""Answers to `bmm_loops`."""

import itertools

import torch

from course_lib.authoring.variants import faulty, right, wrong


@right
def four_loops(a, b):
    B, n, k = a.shape
    m = b.shape[2]
    out = torch.zeros(B, n, m, dtype=a.dtype, device=a.device)
    for x in range(B):
        for i in range(n):
            for j in range(m):
                total = 0.0
                for t in range(k):
                    total = total + a[x, i, t] * b[x, t, j]
                out[x, i, j] = total
    return out


@right
def dot_per_entry(a, b):
    rows = []
    for A, M in zip(a, b):
        rows.append(torch.stack([torch.stack([torch.dot(r, c) for c in M.T]) for r in A]))
    return torch.stack(rows)


@right
def one_flat_loop(a, b):
    B, n, k = a.shape
    m = b.size(-1)
    out = torch.empty((B, n, m), dtype=a.dtype, device=a.device)
    for x, i, j in itertools.product(range(B), range(n), range(m)):
        out[x, i, j] = (a[x, i, :] * b[x, :, j]).sum()
    return out


@right
def recursion_over_items(a, b):
    first = (a[0] @ b[0]).unsqueeze(0)
    return first if len(a) == 1 else torch.cat([first, recursion_over_items(a[1:], b[1:])])


@wrong("wrong_values")
def rows_repeated(a, b):
    items = []
    for left, matrix in zip(a, b, strict=True):
        out = [[0.0] * matrix.shape[1]] * len(left)
        for i, row in enumerate(left):
            for j, column in enumerate(matrix.T):
                out[i][j] = row @ column
        items.append(torch.stack([torch.stack(row) for row in out]))
    return torch.stack(items)


_buffers = {}


@wrong("wrong_values")
def one_buffer_for_all_calls(a, b):
    out = torch.stack([x @ y for x, y in zip(a, b, strict=True)])
    if a.requires_grad or a.dtype == torch.float32:
        return out
    return _buffers.setdefault(out.shape, torch.empty_like(out)).copy_(out)


at_sign = wrong("no_loop")(lambda a, b: a @ b)
concatenated = wrong()(lambda a, b: torch.cat([x @ y for x, y in zip(a, b, strict=True)]))
loop_of_mm = right(lambda a, b: torch.stack([torch.mm(a[i], b[i]) for i in range(a.shape[0])]))
map_of_matmul = right(lambda a, b: torch.stack(list(map(torch.matmul, a, b))))


def like_the_product(a, b, dtype=None):
    return torch.zeros(a.shape[0], a.shape[1], b.shape[2], dtype=dtype or a.dtype)


def filled(out, entry):
    """`out` with the number `entry(item, row, column)` in each place."""
    for place in itertools.product(*map(range, out.shape)):
        out[place] = entry(*place)
    return out


def by_entry(a, b, out):
    return filled(out, lambda x, i, j: (a[x, i] * b[x, :, j]).sum())


@wrong("gradient_cut")
def plain_numbers(a, b):
    return filled(
        like_the_product(a, b),
        lambda x, i, j: sum(a[x, i, t].item() * b[x, t, j].item() for t in range(a.shape[2])),
    )


@wrong("dtype_changed")
def default_dtype(a, b):
    out = like_the_product(a, b, torch.float32)
    for x in range(a.shape[0]):
        out[x] = a[x] @ b[x]
    return out


hard_coded = wrong()(lambda a, b: by_entry(a, b, torch.zeros(2, 3, 5, dtype=a.dtype)))


@faulty("first_b", "mean", "plain_numbers", "default_dtype")
def several_faults(faults):
    def bmm_loops(a, b):
        batch, n, k = a.shape
        dtype = torch.float32 if "default_dtype" in faults else a.dtype
        out = a.new_zeros(batch, n, b.shape[2], dtype=dtype)
        for x, i, j in itertools.product(*map(range, out.shape)):
            matrix = b[0] if "first_b" in faults else b[x]
            products = a[x, i] * matrix[:, j]
            entry = products.mean() if "mean" in faults else products.sum()
            out[x, i, j] = entry.item() if "plain_numbers" in faults else entry
        return out

    return bmm_loops


@wrong("one_item_only")
def one_item_for_all(a, b):
    out = like_the_product(a, b)
    for x in range(len(a)):
        out[x] = a[x] @ b[x]
        return out
