"""Oracle of lesson 07: the invariants that modules and functions break, and two fixed modules.

`tests/test_attention_bug_hunt.py` measures every entry of the table.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import allowed_keys, attend, softmax_of
from course_lib.reference.multi_head import linear, merge_heads, split_heads

# All invariants that a module breaks, the most informative first.
BROKEN = {
    "sound": (),
    "avocet": ("rows_sum_to_one", "queries_apart"),
    "bittern": ("queries_apart",),
    "curlew": ("masking_equals_deleting", "empty_rows_zero"),
    "dunlin": ("linear_in_values",),
    "egret": ("scale_free",),
    "fulmar": ("items_apart", "masking_equals_deleting", "empty_rows_zero", "rows_sum_to_one"),
    "grebe": ("eval_repeats",),
    "heron": ("all_parameters_learn",),
    "ibis": ("empty_rows_zero",),
    "jacana": ("keys_permutation", "queries_apart", "masking_equals_deleting"),
    "plain_average": ("masking_equals_deleting",),
    "all_nan": ("keys_permutation", "items_apart", "masking_equals_deleting"),
    "zero_after_softmax": ("masking_equals_deleting",),
    "zeroed_pads": ("masking_equals_deleting",),
    "one_key_more": ("masking_equals_deleting", "empty_rows_zero"),
    "one_key_less": ("masking_equals_deleting",),
    "first_key_special": ("keys_permutation",),
    "middle_keys_special": ("keys_permutation", "masking_equals_deleting"),
    "neighbours_count": ("keys_permutation", "masking_equals_deleting"),
    "average_over_keys_removed": ("masking_equals_deleting",),
    "batch_average_removed": ("items_apart", "masking_equals_deleting"),
    "length_of_first_item_for_all": ("items_apart", "masking_equals_deleting"),
    "later_items_doubled": ("items_apart", "masking_equals_deleting"),
    "real_average": (),
    "first_value": ("keys_permutation",),
    "batch_average": ("items_apart", "masking_equals_deleting"),
    "reversed_by_order": ("keys_permutation", "masking_equals_deleting"),
    "reversed_by_third": ("keys_permutation", "masking_equals_deleting"),
}


def holds(invariant: str, module: str) -> bool:
    """Return whether the module of that name keeps an invariant."""
    return invariant not in BROKEN[module]


def lookup(
    construct: dict,
    state: dict[str, np.ndarray],
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    valid_lens: np.ndarray | None = None,
) -> Expected:
    """Look up one query at a time over its keys without padding."""
    q, k = linear(queries, state["W_q.weight"]), linear(keys, state["W_k.weight"])
    allowed = allowed_keys((*q.shape[:2], k.shape[1]), valid_lens)
    outputs, weights = attend(q, k, values, allowed)
    return Expected(outputs, attributes={"attention_weights": weights})


def causal_self_attention(
    construct: dict,
    state: dict[str, np.ndarray],
    x: np.ndarray,
    valid_lens: np.ndarray | None = None,
) -> Expected:
    """Attend with one head at one position at a time, over the positions up to it."""
    num_heads, num_positions = construct["num_heads"], x.shape[1]
    thirds = np.split(linear(x, state["W_qkv.weight"]), 3, axis=-1)
    q, k, v = (split_heads(third, num_heads).outputs for third in thirds)
    past = np.array([[j <= i for j in range(num_positions)] for i in range(num_positions)])
    allowed = allowed_keys((*q.shape[:3], num_positions), valid_lens, past)
    heads, weights = attend(q, k, v, allowed)
    outputs = linear(merge_heads(heads).outputs, state["W_o.weight"])
    return Expected(outputs, attributes={"attention_weights": weights})


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
