"""Multi-head attention that stores no weights."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib import attention as taught
from course_lib.attention._checked import checked
from course_lib.fused._scaled_dot_product_attention import attend


class MultiHeadAttention(taught.MultiHeadAttention):
    """`course_lib.attention.MultiHeadAttention` without weights: `attention_weights` stays None.

    Source: Vaswani et al. 2017, section 3.2.2, https://arxiv.org/abs/1706.03762; Dao et al. 2022,
        https://arxiv.org/abs/2205.14135
    """

    attention_weights = None

    @checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries embed_dim"],
        keys: Float[Tensor, "batch num_keys embed_dim"],
        values: Float[Tensor, "batch num_keys embed_dim"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch num_queries embed_dim"]:
        """Attend in every head and mix the results.

        Args:
            queries, keys, values, valid_lens, mask: as in
                `course_lib.attention.MultiHeadAttention`.

        Returns:
            One output for each query; `W_o` applied to zeros for a query without an allowed key.
        """
        q = taught.split_heads(self.W_q(queries), self.num_heads)  # (batch, heads, n, head_dim)
        k = taught.split_heads(self.W_k(keys), self.num_heads)
        v = taught.split_heads(self.W_v(values), self.num_heads)
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # one mask per item, the same for every head
        dropout = self.dropout.p if self.training else 0.0
        return self.W_o(taught.merge_heads(attend(q, k, v, valid_lens, mask, dropout)))
