"""Oracle of lesson 07: the invariants that each module breaks, and the two fixed modules.

`tests/test_attention_bug_hunt.py` measures every entry of the table.
"""

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import allowed_keys, attend
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
