"""Scaled dot-product attention as a module that stores no weights."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib import attention as taught
from course_lib.attention._checked import checked
from course_lib.fused._scaled_dot_product_attention import attend


class DotProductAttention(taught.DotProductAttention):
    """`course_lib.attention.DotProductAttention` without weights: `attention_weights` stays None.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135
    """

    @checked
    def forward(
        self,
        queries: Float[Tensor, "*batch num_queries d"],
        keys: Float[Tensor, "*batch num_keys d"],
        values: Float[Tensor, "*batch num_keys v"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch num_queries v"]:
        """Return one average of the values for each query.

        Args:
            queries, keys, values, valid_lens, mask: as in `scaled_dot_product_attention`.
        """
        dropout = self.dropout.p if self.training else 0.0
        return attend(queries, keys, values, valid_lens, mask, dropout)
