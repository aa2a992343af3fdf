"""Answers to `RecomputedAttention`."""

import math
import types

import torch

from course_lib.attention import blocked_attention
from course_lib.exercises.variants import faulty, right, wrong


def pieces(m, block_size):
    return [slice(a, min(a + block_size, m)) for a in range(0, m, block_size)]


def masked(s, mask, piece, m):
    if mask is None:
        return s
    columns = torch.broadcast_to(mask, (*mask.shape[:-1], m))[..., piece]
    return s.masked_fill(~columns, -math.inf)


@right
class WithSetupContext(torch.autograd.Function):
    @staticmethod
    def forward(queries, keys, values, mask=None, block_size=128):
        return blocked_attention(queries, keys, values, mask, block_size)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:4], *output)
        ctx.block_size = inputs[4]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        return gradients(ctx, grad)

    @classmethod
    def apply(cls, *args):
        return super().apply(*args)[0]


def gradients(ctx, grad):
    q, k, v, mask, out, lse = ctx.saved_tensors
    scale, m = q.shape[-1] ** -0.5, k.shape[-2]
    lse = torch.where(torch.isinf(lse), torch.zeros_like(lse), lse)[..., None]
    delta = torch.einsum("...v,...v->...", grad, out)[..., None]
    dq, dks, dvs = torch.zeros_like(q), [], []
    for piece in pieces(m, ctx.block_size):
        w = (masked(scale * (q @ k[..., piece, :].mT), mask, piece, m) - lse).exp()
        ds = scale * w * (grad @ v[..., piece, :].mT - delta)
        dq = dq + ds @ k[..., piece, :]
        dks.append(ds.mT @ q)
        dvs.append(w.mT @ grad)
    return dq, torch.cat(dks, -2), torch.cat(dvs, -2), None, None


@right
class ListsOfBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask=None, block_size=128):
        out, lse = blocked_attention(q, k, v, mask, block_size)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.block_size = block_size
        return out

    @staticmethod
    def backward(ctx, grad):
        return gradients(ctx, grad)


@right
class StatisticsComputedAgain(torch.autograd.Function):
    """Keeps the inputs only, and runs the forward pass once more."""

    @staticmethod
    def forward(ctx, q, k, v, mask=None, block_size=128):
        ctx.save_for_backward(q, k, v, mask)
        ctx.block_size = block_size
        return blocked_attention(q, k, v, mask, block_size)[0]

    @staticmethod
    def backward(ctx, grad):
        q, k, v, mask = ctx.saved_tensors
        out, lse = blocked_attention(q, k, v, mask, ctx.block_size)
        saved = q, k, v, mask, out, lse
        again = types.SimpleNamespace(saved_tensors=saved, block_size=ctx.block_size)
        return gradients(again, grad)


@right
class AutogradBlockByBlock(ListsOfBlocks):
    """Lets autograd differentiate one block at a time, with the statistics held fixed."""

    @staticmethod
    def backward(ctx, grad):
        q, k, v, mask, out, lse = ctx.saved_tensors
        m, dq, dks, dvs = k.shape[-2], torch.zeros_like(q), [], []
        safe = lse.masked_fill(lse == -math.inf, 0.0)[..., None]
        delta = (grad * out).sum(-1, keepdim=True)
        for piece in pieces(m, ctx.block_size):
            with torch.enable_grad():
                qb, kb, vb = (
                    x.detach().requires_grad_() for x in (q, k[..., piece, :], v[..., piece, :])
                )
                s = masked(qb @ kb.mT / math.sqrt(q.shape[-1]), mask, piece, m)
                w = torch.exp(s - safe)
                loss = (w * (grad @ vb.mT - delta)).sum()
                parts = torch.autograd.grad(loss, (qb, kb, vb))
            dq += parts[0]
            dks.append(parts[1])
            dvs.append(parts[2])
        return dq, torch.cat(dks, -2), torch.cat(dvs, -2), None, None


@right
class BlocksOfQueries(ListsOfBlocks):
    """The backward pass walks along the queries."""

    @staticmethod
    def backward(ctx, grad):
        q, k, v, mask, out, lse = ctx.saved_tensors
        n, scale = q.shape[-2], q.shape[-1] ** -0.5
        if mask is not None:
            mask = mask.expand(*mask.shape[:-2], n, k.shape[-2])
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for rows in pieces(n, ctx.block_size):
            qb, g = q[..., rows, :], grad[..., rows, :]
            s = qb @ k.mT * scale
            s = s if mask is None else s.masked_fill(~mask[..., rows, :], -math.inf)
            w = torch.exp(s - torch.nan_to_num(lse[..., rows], neginf=0.0)[..., None])
            ds = w * (g @ v.mT - (g * out[..., rows, :]).sum(-1, keepdim=True)) * scale
            dq[..., rows, :] = ds @ k
            dk += ds.mT @ qb
            dv += w.mT @ g
        return dq, dk, dv, None, None


