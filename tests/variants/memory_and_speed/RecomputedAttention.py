"""Answers to `RecomputedAttention`."""

import math
import types

import torch

from course_lib.attention import blocked_attention
from course_lib.authoring.variants import faulty, right, wrong


def pieces(m, block_size):
    return [slice(a, min(a + block_size, m)) for a in range(0, m, block_size)]


def masked(s, mask, piece, m):
    if mask is None:
        return s
    columns = torch.broadcast_to(mask, (*mask.shape[:-1], m))[..., piece]
    return s.masked_fill(~columns, -math.inf)


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
    delta=lambda w, dw, g, out: (g * out).sum(-1, keepdim=True),
    scale=root,
    rescale=root,
    with_mask=True,
    until=lambda m, b: m,
    collect=True,
    care=True,
):
    """A student's function with one thing wrong."""

    class Built(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, mask=None, block_size=128):
            out, lse = blocked_attention(q, k, v, mask, block_size)
            ctx.save_for_backward(q, k, v, mask, out, lse)
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
                w = torch.exp(s - shift[..., None])
                dw = g @ v[..., piece, :].mT
                ds = w * (dw - delta(w, dw, g, out)) * scale(d)
                dq = (dq if collect else 0) + ds @ k[..., piece, :]
                dk[..., piece, :] += ds.mT @ q
                dv[..., piece, :] += w.mT @ g
            return dq, dk, dv, None, None

    return Built


def bad(message, **options):
    return wrong(message)(build(**options))


drops_the_rest = bad("wrong_gradient", until=lambda m, b: m // b * b)


@wrong("spent_kept")
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


@wrong("spent_peak")
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


@faulty("no_root", "no_mask", "rest_dropped")
def slips_of_the_backward_pass(faults):
    return build(
        scale=(lambda d: 1.0) if "no_root" in faults else root,
        with_mask="no_mask" not in faults,
        until=(lambda m, b: m // b * b) if "rest_dropped" in faults else (lambda m, b: m),
    )


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
