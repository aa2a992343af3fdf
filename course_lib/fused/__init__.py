"""Dot-product attention under the names of `course_lib.attention`, without a stored score matrix.

PyTorch's fused kernel computes it. The modules have the arguments and state dicts of the taught
ones and return the same numbers, but they keep no `attention_weights`. The function takes
`need_weights=False` and then returns None in place of the weights. Only without weights does memory
grow with `num_queries + num_keys` instead of their product.

For second derivatives and `torch.func`, use a call that returns weights, or the taught module.
"""

from course_lib.fused._dot_product import (
    DotProductAttention,
    MultiHeadAttention,
    scaled_dot_product_attention,
)

__all__ = ["DotProductAttention", "MultiHeadAttention", "scaled_dot_product_attention"]
