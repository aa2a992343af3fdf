"""Additive attention on CUDA by Triton: an online softmax, and a backward that stores no pair.

A program holds some queries of an item and walks over the keys; for each hidden feature it adds
to a tile of scores, which stays in registers. sigmoid(2 (q + k)) is 1 / (1 + a b), where a and b
are exponentials of -2q and -2k if a flag on the device says that they are small, and otherwise
1 / (1 + exp(a + b)), where they are -2q and -2k themselves. A multiprocessor starts 16 reciprocals
a clock and 128 products, so two features share one: u/x + v/y = (uy + vx) / (xy). See
`_additive_passes` for the rest.

This module needs Triton; `TRITON_INTERPRET=1` runs its kernels on a CPU, to test them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from course_lib.fused._additive_blocks import bound

ROWS, COLUMNS = 32, 64  # queries and keys of a tile; fewer keys where values are long
PART = 32  # how much of a value the backward pass looks at at a time
LARGEST_VALUE_SIZE = 256  # the averages of a tile's queries stay in registers too


@triton.jit
def _below(q, k, h, rows, columns, n, m, are_small):
    """What sigma is 1 divided by."""
    a = tl.load(q + h * n + rows, mask=rows < n, other=0.0)
    b = tl.load(k + h * m + columns, mask=columns < m, other=0.0)
    if are_small:  # noqa: SIM108 (both sides would be computed)
        pairs = a[:, None] * b[None, :]
    else:
        pairs = tl.exp(a[:, None] + b[None, :])
    return 1.0 + pairs


@triton.jit
def _scores(q, k, w, mask, stride_n, stride_m, lengths, rows, columns, n, m, num_hiddens, are_small,
            HAS_MASK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    scores = tl.zeros((ROWS, COLUMNS), tl.float32)
    for h in range(0, num_hiddens, 2):  # an even number
        x = _below(q, k, h, rows, columns, n, m, are_small)
        y = _below(q, k, h + 1, rows, columns, n, m, are_small)
        u, v = 2.0 * tl.load(w + h), 2.0 * tl.load(w + h + 1)
        if are_small:
            scores += (u * y + v * x) / (x * y)
        else:
            scores += u / x + v / y
    allowed = (rows < n)[:, None] & (columns[None, :] < lengths[:, None])
    if HAS_MASK:
        places = mask + rows[:, None] * stride_n + columns[None, :] * stride_m
        allowed = allowed & (tl.load(places, mask=allowed, other=0) != 0)
    return tl.where(allowed, scores, float("-inf"))


@triton.jit
def _forward(q, k, w, v, mask, lengths, flag, outputs, log_sums, scores_out, n, m, num_hiddens,
             v_size, length_b, length_n, stride_b, stride_n, stride_m, HAS_MASK: tl.constexpr,
             WANT_SCORES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
             WIDE: tl.constexpr):  # fmt: skip
    item = tl.program_id(1).to(tl.int64)
    rows, wide = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    counted = tl.load(lengths + item * length_b + rows * length_n, mask=rows < n, other=0)
    last, are_small = tl.max(counted, axis=0), tl.load(flag) != 0
    q, k, mask = q + item * num_hiddens * n, k + item * num_hiddens * m, mask + item * stride_b
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    average = tl.zeros((ROWS, WIDE), tl.float32)
    for start in range(0, last, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        scores = _scores(q, k, w, mask, stride_n, stride_m, counted, rows, columns, n, m,
                         num_hiddens, are_small, HAS_MASK, ROWS, COLUMNS)  # fmt: skip
        here = (rows < n)[:, None] & (columns < m)[None, :]
        if WANT_SCORES:
            tl.store(scores_out + (item * n + rows[:, None]) * m + columns[None, :], scores, here)
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)  # no key so far
        parts = tl.exp(scores - shift[:, None])
        rescale = tl.exp(largest - shift)
        places = v + (item * m + columns[:, None]) * v_size + wide[None, :]
        inside = (columns < m)[:, None] & (wide < v_size)[None, :]
        values = tl.load(places, mask=inside, other=0.0)
        total = total * rescale + tl.sum(parts, axis=1)
        average = average * rescale[:, None] + tl.dot(parts, values, input_precision="tf32x3")
        largest = higher
    found = total > 0
    average = average / tl.where(found, total, 1.0)[:, None]
    log_sum = tl.where(found, largest + tl.log(tl.where(found, total, 1.0)), float("inf"))
    tl.store(log_sums + item * n + rows, log_sum, mask=rows < n)
    places = outputs + (item * n + rows[:, None]) * v_size + wide[None, :]
    tl.store(places, average, mask=(rows < n)[:, None] & (wide < v_size)[None, :])


@triton.jit
def _backward(q, k, w, v, mask, lengths, flag, log_sums, deltas, grad_out, grad_q, grad_k, grad_w,
              grad_v, n, m, num_hiddens, v_size, length_b, length_n, stride_b, stride_n, stride_m,
              HAS_MASK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
              WIDE: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    item = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    counted = tl.load(lengths + item * length_b + rows * length_n, mask=rows < n, other=0)
    last, are_small = tl.max(counted, axis=0), tl.load(flag) != 0
    q, k, mask = q + item * num_hiddens * n, k + item * num_hiddens * m, mask + item * stride_b
    log_sum = tl.load(log_sums + item * n + rows, mask=rows < n, other=float("inf"))
    delta = tl.load(deltas + item * n + rows, mask=rows < n, other=0.0)
    for start in range(0, last, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        scores = _scores(q, k, w, mask, stride_n, stride_m, counted, rows, columns, n, m,
                         num_hiddens, are_small, HAS_MASK, ROWS, COLUMNS)  # fmt: skip
        weights = tl.exp(scores - log_sum[:, None])
        grad_weights = tl.zeros((ROWS, COLUMNS), tl.float32)
        for first in tl.static_range(0, WIDE, PART):  # few at a time, which stay in registers
            some = first + tl.arange(0, PART)
            from_rows = grad_out + (item * n + rows[:, None]) * v_size + some[None, :]
            real = (rows < n)[:, None] & (some < v_size)[None, :]
            grad = tl.load(from_rows, mask=real, other=0.0)
            places = (item * m + columns[:, None]) * v_size + some[None, :]
            inside = (columns < m)[:, None] & (some < v_size)[None, :]
            values = tl.load(v + places, mask=inside, other=0.0)
            grad_weights += tl.dot(grad, tl.trans(values), input_precision="tf32x3")
            part = tl.dot(tl.trans(weights), grad, input_precision="tf32x3")
            tl.atomic_add(grad_v + places, part, mask=inside)
        grad_scores = weights * (grad_weights - delta[:, None])
        for h in range(num_hiddens):
            pairs = 1.0 / _below(q, k, h, rows, columns, n, m, are_small)
            tl.atomic_add(grad_w + item * num_hiddens + h, tl.sum(grad_scores * pairs))
            slope = grad_scores * (pairs - pairs * pairs)
            at = item * num_hiddens + h
            tl.atomic_add(grad_q + at * n + rows, tl.sum(slope, axis=1), mask=rows < n)
            tl.atomic_add(grad_k + at * m + columns, tl.sum(slope, axis=0), mask=columns < m)


def covers(queries: Tensor, values: Tensor, dropout: float) -> bool:
    """Whether the kernels can compute this."""
    fits = 0 < values.shape[-1] <= LARGEST_VALUE_SIZE and queries.dtype != torch.float64
    return fits and not dropout


def averages(
    queries, keys, w, values, lengths, mask, want_weights: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns outputs `(batch, n, v)`, log sums `(batch, n, 1)`, and weights or None.

    Args:
        queries, keys, values: of float32, projected.
        w: `(H,)`.
        lengths, mask: `(batch, n or 1)` and `(batch, n, m)`, or None.
        want_weights: whether to compute `(batch, n, m)` weights too.
    """
    queries, keys, w = _even(queries, keys, w)
    batch, n, v_size = *queries.shape[:2], values.shape[-1]
    outputs = values.new_empty(batch, n, v_size)
    log_sums = values.new_empty(batch, n, 1)
    shape = (batch, n, keys.shape[1]) if want_weights else (1,)
    scores = values.new_full(shape, float("-inf"))
    arguments, sizes, options = _arguments(queries, keys, w, values, lengths, mask)
    _forward[_grid(queries)](
        *arguments, outputs, log_sums, scores, *sizes, WANT_SCORES=want_weights, **options
    )
    return outputs, log_sums, scores.sub_(log_sums).exp_() if want_weights else None


