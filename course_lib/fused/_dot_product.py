"""Scaled dot-product attention by `torch.nn.functional.scaled_dot_product_attention`.

PyTorch's fused kernel takes four axes, the same number of features in all three inputs, and no
dropout on a CPU. With other inputs PyTorch falls back to the full score matrix. So `attend` adds
axes, and zeros after the last feature, which do not change any dot product. Dropout on a CPU
remains slow.
"""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from course_lib import attention as taught
from course_lib.attention._checked import checked


@checked
def scaled_dot_product_attention(
    queries: Float[Tensor, "*batch num_queries d"],
    keys: Float[Tensor, "*batch num_keys d"],
    values: Float[Tensor, "*batch num_keys v"],
    valid_lens: Int[Tensor, "..."] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    *,
    need_weights: bool = True,
) -> tuple[
    Float[Tensor, "*batch num_queries v"], Float[Tensor, "*batch num_queries num_keys"] | None
]:
    """Average the values with weights softmax(Q K^T / sqrt(d)).

    Args:
        queries, keys, values, valid_lens, mask: as in
            `course_lib.attention.scaled_dot_product_attention`.
        need_weights: whether to return the weights. Without them, memory grows with
            `num_queries + num_keys` (plus the mask, if one is given).

    Returns:
        `(outputs, attention_weights)`, or `(outputs, None)` without weights. A query that may
        attend to no key gets zeros.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135
    """
    if need_weights:
        return taught.scaled_dot_product_attention(queries, keys, values, valid_lens, mask)
    return attend(queries, keys, values, valid_lens, mask), None


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


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return the outputs of scaled dot-product attention, `(*batch, num_queries, v)`.

    Args:
        queries, keys, values, valid_lens, mask: as in `scaled_dot_product_attention`.
        dropout: probability of dropping a weight.
    """
    *lead, num_queries, d = queries.shape
    num_keys, v = values.shape[-2:]
    allowed = mask
    if valid_lens is not None:
        rows = num_queries if valid_lens.dim() == 2 else 1
        real = taught.length_mask(valid_lens, num_keys)
        real = real.reshape(lead[0], *[1] * (len(lead) - 1), rows, num_keys)
        allowed = real if mask is None else real & mask
    four_axes = lead[0] if lead else 1, math.prod(lead[1:])  # (batch, heads)
    queries, keys, values = (x.reshape(*four_axes, *x.shape[-2:]) for x in (queries, keys, values))
    empty = None
    if allowed is not None:
        allowed = _with_four_axes(allowed, lead)  # (batch or 1, heads or 1, n or 1, m or 1)
        # The kernel adds -inf to masked scores, which is NaN if the score of padding is inf.
        keys = keys.masked_fill(~allowed.any(dim=-2).unsqueeze(-1), 0.0)
        empty = ~allowed.any(dim=-1, keepdim=True)
    wide = max(d, v)
    padded = (F.pad(x, (0, wide - x.shape[-1])) for x in (queries, keys, values))
    outputs = F.scaled_dot_product_attention(
        *padded,
        attn_mask=None if allowed is None or empty is None else allowed | empty,
        dropout_p=dropout,
        scale=1 / math.sqrt(d),
    )[..., :v]
    if empty is not None:
        outputs = outputs.masked_fill(empty, 0.0)
    return outputs.reshape(*lead, num_queries, v)


def _with_four_axes(allowed: Tensor, lead: list[int]) -> Tensor:
    """Reshape a mask that broadcasts to `(*lead, n, m)` for use with `(batch, heads, n, m)`."""
    allowed = allowed.reshape(*[1] * (len(lead) + 2 - allowed.dim()), *allowed.shape)
    first, heads = allowed.shape[0] if lead else 1, math.prod(allowed.shape[1:-2])
    if heads > 1 and heads != math.prod(lead[1:]):
        allowed = allowed.expand(-1, *lead[1:], -1, -1)
        heads = math.prod(lead[1:])
    return allowed.reshape(first, heads, *allowed.shape[-2:])