@right
class RowSumsInAFirstPass(ListsOfBlocks):
    """Two passes over the blocks: the row sums of W * dW, then the gradients."""

    @staticmethod
    def backward(ctx, grad):
        q, k, v, mask, _, lse = ctx.saved_tensors
        scale, m = q.shape[-1] ** -0.5, k.shape[-2]
        safe = torch.nan_to_num(lse, neginf=0.0)[..., None]

        def blocks():
            for piece in pieces(m, ctx.block_size):
                w = torch.exp(masked(q @ k[..., piece, :].mT * scale, mask, piece, m) - safe)
                yield piece, w, grad @ v[..., piece, :].mT

        sums = sum((w * dw).sum(-1, keepdim=True) for _, w, dw in blocks())
        dq, dks, dvs = 0.0, [], []
        for piece, w, dw in blocks():
            ds = w * (dw - sums) * scale
            dq = dq + ds @ k[..., piece, :]
            dks.append(ds.mT @ q)
            dvs.append(w.mT @ grad)
        return dq, torch.cat(dks, -2), torch.cat(dvs, -2), None, None


def root(d):
    return d**-0.5


def build(
    statistic=lambda lse, *inputs: lse,
    softmax=None,
    delta=lambda w, dw, g, out: (g * out).sum(-1, keepdim=True),
    scale=root,
    rescale=root,
    with_mask=True,
    until=lambda m, b: m,
    collect=True,
    care=True,
    nones=2,
):
    """A student's function with one thing wrong."""

    class Built(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, mask=None, block_size=128):
            out, lse = blocked_attention(q, k, v, mask, block_size)
            ctx.save_for_backward(q, k, v, mask, out, statistic(lse, q, k, mask, block_size))
            ctx.block_size = block_size
            return out

        @staticmethod
        def backward(ctx, g):
            q, k, v, mask, out, lse = ctx.saved_tensors
            m, d = k.shape[-2], q.shape[-1]
            dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
            shift = torch.where(lse == -math.inf, 0.0, lse) if care else lse
            for piece in pieces(until(m, ctx.block_size), ctx.block_size):
                s = q @ k[..., piece, :].mT * rescale(d)
                s = masked(s, mask, piece, m) if with_mask else s
                w = softmax(s) if softmax else torch.exp(s - shift[..., None])
                dw = g @ v[..., piece, :].mT
                ds = w * (dw - delta(w, dw, g, out)) * scale(d)
                dq = (dq if collect else 0) + ds @ k[..., piece, :]
                dk[..., piece, :] += ds.mT @ q
                dv[..., piece, :] += w.mT @ g
            return dq, dk, dv, *[None] * nones

    return Built


def running_maximum(lse, q, k, mask, block_size):
    top = torch.full_like(lse, -math.inf)
    for piece in pieces(k.shape[-2], block_size):
        s = masked(q @ k[..., piece, :].mT / math.sqrt(q.shape[-1]), mask, piece, k.shape[-2])
        top = torch.maximum(top, s.amax(-1))
    return top


def bad(message, **options):
    return wrong(message)(build(**options))


keeps_the_maximum = bad("maximum_kept", statistic=running_maximum)
softmax_in_the_block = bad(
    "normalised_in_the_block", softmax=lambda s: torch.softmax(s, -1).nan_to_num()
)
delta_of_the_block = bad(
    "row_sum_of_the_block", delta=lambda w, dw, g, out: (w * dw).sum(-1, keepdim=True)
)
no_delta = bad("row_sum_forgotten", delta=lambda w, dw, g, out: 0.0)
mean_for_delta = bad(None, delta=lambda w, dw, g, out: (g * out).mean(-1, keepdim=True))
no_root = bad("root_forgotten", scale=lambda d: 1.0)
unscaled_again = bad("scores_not_scaled_again", rescale=lambda d: 1.0)
forgets_the_mask = bad("mask_forgotten", with_mask=False)
drops_the_rest = bad("short_block_dropped", until=lambda m, b: m // b * b)
overwrites_queries = bad("queries_overwritten", collect=False)
careless_with_infinity = bad("empty_row", care=False)
too_few_nones = bad(None, nones=1)


@wrong("weights_kept")
class KeepsWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask=None, block_size=128):
        s = q @ k.mT / math.sqrt(q.shape[-1])
        s = s if mask is None else s.masked_fill(~mask, -math.inf)
        w = torch.softmax(s, -1).nan_to_num()
        ctx.save_for_backward(q, k, v, w)
        return w @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, w = ctx.saved_tensors
        dw = g @ v.mT
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
        return ds @ k, ds.mT @ q, w.mT @ g, None, None


