"""Lesson 00: where a map of attention points."""

from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def most_attended(
    attention_weights: Float[Tensor, "*batch num_queries num_keys"],
) -> Int[Tensor, "*batch num_queries"]:
    """The position that each query looks at most.

    Args:
        attention_weights: one row of weights for each query, one column for each key, under
            leading axes of any number; at least one key.

    Returns:
        Whole numbers (int64), the position of each row's largest weight, counted from 0; where
        several weights are the largest, the first of them.
    """
    return attention_weights.argmax(dim=-1)
