"""Additive attention of few features: all at once, as one function with its backward by hand.

At this size time goes into starting operations and recording them. One function records once,
works on a row for each pair, and takes no views but those. With f = tanh(q + k), s = f w,
a = softmax(s) and o = a v, and g the gradient of o:

    grad v = a' g        grad a = g v'      grad s = a (grad a - sum of a grad a over a row)
    grad w = f' grad s   grad (q + k) = (1 - f^2) w grad s, summed over keys for q, queries for k
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.fused._additive_function import by_formula, gradients_of
from course_lib.fused.masked_softmax import softmax_of_allowed


class SmallAdditive(torch.autograd.Function):
    """Additive attention of queries and keys that are still to be projected, without dropout."""

    @staticmethod
    def forward(
        ctx, queries, keys, w_q, w_k, w, values, lengths, mask, want_weights
    ) -> tuple[Tensor, Tensor | None]:
        """Returns outputs `(batch, n, v)` and, if wanted, weights `(batch, n, m)`."""
        (batch, n, _), m, hidden = queries.shape, keys.shape[1], len(w_q)
        projected_queries = torch.mm(queries.flatten(0, 1), w_q.t()).view(batch, n, 1, hidden)
        projected_keys = torch.mm(keys.flatten(0, 1), w_k.t()).view(batch, 1, m, hidden)
        features = (projected_queries + projected_keys).tanh_().flatten(0, 2)  # (batch n m, H)
        scores = torch.mm(features, w.t()).view(batch, n, m)
        weights = softmax_of_allowed(scores, lengths, mask)
        given = queries, keys, w_q, w_k, w, values
        ctx.save_for_backward(*given, features, weights, lengths, mask)
        if not want_weights:
            return torch.bmm(weights, values), None
        ctx.mark_non_differentiable(weights)
        return torch.bmm(weights, values), weights

    @staticmethod
    def backward(ctx, *grads) -> tuple[Tensor | None, ...]:
        """All six gradients: to compute one costs less than to ask whether it is wanted."""
        grad_outputs, _ = grads
        *given, features, weights, lengths, mask = ctx.saved_tensors
        queries, keys, w_q, w_k, w, values = given
        if torch.is_grad_enabled():  # with create_graph=True: gradients to be differentiated
            projected = F.linear(queries, w_q), F.linear(keys, w_k)
            outputs, _ = by_formula(*projected, w, values, lengths, mask, None)
            return *gradients_of(outputs, given, grad_outputs), None, None, None
        grad_weights = torch.bmm(grad_outputs, values.mT)
        backward = torch._softmax_backward_data  # pyright: ignore[reportPrivateImportUsage] (torch.ops is slower)
        grad_scores = backward(grad_weights, weights, -1, weights.dtype)
        column = grad_scores.view(-1, 1)
        grad_pairs = torch.ops.aten.tanh_backward(torch.mm(column, w), features)
        grad_pairs = grad_pairs.view(*weights.shape, len(w_q))  # (batch, n, m, H)
        grad_queries = grad_pairs.sum(2).flatten(0, 1)  # both of what was projected
        grad_keys = grad_pairs.sum(1).flatten(0, 1)
        return (
            torch.mm(grad_queries, w_q).view_as(queries),
            torch.mm(grad_keys, w_k).view_as(keys),
            torch.mm(grad_queries.t(), queries.flatten(0, 1)),
            torch.mm(grad_keys.t(), keys.flatten(0, 1)),
            torch.mm(column.t(), features),
            torch.bmm(weights.mT, grad_outputs),
            *[None] * 3,
        )
