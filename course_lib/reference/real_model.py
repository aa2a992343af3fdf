"""Oracle of lesson 11: one pair of features, one head, one query at a time, without a cache."""

import math
from typing import Any

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import allowed_keys, attend
from course_lib.reference.multi_head import linear, merge_heads, split_heads
from course_lib.reference.translator import part


def rotary_embedding(x: np.ndarray, offset: int = 0, base: float = 10000.0) -> Expected:
    """Rotate each pair of neighbors as a complex number, times exp(i * angle)."""
    d, turned = x.shape[-1], np.zeros(x.shape)
    assert d % 2 == 0
    for *place, p, i in np.ndindex(*x.shape[:-1], d // 2):
        angle = (offset + p) / base ** (2 * i / d)
        row = (*place, p)
        point = complex(x[*row, 2 * i], x[*row, 2 * i + 1])
        point *= complex(math.cos(angle), math.sin(angle))
        turned[*row, 2 * i : 2 * i + 2] = point.real, point.imag
    return Expected(turned)


def grouped_query_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    valid_lens: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Expected:
    """Attend with each query of each head separately, using its group's keys and values."""
    heads_of_a_group = queries.shape[1] // keys.shape[1]
    keys, values = (np.repeat(x, heads_of_a_group, axis=1) for x in (keys, values))
    allowed = allowed_keys((*queries.shape[:3], keys.shape[2]), valid_lens, mask)
    return Expected(attend(queries, keys, values, allowed))


def kv_cache(keys: np.ndarray, values: np.ndarray, appended: tuple[int, ...]) -> Expected:
    """Return the positions so far after the last call, and the length before and after each."""
    assert sum(appended) == keys.shape[2] == values.shape[2]
    so_far = [sum(appended[:i]) for i in range(len(appended) + 1)]
    return Expected((keys[:, :, : so_far[-1]], values[:, :, : so_far[-1]], np.array(so_far)))


def grouped_query_module(
    construct: dict[str, Any],
    state: dict[str, np.ndarray],
    x: np.ndarray,
    pieces: tuple[int, ...] = (),
) -> Expected:
    """Attend over the whole text at once, and keep the weights of the last piece's queries."""
    num_heads, num_groups = construct["num_heads"], construct["num_groups"]
    base, n = construct.get("base", 10000.0), x.shape[1]
    assert sum(pieces or (n,)) == n
    queries = split_heads(linear(x, state["W_q.weight"]), num_heads).outputs
    keys = split_heads(linear(x, state["W_k.weight"]), num_groups).outputs
    values = split_heads(linear(x, state["W_v.weight"]), num_groups).outputs
    queries, keys = (rotary_embedding(each, 0, base).outputs for each in (queries, keys))
    past = np.array([[j <= i for j in range(n)] for i in range(n)])
    heads, weights = grouped_query_attention(queries, keys, values, mask=past).outputs
    kept = weights[:, :, n - (pieces or (n,))[-1] :]
    outputs = linear(merge_heads(heads).outputs, state["W_o.weight"])
    return Expected(outputs, attributes={"attention_weights": kept})


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Divide each vector by the root of its mean square, and scale its features."""
    normed = np.empty(x.shape)
    for row in np.ndindex(x.shape[:-1]):
        mean_square = math.fsum(feature**2 for feature in x[row]) / x.shape[-1]
        normed[row] = x[row] / math.sqrt(mean_square + eps) * weight
    return normed


def swiglu(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Scale the features of one branch with the silu of the other."""
    opened = linear(x, gate)
    for place, z in np.ndenumerate(opened):
        opened[place] = z / (1 + math.exp(-z))
    return linear(opened * linear(x, up), down)


def small_model(state: dict[str, np.ndarray], tokens: np.ndarray, attention) -> np.ndarray:
    """Return the logits at every position, with `attention(block, x)` in each block."""
    x = np.array([[state["tokens.weight"][token] for token in text] for text in tokens])
    num_blocks = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    for number in range(num_blocks):
        block = part(state, f"blocks.{number}")
        x = x + attention(part(block, "attention"), rms_norm(x, block["norm_1.weight"]))
        network = [block[f"feed_forward.{name}.weight"] for name in ("gate", "up", "down")]
        x = x + swiglu(rms_norm(x, block["norm_2.weight"]), *network)
    return linear(rms_norm(x, state["norm.weight"]), state["tokens.weight"])


def next_token_logits(model: Any, tokens: np.ndarray, pieces: tuple[int, ...] = ()) -> Expected:
    """Return the logits of a model whose attention is the mean so far, times its scale."""
    assert sum(pieces or tokens.shape[1:]) == tokens.shape[1]

    def mean_so_far(attention, x) -> np.ndarray:
        means = [sum(x[:, j] for j in range(i + 1)) / (i + 1) for i in range(x.shape[1])]
        return attention["scale"] * np.stack(means, axis=1)

    return Expected(small_model(model.options["state"], tokens, mean_so_far))
