"""Lesson 00: the attention of one query."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def attend(
    query: Float[Tensor, "d"],
    keys: Float[Tensor, "num_keys d"],
    values: Float[Tensor, "num_keys v"],
) -> tuple[Float[Tensor, "v"], Float[Tensor, "num_keys"]]:
    """Return the average of the values, in which keys that fit the query count most.

    Args:
        query: what the keys are compared with.
        keys: one row for each key, as wide as the query.
        values: one row for each key.

    Returns:
        The output `(v,)` and the attention weights `(num_keys,)`, which sum to 1.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    scores = keys @ query / math.sqrt(len(query))  # (num_keys,)
    attention_weights = torch.softmax(scores, dim=0)  # (num_keys,)
    output = attention_weights @ values  # (v,)
    return output, attention_weights


@checked
def most_attended(
    attention_weights: Float[Tensor, "*batch num_queries num_keys"],
) -> Int[Tensor, "*batch num_queries"]:
    """Return the position of the largest weight for each query.

    The lesson no longer has this exercise. Earlier notebooks do.

    Args:
        attention_weights: one row for each query and one column for each key, with any number of
            axes in front.

    Returns:
        Integers, counted from 0. If several weights tie for the largest, the first one counts.
    """
    return attention_weights.argmax(dim=-1)
