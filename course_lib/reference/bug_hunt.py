"""Oracle of lesson 07: which module breaks which invariant, and the two fixed modules.

The table says what the modules of the checks do; `tests/test_attention_bug_hunt.py`
measures every entry of it.
"""

import math

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import allowed_keys, softmax_of
from course_lib.reference.multi_head import linear, merge_heads, split_heads

# Every invariant that a module breaks; the first one is the most telling.
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
    "zero_after_softmax": ("masking_equals_deleting",),
    "zeroed_pads": ("masking_equals_deleting",),
    "one_key_more": ("masking_equals_deleting", "empty_rows_zero"),
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
    """Look up one query at a time, over its real keys only."""
    q, k = linear(queries, state["W_q.weight"]), linear(keys, state["W_k.weight"])
    weights = np.zeros((*q.shape[:2], k.shape[1]))
    outputs = np.zeros((*q.shape[:2], values.shape[2]))
    for b, i in np.ndindex(q.shape[:2]):
        length = k.shape[1] if valid_lens is None else int(valid_lens[b])
        if length:
            scores = [float((q[b, i] * k[b, j]).sum()) for j in range(length)]
            weights[b, i, :length] = softmax_of([s / math.sqrt(q.shape[2]) for s in scores])
            outputs[b, i] = sum(weights[b, i, j] * values[b, j] for j in range(length))
    return Expected(outputs, attributes={"attention_weights": weights})


def causal_self_attention(
    construct: dict,
    state: dict[str, np.ndarray],
    x: np.ndarray,
    valid_lens: np.ndarray | None = None,
) -> Expected:
    """Attend with one head at one position at a time, over what lies behind it."""
    num_heads, num_positions = construct["num_heads"], x.shape[1]
    thirds = np.split(linear(x, state["W_qkv.weight"]), 3, axis=-1)
    q, k, v = (split_heads(third, num_heads).outputs for third in thirds)
    weights = np.zeros((*q.shape[:3], num_positions))
    past = np.array([[j <= i for j in range(num_positions)] for i in range(num_positions)])
    allowed = allowed_keys(weights.shape, valid_lens, past)
    heads = np.zeros(q.shape)
    for b, h, i in np.ndindex(q.shape[:3]):
        seen = np.flatnonzero(allowed[b, h, i])
        if len(seen):
            scores = [float((q[b, h, i] * k[b, h, j]).sum()) for j in seen]
            weights[b, h, i, seen] = softmax_of([s / math.sqrt(q.shape[3]) for s in scores])
            heads[b, h, i] = sum(weights[b, h, i, j] * v[b, h, j] for j in seen)
    outputs = linear(merge_heads(heads).outputs, state["W_o.weight"])
    return Expected(outputs, attributes={"attention_weights": weights})
