"""Lesson 04: scoring a query against a key with a small network, whatever their sizes."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention._checked import checked
from course_lib.attention._masked_softmax import masked_softmax


@checked
def additive_scores(
    queries: Float[Tensor, "batch num_queries query_size"],
    keys: Float[Tensor, "batch num_keys key_size"],
    w_q: Float[Tensor, "num_hiddens query_size"],
    w_k: Float[Tensor, "num_hiddens key_size"],
    w_v: Float[Tensor, "num_hiddens"],
) -> Float[Tensor, "batch num_queries num_keys"]:
    """Score every query against every key with a network of one hidden layer.

    score(q, k) = w_v . tanh(w_q q + w_k k). Queries and keys may differ in size: each is
    projected to `num_hiddens` features first. The sum is taken for every pair, so a tensor of
    `batch * num_queries * num_keys * num_hiddens` numbers exists for a moment.

    Args:
        queries, keys: vectors of `query_size` and `key_size` numbers.
        w_q, w_k: weights as `nn.Linear` holds them, one row for each hidden feature.
        w_v: one weight for each hidden feature.

    Returns:
        One score for each query and key, each between `-w_v.abs().sum()` and `w_v.abs().sum()`.

    Source: Bahdanau, Cho & Bengio 2015, appendix A.1.2, https://arxiv.org/abs/1409.0473
    """
    projected_queries = queries @ w_q.mT  # (batch, num_queries, num_hiddens)
    projected_keys = keys @ w_k.mT  # (batch, num_keys, num_hiddens)
    pairs = projected_queries.unsqueeze(2) + projected_keys.unsqueeze(1)
    return torch.tanh(pairs) @ w_v  # (batch, num_queries, num_keys)


class AdditiveAttention(nn.Module):
    """Attention whose scores come from a learned network instead of a dot product.

    As in Bahdanau et al. without biases, but with any number of queries at once, masks, and
    dropout on the attention weights. PyTorch has no counterpart.

    Args:
        query_size, key_size: numbers in a query and in a key; they may differ.
        num_hiddens: number of hidden features.
        dropout: probability of dropping an attention weight, in train mode only.
        device, dtype: device and dtype of the weights, as in `torch.nn`.

    Attributes:
        attention_weights: weights of the last call, `(batch, num_queries, num_keys)`, before
            dropout and detached.

    Source: Bahdanau, Cho & Bengio 2015, appendix A.1.2, https://arxiv.org/abs/1409.0473
    """

    @checked
    def __init__(
        self,
        query_size: int,
        key_size: int,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        device=None,
        dtype=None,
    ):
        """Make the layers `W_q`, `W_k` and `w_v`, all without bias."""
        super().__init__()
        factory_kwargs = {"device": device, "dtype": dtype}
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, **factory_kwargs)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, **factory_kwargs)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, **factory_kwargs)
        self.dropout = nn.Dropout(dropout)

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
            queries, keys: compared with each other.
            values: one for each key.
            valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`.
            mask: True = may attend, broadcastable to `(batch, num_queries, num_keys)`. With
                both given, a key must be allowed by both.

        Returns:
            One average of the values for each query; zeros where no key is allowed.
        """
        scores = additive_scores(
            queries, keys, self.W_q.weight, self.W_k.weight, self.w_v.weight[0]
        )
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values  # (batch, num_queries, value_size)
