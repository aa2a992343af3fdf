"""The right `AdditiveAttention` in steps, and its known mistakes."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.steps import NO_STEP


class _Additive(AttentionModule):
    """The right module: project, and the step combine in the place of product and root."""

    product = root = NO_STEP

    def __init__(
        self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)

    def project(self, queries, keys, values) -> Sequence[torch.Tensor]:
        return self.W_q(queries), self.W_k(keys), values

    def score(self, q, k) -> torch.Tensor:
        return self.combine(q[:, :, None], k[:, None], self.w_v.weight[0])

    def combine(self, q, k, w) -> torch.Tensor:
        return torch.tanh(q + k) @ w


def _combined(function) -> dict[str, object]:
    return {"combine": lambda self, q, k, w: function(q, k, w)}


def _squeezed(self, scores, valid_lens=None, mask=None) -> torch.Tensor:
    """The course's softmax refuses lengths where an axis of the scores is missing."""
    scores = scores.squeeze()
    if scores.dim() < (2 if valid_lens is None else 3):
        raise ValueError("an axis of the scores is missing")
    return _Additive.weights(self, scores, valid_lens, mask)


def _textbook(self, queries, keys, values, valid_lens) -> torch.Tensor:
    valid_lens.dim()
    return _Additive.forward(self, queries, keys, values, valid_lens)


_OWN = (
    Row("no_tanh", _combined(lambda q, k, w: (q + k) @ w)).says(
        "Without tanh every query of an item has the same weights: the softmax cancels the query's "
        "part of the score.",
        "Which step lets a query change the order of the keys?",
    ),
    Row("tanh_apart", _combined(lambda q, k, w: (torch.tanh(q) + torch.tanh(k)) @ w)).says(
        "You take the tanh of query and key separately, so the query's part cancels in the "
        "softmax and every query has the same weights.",
        "Does the tanh come before or after the sum?",
    ),
    Row(
        "query_forgotten",
        _combined(lambda q, k, w: torch.tanh(k).expand(-1, q.shape[1], -1, -1) @ w),
    ).says("Your weights do not depend on the queries.", "What is added to the projected key?"),
    Row("no_w_v", _combined(lambda q, k, w: torch.tanh(q + k).sum(-1))).says(
        "You add up the hidden features without `w_v`.",
        "Does every hidden feature count the same?",
    ),
    Row("product", _combined(lambda q, k, w: torch.tanh(q * k) @ w)).says(
        "You multiply the projected query and key; additive attention adds them.",
        "Which operation is inside the tanh?",
    ),
    Row("relu", _combined(lambda q, k, w: torch.relu(q + k) @ w)).says(
        "Your hidden features go through relu; the formula says tanh.",
        "Which values can tanh take that relu cannot?",
    ),
    Row("scaled_dot_product", _combined(lambda q, k, w: (q * k).sum(-1) / math.sqrt(len(w)))).says(
        "You take scaled dot products of the projections, without w_v and tanh. That is the next "
        "lesson's attention.",
        "How do two vectors of H numbers become H features, and how do these become one score?",
    ),
    Row("scaled", _combined(lambda q, k, w: torch.tanh(q + k) @ w / math.sqrt(len(w)))).says(
        "You divide the scores by a square root, as dot-product attention does. The additive score "
        "has no such factor.",
        "Which scores grow with the number of features, and which are bounded by w_v?",
    ),
    Row(
        "layers_swapped",
        {"project": lambda self, q, k, v: (self.W_k(q), self.W_q(k), v)},
        fails=True,
    ).says(
        "The queries go through `W_k` and the keys through `W_q`.",
        "Which layer reads query_size numbers?",
    ),
    Row("squeezed", {"weights": _squeezed}, fails=True).says(
        "`squeeze()` without an axis removes every axis of size 1: with one item, one query or one "
        "key an axis is lost.",
        "Which axis do you want to remove?",
    ),
    Row("values_are_keys", {"project": lambda self, q, k, v: (self.W_q(q), self.W_k(k), k)}).says(
        "You average the keys; the keys only decide how much each value counts.",
        "Attention returns an average of one of its three inputs. Which one?",
    ),
    Row(
        "projected_keys_averaged",
        {"project": lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.W_k(k))},
    ).says(
        "You average the projected keys; the outputs are averages of the values.",
        "Which variable did you overwrite along the way?",
    ),
    Row("lengths_required", {"forward": _textbook}, fails=True).says(
        "The call fails without lengths, or with a mask. Both are optional.",
        "What signature does the exercise give `forward`?",
    ),
)
MISTAKES = known(_Additive, *_OWN, without={"head_axis_forgotten", "empty_row_gradient_nan"})
