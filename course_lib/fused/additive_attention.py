"""Additive attention without the tensor of `(batch, n, m, num_hiddens)` features.

Two rewrites, both exact: tanh(x) = 2 sigmoid(2x) - 1, whose constant adds the same to all scores
of a row and leaves the softmax as it is; and sigmoid(2 (q + k)) = 1 / (1 + exp(-2q) exp(-2k)),
which asks for (n + m) H exponentials instead of n m H. What each block computes, and how far the
second rewrite reaches, is in `_additive_blocks`.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.attention._additive_attention import additive_scores
from course_lib.attention._checked import checked
from course_lib.fused._additive_function import BlockedAdditive, by_formula, is_small
from course_lib.fused._additive_small import SmallAdditive
from course_lib.fused._quick import quickly_checked
from course_lib.fused.masked_softmax import in_autocast, is_traced, without_autocast


class AdditiveAttention(nn.Module):
    """Additive attention with the arguments, numbers and state of the taught module.

    Eager calls compute blocks of pairs that stay in the cache, and compute them again in the
    backward pass: extra memory grows with n + m, and with n m only if the weights are wanted.
    Keys that no query of a block may see are skipped. Under `torch.compile` there is one graph,
    whose loops the compiler fuses. Small problems, second derivatives and `torch.func` use the
    formula of the lesson.

    Args:
        query_size, key_size: numbers in a query and in a key; they may differ.
        num_hiddens: features in which the two are added.
        dropout: probability of dropping an attention weight, in train mode only.

    Attributes:
        attention_weights: weights of the last call, `(batch, num_queries, num_keys)`, before
            dropout and detached; None after a call with `need_weights=False`.

    Source: Bahdanau, Cho & Bengio 2015, appendix A.1.2, https://arxiv.org/abs/1409.0473
    """

    @checked
    def __init__(self, query_size: int, key_size: int, num_hiddens: int, dropout: float = 0.0):
        """Makes the layers `W_q`, `W_k` and `w_v`, all without bias."""
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.num_hiddens = num_hiddens
        self.attention_weights = None

    @quickly_checked
    def forward(
        self,
        queries: Float[Tensor, "batch num_queries query_size"],
        keys: Float[Tensor, "batch num_keys key_size"],
        values: Float[Tensor, "batch num_keys value_size"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> Float[Tensor, "batch num_queries value_size"]:
        """Averages the values with weights from additive scores.

        Args:
            queries, keys: compared with each other.
            values: one for each key.
            valid_lens: how many leading keys are real, `(batch,)` or `(batch, num_queries)`.
            mask: True = may attend, broadcastable to `(batch, num_queries, num_keys)`. With
                both given, a key must be allowed by both.
            need_weights: whether to keep `attention_weights`.

        Returns:
            One average of the values for each query; zeros where no key is allowed.
        """
        w_q, w_k, w, dropout = self._parts(queries.shape[2], keys.shape[2])
        is_special = is_traced() or in_autocast() or (dropout.p and dropout.training)
        if is_small(queries, keys, len(w_q)) and torch.is_grad_enabled() and not is_special:
            given = queries, keys, w_q, w_k, w, values, valid_lens, mask
            outputs, weights = SmallAdditive.apply(*given, need_weights)
            self._keep(weights)
            return outputs
        given = F.linear(queries, w_q), F.linear(keys, w_k), w, values, valid_lens, mask
        return self._average(*given, dropout, need_weights)

    @checked
    def project_keys(
        self, keys: Float[Tensor, "batch keys key_size"]
    ) -> Float[Tensor, "batch keys num_hiddens"]:
        """Projects keys once for many calls of `attend`.

        The result is an ordinary tensor: when a key comes in, concatenate its projection along
        the keys, or write it into a tensor made for all of them and give `valid_lens`.
        """
        return F.linear(keys, self._parts(self.W_q.weight.shape[1], keys.shape[2])[1])

    @quickly_checked
    def attend(
        self,
        queries: Float[Tensor, "batch num_queries query_size"],
        projected_keys: Float[Tensor, "batch num_keys num_hiddens"],
        values: Float[Tensor, "batch num_keys value_size"],
        valid_lens: Int[Tensor, "..."] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> Float[Tensor, "batch num_queries value_size"]:
        """`forward` for keys that `project_keys` has projected: a decoder's step.

        Args:
            queries, values, valid_lens, mask, need_weights: as in `forward`.
            projected_keys: from `project_keys`.
        """
        w_q, _, w, dropout = self._parts(queries.shape[2], self.W_k.weight.shape[1])
        given = F.linear(queries, w_q), projected_keys, w, values, valid_lens, mask
        return self._average(*given, dropout, need_weights)

    def _parts(self, query_size: int, key_size: int) -> tuple[Tensor, Tensor, Tensor, nn.Dropout]:
        """The weights of the three layers, and the layer for dropout.

        Each is looked up once and used as it is: finding a layer as an attribute takes as long
        as a small sum, and calling it as long again as a small product. Raises as the taught
        module does if the layers are made for other sizes.
        """
        layers: dict[str, Any] = self._modules
        w_q, w_k, w = layers["W_q"].weight, layers["W_k"].weight, layers["w_v"].weight
        if query_size != w_q.shape[1] or key_size != w_k.shape[1]:
            none = (w_q.new_empty(0, 0, size) for size in (query_size, key_size))
            additive_scores(*none, w_q, w_k, w[0])
        return w_q, w_k, w, layers["dropout"]

    def _keep(self, weights: Tensor | None) -> None:
        """Sets `attention_weights`, which takes as long as a small product, where it changes."""
        if weights is not self.attention_weights:
            self.attention_weights = weights

    def _average(self, queries, keys, w, values, valid_lens, mask, dropout, need_weights) -> Tensor:
        """Chooses how to average the values for projected queries and keys."""
        if values.dtype != queries.dtype:  # under autocast
            values, w = values.to(queries.dtype), w.to(queries.dtype)
        given, p = (queries, keys, w, values), dropout.p if dropout.training else 0.0
        is_a_step = queries.shape[1] == 1 and not torch.is_grad_enabled()
        if is_small(queries, keys, w.shape[1]) or is_a_step or is_traced():
            outputs, weights = by_formula(*given, valid_lens, mask, dropout if p else None)
        else:
            masking = *_with_three_axes(valid_lens, mask, queries, keys), p
            with without_autocast(queries.device.type):
                outputs, weights = BlockedAdditive.apply(
                    *given, *masking, need_weights, torch.is_grad_enabled()
                )
        self._keep(weights.detach() if need_weights else None)
        return outputs


def _with_three_axes(valid_lens, mask, queries, keys) -> tuple[Tensor | None, Tensor | None]:
    """Lengths as `(batch, n or 1)` and the mask as a view of `(batch, n, m)`."""
    if valid_lens is not None and valid_lens.dim() == 1:
        valid_lens = valid_lens.unsqueeze(1)
    if mask is not None:
        mask = mask.expand(*queries.shape[:2], keys.shape[1])
    return valid_lens, mask