def gradients(
    queries, keys, w, values, lengths, mask, outputs, log_sums, grad_outputs
) -> list[Tensor]:
    """Returns the gradients of projected queries and keys, of w and of the values."""
    given, (queries, keys, w) = w.shape[0], _even(queries, keys, w)
    batch, _, num_hiddens = queries.shape
    deltas = (grad_outputs * outputs).sum(dim=-1)
    grad_q, grad_k = (x.new_zeros(batch, num_hiddens, x.shape[1]) for x in (queries, keys))
    grad_w, grad_v = w.new_zeros(batch, num_hiddens), torch.zeros_like(values)
    arguments, sizes, options = _arguments(queries, keys, w, values, lengths, mask)
    grads = grad_outputs.contiguous(), grad_q, grad_k, grad_w, grad_v
    part = min(options["WIDE"], PART)
    _backward[_grid(queries)](*arguments, log_sums, deltas, *grads, *sizes, PART=part, **options)
    found = grad_q.mT * (4 * w), grad_k.mT * (4 * w), 2 * grad_w.double().sum(dim=0)
    return [*(grad[..., :given] for grad in found), grad_v]


def _even(*tensors: Tensor) -> list[Tensor]:
    """The same with an even number of hidden features, of which the added has weight 0."""
    return [functional.pad(tensor, (0, tensor.shape[-1] % 2)) for tensor in tensors]


