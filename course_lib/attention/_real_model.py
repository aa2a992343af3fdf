"""Lesson 11: the attention of a real language model, and the model that is built on it."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention._checked import checked
from course_lib.attention._masked_softmax import causal_mask, masked_softmax
from course_lib.attention._multi_head import merge_heads, split_heads


@checked
def rotary_embedding(
    x: Float[Tensor, "*batch num_positions d"], offset: int = 0, base: float = 10000.0
) -> Float[Tensor, "*batch num_positions d"]:
    """Rotate each pair of neighboring features by an angle that grows with the position.

    At position p, features 2i and 2i + 1 are a point in the plane, rotated counterclockwise by
    p / base^(2i / d) radians. The dot product of a rotated query and key depends only on the
    distance between their positions.

    Differs from the layout of many checkpoints, which pair feature i with feature i + d / 2.

    Args:
        x: queries or keys, with any leading axes.
        offset: the position of the first row; the others follow it.
        base: the larger it is, the more slowly the later pairs turn; above 0.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        ValueError: `d` is odd.

    Source: Su et al. 2021, section 3.4, https://arxiv.org/abs/2104.09864
    """
    num_positions, d = x.shape[-2:]
    if d % 2:
        raise ValueError(f"`x` must have an even number of features; got {d}.")
    in_double = {"dtype": torch.float64, "device": x.device}
    positions = torch.arange(offset, offset + num_positions, **in_double)
    rates = torch.logspace(0, 2 / d - 1, d // 2, base, **in_double)  # 1, base^(-2 / d), ...
    angles = positions[:, None] * rates  # (num_positions, d / 2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., 0::2], x[..., 1::2]
    turned = first * cos - second * sin, first * sin + second * cos
    return torch.stack(turned, dim=-1).flatten(-2)


@checked
def grouped_query_attention(
    queries: Float[Tensor, "batch num_heads num_queries d"],
    keys: Float[Tensor, "batch num_groups num_keys d"],
    values: Float[Tensor, "batch num_groups num_keys v"],
    valid_lens: Int[Tensor, "..."] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[
    Float[Tensor, "batch num_heads num_queries v"],
    Float[Tensor, "batch num_heads num_queries num_keys"],
]:
    """Compute attention in which several heads share the same keys and values.

    Head i uses group i // (num_heads / num_groups). With as many groups as heads, this is
    multi-head attention. With one group, it is multi-query attention.

    Args:
        queries: the queries of each head.
        keys, values: the keys and values of each group.
        valid_lens: the number of leading keys that are real, `(batch,)` or `(batch, num_queries)`.
        mask: True = may attend, broadcastable to `(batch, num_heads, num_queries, num_keys)`.
            If both are given, a key must be allowed by both.

    Returns:
        The outputs and the attention weights of all heads. A query that may attend to no key gets
        zeros, and its gradient is 0.

    Raises:
        ValueError: the number of groups does not divide the number of heads.

    Source: Ainslie et al. 2023, https://arxiv.org/abs/2305.13245
    """
    batch, num_heads, n, d = queries.shape
    num_groups, m, v = *keys.shape[1:3], values.shape[-1]
    if num_heads % num_groups != 0:
        raise ValueError(f"`num_groups` must divide num_heads = {num_heads}; got {num_groups}.")
    # The queries of all heads of a group form one matrix, so keys and values are not repeated.
    rows = num_heads // num_groups * n
    scores = queries.reshape(batch, num_groups, rows, d) @ keys.mT / math.sqrt(d)
    weights = masked_softmax(scores.reshape(batch, num_heads, n, m), valid_lens, mask)
    outputs = weights.reshape(batch, num_groups, rows, m) @ values
    return outputs.reshape(batch, num_heads, n, v), weights


class KVCache:
    """The keys and values of all positions so far, so that a new token computes only its own.

    `len(cache)` is the number of these positions. An empty cache is therefore False in an `if`,
    like an empty list.
    """

    def __init__(self) -> None:
        """Start empty; the first `append` determines shapes, dtype and device."""
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of positions so far."""
        return 0 if self.keys is None else self.keys.shape[2]

    @checked
    def append(
        self,
        keys: Float[Tensor, "batch num_groups num_positions d"],
        values: Float[Tensor, "batch num_groups num_positions v"],
    ) -> tuple[
        Float[Tensor, "batch num_groups num_positions_so_far d"],
        Float[Tensor, "batch num_groups num_positions_so_far v"],
    ]:
        """Add one or more positions, and return all positions so far.

        Args:
            keys, values: keys and values of the new positions, for each item and group.

        Returns:
            The keys and the values of all positions so far, in the order of the calls.
        """
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], dim=2)
            values = torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


