"""Oracle of lesson 06: one head, one query at a time."""

import math

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import allowed_keys, attend


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