@wrong("all_at_once")
class RecomputesEverything(StatisticsComputedAgain):
    @staticmethod
    def backward(ctx, g):
        q, k, v, mask = ctx.saved_tensors
        with torch.enable_grad():
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            s = q @ k.mT / math.sqrt(q.shape[-1])
            if mask is not None:
                s = s.masked_fill(~mask, -1e30)
            w = torch.softmax(s, -1)
            out = w @ v if mask is None else (w * mask) @ v
            return *torch.autograd.grad(out, (q, k, v), g), None, None


@wrong()
class PlainAutograd(torch.autograd.Function):
    """What autograd keeps of the loop is not less than the weights."""

    @classmethod
    def apply(cls, q, k, v, mask=None, block_size=128):
        return blocked_attention(q, k, v, mask, block_size)[0]


@wrong("no_gradients")
class SendsNothing(ListsOfBlocks):
    @staticmethod
    def backward(ctx, g):
        return (None,) * 5


@wrong("all_at_once")
class PlainForward(ListsOfBlocks):
    """Only the backward pass goes in blocks."""

    @staticmethod
    def forward(ctx, q, k, v, mask=None, block_size=128):
        s = q @ k.mT / math.sqrt(q.shape[-1])
        s = s if mask is None else s.masked_fill(~mask, -math.inf)
        lse = torch.logsumexp(s, -1)
        out = torch.exp(s - torch.nan_to_num(lse, neginf=0.0)[..., None]) @ v
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.block_size = block_size
        return out


@wrong("keys_and_values_swapped")
class KeysAndValuesSwapped(ListsOfBlocks):
    @staticmethod
    def backward(ctx, g):
        dq, dk, dv, *nones = gradients(ctx, g)
        return dq, dv, dk, *nones


@wrong("nan_hidden")
class NanReplaced(build(care=False)):
    @classmethod
    def apply(cls, *args):
        q, k, v = (_NoNan.apply(x) for x in args[:3])
        return super().apply(q, k, v, *args[3:])


class _NoNan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.nan_to_num(0.0)


@wrong("input_mutated")
class ScalesTheGradientInPlace(ListsOfBlocks):
    @staticmethod
    def backward(ctx, g):
        found = gradients(ctx, g)
        g *= ctx.saved_tensors[0].shape[-1] ** -0.5
        return found


@wrong("root_forgotten_for_queries")
class QueriesUnscaled(ListsOfBlocks):
    @staticmethod
    def backward(ctx, g):
        dq, *others = gradients(ctx, g)
        return dq * math.sqrt(dq.shape[-1]), *others


@faulty("no_root", "no_mask", "rest_dropped")
def slips_of_the_backward_pass(faults):
    return build(
        scale=(lambda d: 1.0) if "no_root" in faults else root,
        with_mask="no_mask" not in faults,
        until=(lambda m, b: m // b * b) if "rest_dropped" in faults else (lambda m, b: m),
    )


@faulty("no_guard", "queries_overwritten", "weights_kept")
def slips_of_what_is_kept(faults):
    class Kept(build(care="no_guard" not in faults, collect="queries_overwritten" not in faults)):
        @classmethod
        def apply(cls, q, k, v, mask=None, block_size=128):
            out = super().apply(q, k, v, mask, block_size)
            if "weights_kept" in faults:
                with torch.no_grad():
                    out.grad_fn.weights = torch.softmax(q @ k.mT, -1)
            return out

    return Kept


@wrong("wrong_gradient")
class KeptOnTheClass(torch.autograd.Function):
    """A second call before `backward` overwrites what the first one needs."""

    kept = types.SimpleNamespace()  # stands in for `ctx`, the same for every call

    @staticmethod
    def forward(ctx, q, k, v, mask=None, block_size=128):
        out, lse = blocked_attention(q, k, v, mask, block_size)
        KeptOnTheClass.kept.saved_tensors = q, k, v, mask, out, lse
        KeptOnTheClass.kept.block_size = block_size
        return out

    @staticmethod
    def backward(ctx, grad):
        return gradients(KeptOnTheClass.kept, grad)