class GroupedQueryAttention(nn.Module):
    """Causal self-attention with rotated positions, shared keys and values, and a cache.

    Queries, keys and values are projections of `x`. Queries and keys are rotated by their
    positions, which continue those in the cache. Each position attends to itself and to all
    positions before it.

    Args:
        embed_dim: features of the inputs and outputs; a multiple of `num_heads`.
        num_heads: heads of the queries, each with embed_dim / num_heads features, an even number.
        num_groups: heads of the keys and values; divides `num_heads`.
        base: the base of the rotary positions.
        device, dtype: of the weights, as in `torch.nn`.

    Attributes:
        attention_weights: the weights of the last call, `(batch, num_heads, n, m)`, detached,
            where m counts the positions in the cache as well.
    """

    attention_weights: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_groups: int,
        base: float = 10000.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        """Create `W_q`, `W_k`, `W_v` and `W_o`, without biases."""
        super().__init__()
        self.num_heads, self.num_groups, self.base = num_heads, num_groups, base
        shared_dim = embed_dim // num_heads * num_groups
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(embed_dim, shared_dim, bias=False, device=device, dtype=dtype)
        self.W_v = nn.Linear(embed_dim, shared_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    @checked
    def forward(
        self, x: Float[Tensor, "batch num_positions embed_dim"], cache: Any = None
    ) -> Float[Tensor, "batch num_positions embed_dim"]:
        """Attend from each position of `x` to itself and everything before it.

        Args:
            x: the vectors of the new positions.
            cache: a `KVCache` with the positions before `x`; the call adds those of `x`.
                Without one, `x` begins at position 0.

        Returns:
            One output vector for each position of `x`.
        """
        counts = [self.num_heads, self.num_groups]
        both = split_heads(torch.cat([self.W_q(x), self.W_k(x)], dim=-1), sum(counts))
        offset = 0 if cache is None else len(cache)
        # (batch, num_heads, n, d) and (batch, num_groups, n, d)
        queries, keys = rotary_embedding(both, offset, self.base).split(counts, dim=1)
        values = split_heads(self.W_v(x), self.num_groups)
        if cache is not None:
            keys, values = cache.append(keys, values)  # (batch, num_groups, m, d)
        mask = None  # the newest position may attend to all
        if x.shape[1] > 1:
            mask = causal_mask(x.shape[1], keys.shape[2], device=x.device)  # (n, m)
        outputs, weights = grouped_query_attention(queries, keys, values, mask=mask)
        self.attention_weights = weights.detach()
        return self.W_o(merge_heads(outputs))


@checked
def next_token_logits(
    model: Any, tokens: Int[Tensor, "batch num_positions"], caches: Sequence[Any] | None = None
) -> Float[Tensor, "batch num_positions num_tokens"]:
    """Return, at each position, a score for every token as the next one.

    The vectors of the tokens pass through the blocks. In each block, x becomes
    x + attention(norm_1(x), cache) and then x + feed_forward(norm_2(x)). The logit of a token is
    the dot product of norm(x) with the vector of that token.

    Args:
        model: has `tokens` (an `nn.Embedding`), `blocks` and `norm`. Each block has `norm_1`,
            `attention`, `norm_2` and `feed_forward`.
        tokens: the texts, or their new tokens if there are caches.
        caches: a cache for each block, with the positions before `tokens`. They are filled by the
            call.

    Returns:
        The logits at each position of `tokens`.
    """
    if caches is None:
        caches = [None] * len(model.blocks)
    x = model.tokens(tokens)  # (batch, num_positions, embed_dim)
    for block, cache in zip(model.blocks, caches, strict=True):
        x = x + block.attention(block.norm_1(x), cache)
        x = x + block.feed_forward(block.norm_2(x))
    return model.norm(x) @ model.tokens.weight.T