def _grid(queries: Tensor) -> tuple[int, int]:
    return triton.cdiv(queries.shape[1], ROWS), queries.shape[0]


def _arguments(queries, keys, w, values, lengths, mask) -> tuple[tuple, tuple, dict]:
    """Tensors as the kernels want them, their sizes and strides, and what is fixed."""
    batch, n, num_hiddens = queries.shape
    m, v_size = values.shape[1:]
    limit = bound(queries.dtype) / 4  # the product of two must be finite, too
    flag = (queries.abs().amax() <= limit) & (keys.abs().amax() <= limit)  # stays on the device
    q, k = ((-2 * x.mT).contiguous() for x in (queries, keys))  # (batch, H, n or m)
    q, k = (torch.where(flag, x.exp(), x) for x in (q, k))
    if lengths is None:
        lengths = torch.full((1, 1), m, device=q.device).expand(batch, 1)
    length_n = lengths.stride(1) if lengths.shape[1] > 1 else 0
    strides = (0, 0, 0) if mask is None else mask.stride()
    bits = flag if mask is None else mask
    arguments = q, k, w.contiguous(), values.contiguous(), bits, lengths, flag
    sizes = n, m, num_hiddens, v_size, lengths.stride(0), length_n, *strides
    wide = max(16, triton.next_power_of_2(v_size))
    columns = COLUMNS if wide <= COLUMNS else COLUMNS // 2
    options = {"HAS_MASK": mask is not None, "ROWS": ROWS, "COLUMNS": columns, "WIDE": wide}
    options["num_warps"] = 8
    return arguments, sizes, options
