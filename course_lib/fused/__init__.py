"""The attentions of `course_lib.attention` under the same names, without a stored score matrix.

Dot-product attention uses PyTorch's fused kernel. The other attentions are computed for one block
of queries at a time. The modules have the same arguments and state dicts as the taught ones and
return the same numbers, but they keep no `attention_weights`. The two functions that return weights
take `need_weights=False` and then return None in their place. Only without weights does memory grow
with `num_queries + num_keys` instead of their product.

For second derivatives and `torch.func`, use a call that returns weights, or the taught module.
"""

from course_lib.fused._blocks import AdditiveAttention, kernel_pooling
from course_lib.fused._dot_product import (
    DotProductAttention,
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from course_lib.fused._masked_softmax import masked_softmax

__all__ = [
    "AdditiveAttention",
    "DotProductAttention",
    "MultiHeadAttention",
    "kernel_pooling",
    "masked_softmax",
    "scaled_dot_product_attention",
]
