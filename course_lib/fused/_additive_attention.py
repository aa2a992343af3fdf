"""Additive attention that stores the features of one block of queries at a time."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib import attention as taught
from course_lib.attention._checked import checked
from course_lib.fused._blocks import allowed_keys, in_blocks
from course_lib.fused._masked_softmax import softmax_of_allowed


class AdditiveAttention(taught.AdditiveAttention):
    """`course_lib.attention.AdditiveAttention` without weights: `attention_weights` stays None.

    The taught module stores `num_hiddens` features for every pair of a query and a key. Here they
    are stored for one block of queries at a time, and the backward pass recomputes them.

    Source: Bahdanau, Cho & Bengio 2015, appendix A.1.2, https://arxiv.org/abs/1409.0473
    """

    attention_weights = None

    @checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries query_size"],
        keys: Float[Tensor, "batch num_keys key_size"],
        values: Float[Tensor, "batch num_keys value_size"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch num_queries value_size"]:
        """Average the values with weights from additive scores.

        Args:
            queries, keys, values, valid_lens, mask: as in
                `course_lib.attention.AdditiveAttention`.

        Returns:
            One average of the values for each query; zeros for a query without an allowed key.
        """
        w_v = self.w_v.weight[0]  # (num_hiddens,)
        allowed = allowed_keys((*queries.shape[:2], keys.shape[1]), valid_lens, mask)

        def average(queries, keys, values, allowed) -> Tensor:
            pairs = queries.unsqueeze(2) + keys.unsqueeze(1)
            scores = pairs.tanh_() @ w_v  # (items, rows, num_keys)
            return self.dropout(softmax_of_allowed(scores, allowed)) @ values

        numbers_per_query = keys.shape[1] * len(w_v)
        return in_blocks(
            average, numbers_per_query, self.W_q(queries), self.W_k(keys), values, allowed
        )
