"""Lesson 00: where a map of attention points."""

from jaxtyping import Float, Int
from torch import Tensor

from course_lib.attention._checked import checked


@checked
def most_attended(
    attention_weights: Float[Tensor, "*batch num_queries num_keys"],
) -> Int[Tensor, "*batch num_queries"]:
    """Return the position of the largest weight for each query.

    Args:
        attention_weights: one row for each query and one column for each key, with any number of
            axes in front.

    Returns:
        Integers, counted from 0. If several weights tie for the largest, the first one counts.
    """
    return attention_weights.argmax(dim=-1)
