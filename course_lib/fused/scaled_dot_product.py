"""Scaled dot-product attention that keeps no weights unless they are asked for.

softmax(Q K^T / sqrt(d)) V needs the weights of a few keys at a time: with the running maximum and
sum of each row, a block's share of the output is added and what came before is rescaled (lesson
08). torch's kernel does that for four axes, one size d and a mask without gradients; `_attend`
brings other problems into that form where it pays. Written out, `(n, m)` scores would be made,
kept for backward and read five times; the kernel makes them twice and writes none to memory.
"""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention import _scaled_dot_product as taught
from course_lib.fused._attend import FEW_KEYS, attend, attend_with_weights
from course_lib.fused._quick import quickly_checked


@quickly_checked
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
    """Averages the values with weights softmax(Q K^T / sqrt(d)).

    Differs from `course_lib.attention` in what it costs. Without weights, memory grows with
    `num_queries + num_keys` instead of their product beyond 128 keys, and there are first
    derivatives only, outside of `torch.func`; ask for the weights where you need the second.

    Args:
        queries, keys, values, valid_lens, mask: as in
            `course_lib.attention.scaled_dot_product_attention`. On a CPU a causal mask (or
            lengths 1, 2, ..., n for each item) is recognised and the later keys are skipped.
        need_weights: whether the weights are wanted; then they are computed in full.

    Returns:
        `(outputs, attention_weights)`, or `(outputs, None)` without weights; a query that may
        attend to no key gets zeros.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135
    """
    if need_weights:
        return attend_with_weights(queries, keys, values, valid_lens, mask)
    return _outputs(queries, keys, values, valid_lens, mask), None


class DotProductAttention(taught.DotProductAttention):
    """`course_lib.attention.DotProductAttention` that computes its weights only if needed.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135
    """

    @quickly_checked
    def forward(
        self,
        queries: Float[Tensor, "*batch num_queries d"],
        keys: Float[Tensor, "*batch num_keys d"],
        values: Float[Tensor, "*batch num_keys v"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> Float[Tensor, "*batch num_queries v"]:
        """Returns the outputs and keeps the weights, or None in their place.

        Args:
            queries, keys, values, valid_lens, mask: as in `scaled_dot_product_attention`.
            need_weights: whether `attention_weights` is wanted after the call.
        """
        dropout = self.dropout.p if self.training else 0.0
        self.attention_weights = None
        if not need_weights:
            return _outputs(queries, keys, values, valid_lens, mask, dropout)
        outputs, weights = attend_with_weights(queries, keys, values, valid_lens, mask, dropout)
        self.attention_weights = weights.detach()
        return outputs


def _outputs(queries, keys, values, valid_lens, mask, dropout=0.0) -> Tensor:
    """Calls `attend` with four axes: all leading axes but the first become heads."""
    lead, num_keys = queries.shape[:-2], keys.shape[-2]
    if len(lead) <= 1 and num_keys <= FEW_KEYS and queries.device.type == "cpu":
        return attend_with_weights(queries, keys, values, valid_lens, mask, dropout)[0]
    batch, heads = (lead[0] if lead else 1), math.prod(lead[1:])
    q, k, v = (x.reshape(batch, heads, *x.shape[-2:]) for x in (queries, keys, values))
    if mask is not None:
        mask = _four_axes(mask, lead)
    outputs = attend(q, k, v, valid_lens, mask, dropout)
    return outputs.reshape(*lead, *outputs.shape[-2:])


def _four_axes(mask: Tensor, lead) -> Tensor:
    """A mask that broadcasts to `(*lead, n, m)` as one that does to `(batch, heads, n, m)`."""
    if mask.dim() <= 2:
        return mask.reshape(*[1] * (4 - mask.dim()), *mask.shape)
    mask = mask.reshape(*[1] * (len(lead) + 2 - mask.dim()), *mask.shape)
    if len(lead) == 1:  # (batch, n, m)
        return mask.unsqueeze(1)
    return mask.expand(-1, *lead[1:], -1, -1).flatten(1, -3) if len(lead) > 2 else mask
