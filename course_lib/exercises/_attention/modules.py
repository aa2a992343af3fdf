"""Correct attention in named steps around the masked softmax, as a function and as modules."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.exercises._attention.steps import Softmax, Stepped


class Attention(Softmax):
    """`scaled_dot_product_attention`: project; product, root; the softmax; average, out."""

    @classmethod
    def answer(cls) -> Callable:
        steps = cls()
        return lambda queries, keys, values, valid_lens=None, mask=None: steps.attend(
            (queries, keys, values), valid_lens, mask
        )

    def attend(self, inputs, valid_lens=None, mask=None) -> tuple[Tensor, Tensor]:
        q, k, v = self.project(*inputs)
        weights = self.weights(self.score(q, k), valid_lens, mask)
        return self.out(self.average(weights, v)), weights

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return queries, keys, values

    def score(self, q, k) -> Tensor:
        return self.product(q, k) / self.root(q)

    def product(self, q, k) -> Tensor:
        return q @ k.mT

    def root(self, q) -> float:
        return math.sqrt(q.shape[-1])

    def average(self, weights, v) -> Tensor:
        return weights @ v

    def out(self, averages) -> Tensor:
        return averages


class AttentionModule(Attention, nn.Module):
    """`DotProductAttention`, whose average has the additional steps drop and keep."""

    def __init__(self, dropout=0.0) -> None:
        super().__init__()
        self.p = dropout

    @classmethod
    def answer(cls) -> Callable:
        return cls

    def forward(self, *inputs, **named) -> Tensor:
        return self.attend(inputs[:3], *inputs[3:], **named)[0]

    def average(self, weights, v) -> Tensor:
        used = self.drop(weights)
        self.keep(weights, used)
        return used @ v

    def drop(self, weights) -> Tensor:
        return F.dropout(weights, self.p, self.training)

    def keep(self, weights, used) -> None:
        self.attention_weights = weights.detach()


class WithHeads(Stepped):
    """Attention in `num_heads` heads, with the additional steps split and merge."""

    num_heads: int

    def split(self, x) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge(self, x) -> Tensor:
        return x.transpose(1, 2).flatten(2)
