"""Oracle of lesson 06: one head, one query at a time."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import allowed_keys, attend, softmax_of


def split_heads(x: np.ndarray, num_heads: int) -> Expected:
    """Copy every number to its head."""
    batch, num_positions, embed_dim = x.shape
    head_dim = embed_dim // num_heads
    heads = np.empty((batch, num_heads, num_positions, head_dim))
    for b, p, feature in np.ndindex(x.shape):
        heads[b, feature // head_dim, p, feature % head_dim] = x[b, p, feature]
    return Expected(heads)


def merge_heads(x: np.ndarray) -> Expected:
    """Copy every number back from its head."""
    batch, num_heads, num_positions, head_dim = x.shape
    merged = np.empty((batch, num_positions, num_heads * head_dim))
    for b, h, p, feature in np.ndindex(x.shape):
        merged[b, p, h * head_dim + feature] = x[b, h, p, feature]
    return Expected(merged)


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Compute y_o = sum_i weight[o, i] x_i + bias_o at each position."""
    products = (weight * x[..., None, :]).sum(axis=-1)
    return products if bias is None else products + bias


def multi_head_attention(
    construct: dict,
    state: dict[str, np.ndarray],
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    valid_lens: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Expected:
    """Return the outputs and the weights of every head, `(batch, num_heads, n, m)`."""
    num_heads = construct["num_heads"]

    def project(name: str, x: np.ndarray) -> np.ndarray:
        return linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    q = split_heads(project("W_q", queries), num_heads).outputs
    k = split_heads(project("W_k", keys), num_heads).outputs
    v = split_heads(project("W_v", values), num_heads).outputs
    if mask is not None and mask.ndim == 3:
        mask = mask[:, None]
    heads, weights = attend(q, k, v, allowed_keys((*q.shape[:3], k.shape[2]), valid_lens, mask))
    outputs = project("W_o", merge_heads(heads).outputs)
    return Expected(outputs, attributes={"attention_weights": weights})


def positional_encoding(num_positions: int, embed_dim: int, dtype: str | None = None) -> Expected:
    """Compute every entry separately."""
    encoding = np.empty((num_positions, embed_dim))
    for position, column in np.ndindex(encoding.shape):
        pair = column // 2
        angle = position / 10000.0 ** (2 * pair / embed_dim)
        encoding[position, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return Expected(encoding)


def shift_matrix(offset: int, embed_dim: int) -> Expected:
    """Compute sin(a + b) and cos(a + b) by angle addition, one pair of columns at a time."""
    matrix = np.zeros((embed_dim, embed_dim))
    for pair in range(embed_dim // 2):
        b = offset / 10000.0 ** (2 * pair / embed_dim)
        sine, cosine = 2 * pair, 2 * pair + 1
        matrix[sine, sine], matrix[sine, cosine] = math.cos(b), math.sin(b)
        matrix[cosine, cosine], matrix[cosine, sine] = math.cos(b), -math.sin(b)
    return Expected(matrix)


def _attend(x: np.ndarray, allowed: Callable[[int, int], bool]) -> np.ndarray:
    """Attend from each position of one item to the allowed ones, without projections."""
    outputs = np.zeros(x.shape)
    for i in range(len(x)):
        seen = [j for j in range(len(x)) if allowed(i, j)]
        if seen:
            weights = softmax_of([float((x[i] * x[j]).sum()) for j in seen])
            outputs[i] = sum(w * x[j] for w, j in zip(weights, seen, strict=True))
    return outputs


def _at(x: np.ndarray, i: int) -> np.ndarray:
    return x[i] if 0 <= i < len(x) else np.zeros(x.shape[1])


def _neighbours(x: np.ndarray, offset: int) -> np.ndarray:
    return np.stack([_at(x, i + offset) for i in range(len(x))])


# Sequence functions of one item (num_positions, d).
SEQUENCE_FUNCTIONS = {
    "each_on_its_own": lambda x: np.tanh(x) + x**2,
    "self_attention": lambda x: _attend(x, lambda i, j: True),
    "causal_attention": lambda x: _attend(x, lambda i, j: j <= i),
    "strictly_causal_attention": lambda x: _attend(x, lambda i, j: j < i),
    "anticausal_attention": lambda x: _attend(x, lambda i, j: j >= i),
    "average_over_positions": lambda x: x - np.stack([sum(x) / len(x)] * len(x)),
    "running_sum": lambda x: np.stack([sum(x[: i + 1]) for i in range(len(x))]),
    "share_of_all": lambda x: np.stack([sum(x[: i + 1]) / len(x) for i in range(len(x))]),
    "previous_position": lambda x: _neighbours(x, -1),
    "next_position": lambda x: _neighbours(x, 1),
    "next_but_not_the_last": lambda x: np.stack(
        [_at(x, i + 1) if i + 1 < len(x) - 1 else x[i] for i in range(len(x))]
    ),
    "second_looks_ahead": lambda x: np.stack(
        [x[2] * x[1] if i == 1 else x[i] for i in range(len(x))]
    ),
    "third_looks_ahead": lambda x: np.stack(
        [x[3] * x[2] if i == 2 else x[i] for i in range(len(x))]
    ),
    "copies_of_the_first": lambda x: np.stack([x[0] + 1] * len(x)),
    "first_sees_last": lambda x: np.stack([x[0] + x[-1], *x[1:]]),
    "circular_neighbours": lambda x: np.stack(
        [x[i] - 2 * x[(i + 1) % len(x)] for i in range(len(x))]
    ),
    "near_ones_count_more": lambda x: np.stack(
        [sum(x[j] / (1 + abs(i - j)) for j in range(len(x))) for i in range(len(x))]
    ),
    "reversed": lambda x: np.stack([x[len(x) - 1 - i] for i in range(len(x))]),
    "scaled_by_position": lambda x: np.stack([(i + 1) * x[i] for i in range(len(x))]),
    "one_number_each": lambda x: np.stack([[row.sum() + x.max()] for row in x]),
    "doubled": lambda x: x + x,
    "always_nan": lambda x: np.full(x.shape, math.nan),
}


def apply_to_batch(kind: str, x: np.ndarray) -> np.ndarray:
    """Apply the sequence function of that name to every item."""
    return np.stack([SEQUENCE_FUNCTIONS[kind](item) for item in x])


def is_permutation_equivariant(kind: str, x: np.ndarray) -> bool:
    """Swap every pair of positions, since all permutations are products of swaps."""
    outputs = apply_to_batch(kind, x)
    for i, j in itertools.combinations(range(x.shape[1]), 2):
        order = np.arange(x.shape[1])
        order[[i, j]] = j, i
        if not np.allclose(apply_to_batch(kind, x[:, order]), outputs[:, order]):
            return False
    return True


def is_causal(kind: str, x: np.ndarray) -> bool:
    """Change every number of every later position separately."""
    outputs = apply_to_batch(kind, x)
    for b, t, feature in np.ndindex(x.shape):
        changed = x.copy()
        changed[b, t, feature] += 0.7
        if not np.allclose(apply_to_batch(kind, changed)[:, :t], outputs[:, :t]):
            return False
    return True
