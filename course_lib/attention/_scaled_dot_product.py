"""Lesson 05: comparing queries and keys by their dot product, divided by the square root of d."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention._checked import checked
from course_lib.attention._masked_softmax import masked_softmax


@checked
def score_variance(d: int, num_samples: int, scaled: bool, generator: torch.Generator) -> float:
    """Estimate the variance of q . k for independent standard normal q and k.

    Args:
        d: the number of features of a query and of a key, at least 1.
        num_samples: how many independent pairs (q, k) to draw, at least 1.
        scaled: divide each product by sqrt(d).
        generator: where the random numbers come from; the global generator stays untouched.

    Returns:
        The variance of the `num_samples` products.

    Source: Vaswani et al. 2017, section 3.2.1, footnote 4, https://arxiv.org/abs/1706.03762
    """
    size, device = (num_samples, d), generator.device
    queries = torch.randn(size, generator=generator, device=device)  # (num_samples, d)
    keys = torch.randn(size, generator=generator, device=device)
    products = (queries * keys).sum(dim=-1)  # (num_samples,)
    if scaled:
        products = products / math.sqrt(d)
    return products.var(correction=0).item()


@checked
def numpy_attention(
    queries: Float[np.ndarray, "num_queries d"],
    keys: Float[np.ndarray, "num_keys d"],
    values: Float[np.ndarray, "num_keys v"],
    mask: Bool[np.ndarray, "..."] | None = None,
) -> tuple[Float[np.ndarray, "num_queries v"], Float[np.ndarray, "num_queries num_keys"]]:
    """Compute scaled dot-product attention in NumPy: softmax(Q K^T / sqrt(d)) V.

    Args:
        queries: one row for each query.
        keys: one row for each key, as long as a query.
        values: one row for each key, of any length.
        mask: bool, True = may attend, broadcastable to `(num_queries, num_keys)`.

    Returns:
        `(outputs, attention_weights)`; a query with no allowed key gets zeros in both.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    scores = queries @ keys.T / math.sqrt(queries.shape[-1])  # (num_queries, num_keys)
    if mask is not None:
        scores = np.where(mask, scores, -math.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-math.inf)  # (num_queries, 1)
    largest = np.where(np.isneginf(largest), 0.0, largest)  # an empty row: -inf - (-inf) is NaN
    exponentials = np.exp(scores - largest.astype(scores.dtype))
    totals = exponentials.sum(axis=-1, keepdims=True)
    attention_weights = exponentials / np.where(totals == 0, 1, totals)
    return attention_weights @ values, attention_weights


@checked
def scaled_dot_product_attention(
    queries: Float[Tensor, "*batch num_queries d"],
    keys: Float[Tensor, "*batch num_keys d"],
    values: Float[Tensor, "*batch num_keys v"],
    valid_lens: Int[Tensor, "..."] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "*batch num_queries v"], Float[Tensor, "*batch num_queries num_keys"]]:
    """Average the values with weights softmax(Q K^T / sqrt(d)).

    Differs from `F.scaled_dot_product_attention`: returns the weights too, takes lengths, and has
    no dropout and no `is_causal`. The queries are scaled before the product, not the scores after
    it: the same in exact arithmetic, but safer in float16.

    Args:
        queries, keys: d features each; `*batch` is any number of axes, the same in all three.
        values: one row for each key, of any length.
        valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`.
        mask: True = may attend, broadcastable to the weights. With both given, a key must be
            allowed by both.

    Returns:
        `(outputs, attention_weights)`; a query with no allowed key gets zeros in both.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    scaled_queries = queries / math.sqrt(queries.shape[-1])
    scores = scaled_queries @ keys.mT  # (*batch, num_queries, num_keys)
    attention_weights = masked_softmax(scores, valid_lens, mask)
    return attention_weights @ values, attention_weights


class DotProductAttention(nn.Module):
    """Scaled dot-product attention as a module without parameters, with dropout on the weights.

    Drops weights, as PyTorch's function does, unlike the paper, which drops nothing inside the
    attention. After a call, `attention_weights` holds the weights after the softmax and before
    dropout, detached.

    Args:
        dropout: probability of dropping a weight in train mode.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, dropout: float = 0.0):
        """Keep a dropout layer; there is nothing to learn."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.attention_weights = None

    @checked
    def forward(
        self,
        queries: Float[Tensor, "*batch num_queries d"],
        keys: Float[Tensor, "*batch num_keys d"],
        values: Float[Tensor, "*batch num_keys v"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch num_queries v"]:
        """Return the outputs and keep the weights.

        Args:
            queries, keys, values, valid_lens, mask: as in `scaled_dot_product_attention`.
        """
        scaled_queries = queries / math.sqrt(queries.shape[-1])
        scores = scaled_queries @ keys.mT  # (*batch, num_queries, num_keys)
        attention_weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = attention_weights.detach()
        return self.dropout(attention_weights) @ values
