"""The blocks of additive attention as one differentiable function, and the formula they stand for.

The formula is what small problems, `torch.compile` and second derivatives are computed by.
"""

import importlib.util
from types import ModuleType

import torch
from torch import Tensor

from course_lib.fused._additive_blocks import Masking, Sigmas
from course_lib.fused._additive_compiled import compiled_scores
from course_lib.fused._additive_passes import (
    Sums,
    all_kept,
    averages,
    gradients,
    scores_step_by_step,
)
from course_lib.fused.masked_softmax import may_look_at, softmax_of_allowed

FEW_FEATURES = 2**14  # up to so many numbers the plain formula is the fastest


def by_formula(queries, keys, w, values, lengths, mask, dropout) -> tuple[Tensor, Tensor]:
    """Returns outputs and weights, for which `(batch, n, m, H)` numbers exist at a time.

    Args:
        queries, keys: projected, `(batch, n, H)` and `(batch, m, H)`.
        w: `(1, H)`, as a linear layer holds it.
        values: `(batch, m, v)`.
        lengths, mask: which keys count, as in `AdditiveAttention`.
        dropout: what is applied to the weights, from tensor to tensor, or None.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        scores = compiled_scores(queries, keys, w[0])
    elif is_small(queries, keys, w.shape[1]) or torch.is_grad_enabled() or not may_look_at(queries):
        features = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
        # One product of matrices: `functional.linear` would take eight operations for the same.
        scores = torch.mm(features.flatten(0, 2), w.t()).view(*features.shape[:3])  # (batch, n, m)
    else:
        scores = scores_step_by_step(queries, keys, w[0])
    weights = softmax_of_allowed(scores, lengths, mask)  # (batch, n, m)
    return torch.bmm(weights if dropout is None else dropout(weights), values), weights


def is_small(queries: Tensor, keys: Tensor, num_hiddens: int) -> bool:
    """Whether there are so few features that computing all at once is the fastest."""
    batch, num_queries, _ = queries.shape
    return batch * num_queries * keys.shape[1] * num_hiddens <= FEW_FEATURES


def gradients_of(
    outputs: Tensor, inputs: list[Tensor], grad_outputs: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again; None for what needs none."""
    wanted = [given for given in inputs if given.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, grad_outputs, create_graph=True))
    return [next(found) if given.requires_grad else None for given in inputs]


class BlockedAdditive(torch.autograd.Function):
    """Additive attention of projected queries and keys, with memory linear in n and m."""

    @staticmethod
    def forward(
        ctx, queries, keys, w, values, lengths, mask, dropout, want_weights, want_backward
    ) -> tuple[Tensor, Tensor | None]:
        """Returns outputs `(batch, n, v)` and, if wanted, weights `(batch, n, m)`."""
        seed = int(torch.randint(2**62, ())) if dropout else 0  # from the global generator
        masking = Masking(lengths, mask, dropout, seed)
        wide = _wide(queries, keys, w, values)
        ctx.kernels = _kernels(queries, values, dropout)
        if ctx.kernels is None:
            outputs, sums = averages(*_blocks_of(*wide), masking, want_weights, want_backward)
        else:
            found = ctx.kernels.averages(*_vector(*wide), lengths, mask, want_weights)
            outputs, sums = found[0], Sums(found[1], None, found[2])
        outputs = outputs.to(values.dtype)
        ctx.dropout = dropout, seed
        ctx.save_for_backward(queries, keys, w, values, outputs, *sums, lengths, mask)
        if not want_weights or sums.weights is None:
            return outputs, None
        weights = sums.weights.to(values.dtype)
        ctx.mark_non_differentiable(weights)
        return outputs, weights

    @staticmethod
    def backward(ctx, *grads_given) -> tuple[Tensor | None, ...]:
        """Computes every block again; with `create_graph=True` the whole formula instead."""
        grad_outputs, _ = grads_given
        *inputs, outputs, totals, shifts, weights, lengths, mask = ctx.saved_tensors
        masking = Masking(lengths, mask, *ctx.dropout)
        if torch.is_grad_enabled():
            grads = _by_formula_again(inputs, masking, grad_outputs)
        else:
            *wide, outputs, grad_outputs = _wide(*inputs, outputs, grad_outputs)
            if ctx.kernels is None:
                sums = Sums(totals, shifts, weights)
                given = masking, outputs, sums, grad_outputs, ctx.needs_input_grad[3]
                grads = gradients(*_blocks_of(*wide), *given)
            else:
                given = *_vector(*wide), lengths, mask, outputs, totals, grad_outputs
                grads = ctx.kernels.gradients(*given)
            pairs = zip(grads, inputs, strict=True)
            grads = [g if g is None else g.to(given.dtype).view_as(given) for g, given in pairs]
        return *grads, *[None] * 5


def _wide(*tensors: Tensor) -> list[Tensor]:
    """The tensors in float64 if they are, otherwise in float32, without history."""
    dtype = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    return [tensor.detach().to(dtype) for tensor in tensors]


def _vector(queries, keys, w, values) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same with w as a vector."""
    return queries, keys, w.view(-1), values


def _blocks_of(*wide: Tensor) -> tuple[Sigmas, Tensor, Tensor]:
    """What `_additive_passes` works on: sigmas, w as a vector, and the values."""
    queries, keys, w, values = _vector(*wide)
    return Sigmas(queries, keys), w, values


def _kernels(queries: Tensor, values: Tensor, dropout: float) -> ModuleType | None:
    """The module of Triton kernels if it can compute this on this device, otherwise None."""
    if queries.device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    kernels = importlib.import_module("course_lib.fused._additive_triton")
    return kernels if kernels.covers(queries, values, dropout) else None


def _by_formula_again(
    inputs: list[Tensor], masking: Masking, grad_outputs: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, from the formula with the same dropout."""
    queries, keys, w, values = inputs
    kept = all_kept(queries, keys, values, masking)
    drop = None if kept is None else kept.mul
    outputs, _ = by_formula(queries, keys, w, values, masking.lengths, masking.mask, drop)
    return gradients_of(outputs, inputs, grad_outputs)
