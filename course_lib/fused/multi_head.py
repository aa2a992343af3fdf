"""Multi-head attention without copies, and a cache of projected keys and values for decoding.

The heads are strided views of the projections, `(batch, num_heads, num_positions, head_dim)` in
the memory of `(batch, num_positions, embed_dim)`; torch's kernel reads them where they are and
writes its result in the same order, so that merging the heads is a view as well.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.attention import _multi_head as taught
from course_lib.attention._checked import (
    check_kind,
    check_mask,
    check_valid_lens,
    checked,
)
from course_lib.fused._attend import attend, attend_with_weights
from course_lib.fused._cache import KeyValueCache
from course_lib.fused._quick import quickly_checked


class MultiHeadAttention(taught.MultiHeadAttention):
    """`course_lib.attention.MultiHeadAttention` that computes its weights only if needed.

    Decoding, one position after the other, without projecting any position twice:

        cache = None
        with torch.no_grad():
            for x in steps:  # (batch, 1, embed_dim)
                cache = attention.remember(x, x, cache)
                outputs = attention.recall(x, cache)

    For cross-attention `remember` is called once, on what the encoder returned.

    Source: Vaswani et al. 2017, section 3.2.2, https://arxiv.org/abs/1706.03762; Dao et al. 2022,
        https://arxiv.org/abs/2205.14135
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = False):
        """Makes the four projections, each `(embed_dim, embed_dim)`."""
        super().__init__(embed_dim, num_heads, dropout, bias)
        self.attention_weights = None

    @quickly_checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries embed_dim"],
        keys: Float[Tensor, "batch num_keys embed_dim"],
        values: Float[Tensor, "batch num_keys embed_dim"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> Float[Tensor, "batch num_queries embed_dim"]:
        """Attends in every head and mixes the results.

        Args:
            queries, keys, values, valid_lens, mask: as in
                `course_lib.attention.MultiHeadAttention`.
            need_weights: whether `attention_weights` is wanted after the call; otherwise it is
                None, and memory grows with the number of positions, not with its square.

        Returns:
            One output for each query; with no key allowed, `W_o` of zeros.
        """
        projections = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        q, k, v = (self._heads(layer(x)) for layer, x in projections)
        return self._attend(q, k, v, valid_lens, mask, need_weights)

    @checked
    def remember(
        self,
        keys: Float[Tensor, "batch num_positions embed_dim"],
        values: Float[Tensor, "batch num_positions embed_dim"],
        cache: KeyValueCache | None = None,
    ) -> KeyValueCache:
        """Projects further positions and keeps the result, for `recall`.

        Args:
            keys, values: of the new positions alone.
            cache: what earlier calls returned, extended in place; a new one if None.

        Returns:
            The cache, which then holds `len(cache)` positions.

        Raises:
            ValueError: `cache` is of another batch, module size, dtype or device, or gradients
                are wanted: call it under `torch.no_grad()`.
        """
        cache = KeyValueCache() if cache is None else cache
        cache.append(self._heads(self.W_k(keys)), self._heads(self.W_v(values)))
        return cache

    def recall(
        self,
        queries: Tensor,
        cache: KeyValueCache,
        valid_lens: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Tensor:
        """Attends to everything remembered, as `forward` would to those keys and values.

        Args:
            queries: of the new positions alone, `(batch, num_queries, embed_dim)`.
            cache: from `remember`; stays as it is.
            valid_lens, mask: as in `forward`, over all positions in the cache. Several queries at
                once take `causal_mask(num_queries, len(cache))`; one query needs no mask.
            need_weights: whether `attention_weights` is wanted after the call.

        Returns:
            One output for each query.
        """
        q = self._project(queries)
        cache.check_fit(q)
        batch, num_heads, num_queries, _ = q.shape
        per_head = (num_heads,) if getattr(mask, "ndim", 0) == 4 else ()
        for name, given, kind in (("mask", mask, Bool), ("valid_lens", valid_lens, Int)):
            if given is not None:
                check_kind(name, given, kind[Tensor, "..."])
        check_mask(mask, (batch, *per_head, num_queries, len(cache)))
        check_valid_lens(valid_lens, (batch, num_queries, len(cache)))
        return self._attend(q, cache.keys, cache.values, valid_lens, mask, need_weights)

    @checked
    def _project(self, queries: Float[Tensor, "batch num_queries embed_dim"]) -> Tensor:
        """The queries of all heads."""
        return self._heads(self.W_q(queries))

    def _heads(self, x: Tensor) -> Tensor:
        """A view `(batch, num_heads, num_positions, head_dim)` of projected positions."""
        head_dim = self.embed_dim // self.num_heads
        return x.reshape(*x.shape[:2], self.num_heads, head_dim).transpose(1, 2)

    def _attend(self, queries, keys, values, valid_lens, mask, need_weights) -> Tensor:
        """Attends in every head and mixes the results."""
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            mask = mask.reshape(*[1] * (4 - mask.dim()), *mask.shape)
        dropout = self.dropout.p if self.training else 0.0
        self.attention_weights = None
        if need_weights:
            heads, weights = attend_with_weights(queries, keys, values, valid_lens, mask, dropout)
            self.attention_weights = weights.detach()
        else:
            heads = attend(queries, keys, values, valid_lens, mask, dropout)
        return self.W_o(heads.transpose(1, 2).flatten(2))  # (batch, num_queries, embed_dim)
