"""Answers to `MultiHeadAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong


class Base(nn.Module):
    """What most answers share: four layers and the arguments' names."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.h, self.d = num_heads, embed_dim // num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)


def permitted(valid_lens, mask, batch, n, m):
    """Bool (B, h or 1, n, m)."""
    ok = torch.ones(batch, 1, n, m, dtype=torch.bool)
    if valid_lens is not None:
        lens = valid_lens.reshape(batch, 1, -1, 1)
        ok = ok & (torch.arange(m) < lens)
    if mask is not None:
        ok = ok & (mask[:, None] if mask.ndim == 3 else mask)
    return ok


def safe_softmax(scores, ok):
    nobody = ~ok.any(-1, keepdim=True)
    scores = scores.masked_fill(~ok, -math.inf).masked_fill(nobody, 0.0)
    return scores.softmax(-1).masked_fill(nobody, 0.0)


@right
class LoopOverHeads(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        ok = permitted(valid_lens, mask, len(q), q.shape[1], k.shape[1])
        ok = ok.expand(-1, self.h, -1, -1)
        outputs, kept = [], []
        for i in range(self.h):
            block = slice(i * self.d, (i + 1) * self.d)
            scores = torch.bmm(q[..., block], k[..., block].transpose(1, 2)) / math.sqrt(self.d)
            weights = safe_softmax(scores, ok[:, i])
            kept.append(weights.detach())
            outputs.append(torch.bmm(self.dropout(weights), v[..., block]))
        self.attention_weights = torch.stack(kept, dim=1)
        return self.W_o(torch.cat(outputs, dim=-1))


@right
class FoldedHeads(Base):
    def fold(self, x):
        x = x.reshape(x.shape[0], x.shape[1], self.h, -1).permute(0, 2, 1, 3)
        return x.reshape(-1, x.shape[2], x.shape[3])

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.fold(self.W_q(queries))
        k, v = self.fold(self.W_k(keys)), self.fold(self.W_v(values))
        n, m = q.shape[1], k.shape[1]
        ok = torch.ones(len(q), n, m, dtype=torch.bool)
        if valid_lens is not None:
            lens = valid_lens.repeat_interleave(self.h, dim=0)
            lens = lens[:, None] if lens.dim() == 1 else lens
            ok &= torch.arange(m)[None, None] < lens[:, :, None]
        if mask is not None:
            if mask.dim() == 3:
                mask = mask.repeat_interleave(self.h, dim=0)
            elif mask.dim() == 4:
                mask = mask.flatten(0, 1)
            ok &= mask
        weights = safe_softmax(q @ k.transpose(1, 2) / self.d**0.5, ok)
        self.attention_weights = weights.detach().unflatten(0, (-1, self.h))
        out = self.dropout(weights) @ v
        out = out.reshape(-1, self.h, n, self.d).permute(0, 2, 1, 3)
        return self.W_o(out.reshape(len(queries), n, -1))


@right
class Einsum(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        b, n, m = queries.shape[0], queries.shape[1], keys.shape[1]
        q = self.W_q(queries).view(b, n, self.h, self.d) * self.d**-0.5
        k = self.W_k(keys).view(b, m, self.h, self.d)
        v = self.W_v(values).view(b, m, self.h, self.d)
        scores = torch.einsum("bnhd,bmhd->bhnm", q, k)
        weights = safe_softmax(scores, permitted(valid_lens, mask, b, n, m))
        self.attention_weights = weights.detach().clone()
        out = torch.einsum("bhnm,bmhd->bnhd", self.dropout(weights), v)
        return self.W_o(out.reshape(b, n, -1))


@right
class SlicedWeightsInAModuleList(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        for name in ("W_q", "W_k", "W_v", "W_o"):
            self.add_module(name, nn.Linear(embed_dim, embed_dim, bias))
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) for _ in range(num_heads))

    def head(self, layer, x, i):
        size = layer.weight.shape[0] // len(self.dropouts)
        rows = slice(i * size, (i + 1) * size)
        return F.linear(x, layer.weight[rows], None if layer.bias is None else layer.bias[rows])

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        ok = permitted(valid_lens, mask, len(queries), queries.shape[1], keys.shape[1])
        total, kept = 0.0, []
        for i, dropout in enumerate(self.dropouts):
            q, k = self.head(self.W_q, queries, i), self.head(self.W_k, keys, i)
            v = self.head(self.W_v, values, i)
            allowed = ok[:, min(i, ok.shape[1] - 1)]
            weights = safe_softmax(q @ k.mT / math.sqrt(q.shape[-1]), allowed)
            kept.append(weights.detach())
            columns = slice(i * v.shape[-1], (i + 1) * v.shape[-1])
            total = total + (dropout(weights) @ v) @ self.W_o.weight[:, columns].T
        self.attention_weights = torch.stack(kept, 1)
        return total if self.W_o.bias is None else total + self.W_o.bias


@right
class WithTheCoursesParts(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        from course_lib import masked_softmax, merge_heads, split_heads

        q, k, v = (
            split_heads(layer(x), self.h)
            for layer, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        weights = masked_softmax(q @ k.transpose(-1, -2) / math.sqrt(self.d), valid_lens, mask)
        self.attention_weights = weights.detach()
        weights = F.dropout(weights, self.dropout.p, training=self.training)
        return self.W_o(merge_heads(weights @ v))


@right
class LazyLayers(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads, self.p = num_heads, dropout
        self.W_q = nn.LazyLinear(embed_dim, bias=bias)
        self.W_k = nn.LazyLinear(embed_dim, bias=bias)
        self.W_v = nn.LazyLinear(embed_dim, bias=bias)
        self.W_o = nn.LazyLinear(embed_dim, bias=bias)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            torch.stack(x.chunk(self.num_heads, -1), 1)
            for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        scores = q @ k.mT / q.shape[-1] ** 0.5 - self.top(q, k, ok)
        e = torch.exp(torch.where(ok, scores, -math.inf))
        weights = e / (e.sum(-1, keepdim=True) + ~ok.any(-1, keepdim=True))
        self.attention_weights = weights.detach()
        out = F.dropout(weights, self.p, self.training) @ v
        return self.W_o(torch.cat(out.unbind(1), -1))

    def top(self, q, k, ok):
        scores = (q @ k.mT).detach() / q.shape[-1] ** 0.5
        return scores.amax(-1, keepdim=True) if ok.all() else self.masked_top(scores, ok)

    def masked_top(self, scores, ok):
        scores = scores.masked_fill(~ok, -math.inf)
        return scores.masked_fill(~ok.any(-1, keepdim=True), 0.0).amax(-1, keepdim=True)


@right
class TorchForTheOutputs(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            x.unflatten(-1, (self.h, self.d)).transpose(1, 2)
            for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        with torch.no_grad():
            self.attention_weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        p = self.dropout.p if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, ok.expand(-1, self.h, -1, -1), p)
        return self.W_o(out.transpose(1, 2).flatten(2))


class Almost(Base):
    """A right module that wrong answers change in one place."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            self.split(self.W_q(queries)),
            self.split(self.W_k(keys)),
            self.split(self.W_v(values)),
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach()
        return self.W_o(self.merge(self.dropout(weights) @ v))

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)


@wrong("merge_without_transpose")
class MergedByReshape(Almost):
    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


@wrong("split_without_transpose")
class SplitByView(Almost):
    def split(self, x):
        return x.contiguous().view(len(x), self.h, -1, self.d)


@wrong("merge_without_transpose+split_without_transpose")
class NeverTransposed(SplitByView):
    merge = MergedByReshape.merge


@wrong("interleaved_heads")
class Interleaved(Almost):
    def split(self, x):
        return torch.stack([x[..., i :: self.h] for i in range(self.h)], 1)

    def merge(self, x):
        return torch.stack(list(x.unbind(1)), -1).flatten(2)


@wrong("scale_embed_dim")
class ScaledByTheWholeSize(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        split = Almost.split
        q, k, v = (
            split(self, self.W_q(queries)),
            split(self, self.W_k(keys)),
            split(self, self.W_v(values)),
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(queries.shape[-1]), ok)
        self.attention_weights = weights.detach()
        return self.W_o(Almost.merge(self, self.dropout(weights) @ v))


@wrong("values_from_keys")
class SeedsSlip(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return super().forward(queries, keys, keys, valid_lens, mask)


@wrong("keys_and_values_from_queries")
class OnlySelfAttention(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return super().forward(queries, queries, queries, valid_lens, mask)


@wrong("no_W_o")
class OutputLayerForgotten(Almost):
    def forward(self, *args, **kwargs):
        layer, self.W_o = self.W_o, nn.Identity()
        result = super().forward(*args, **kwargs)
        self.W_o = layer
        return result


@wrong("layers_in_a_list")
class HeadsInAList(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        d = embed_dim // num_heads
        self.W_q = [nn.Linear(embed_dim, d, bias=bias) for _ in range(num_heads)]
        self.W_k = [nn.Linear(embed_dim, d, bias=bias) for _ in range(num_heads)]
        self.W_v = [nn.Linear(embed_dim, d, bias=bias) for _ in range(num_heads)]
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        outputs = []
        for W_q, W_k, W_v in zip(self.W_q, self.W_k, self.W_v):
            q, k, v = W_q(queries), W_k(keys), W_v(values)
            outputs.append((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v)
        return self.W_o(torch.cat(outputs, -1))


@wrong()
class HeadsInNestedLists(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        d = embed_dim // num_heads
        self.heads = [
            [nn.Linear(embed_dim, d, bias=bias) for _ in range(3)] for _ in range(num_heads)
        ]
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return self.W_o(torch.cat([W_v(values) for _, _, W_v in self.heads], -1))


@wrong("parameters_renamed")
class OtherNames(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.query = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.value = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return self.out(self.value(values))


@wrong("masks_tiled")
class TiledLengths(FoldedHeads):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        b, n, m = len(queries), queries.shape[1], keys.shape[1]
        ok = torch.ones(b * self.h, n, m, dtype=torch.bool)
        if valid_lens is not None:
            lens = valid_lens.repeat(self.h, *[1] * (valid_lens.dim() - 1))
            ok &= torch.arange(m) < lens.reshape(b * self.h, -1, 1)
        if mask is not None:
            mask = mask.repeat(self.h, 1, 1) if mask.dim() == 3 else mask
            ok &= mask.flatten(0, 1) if mask.dim() == 4 else mask
        return super().forward(queries, keys, values, None, ok.unflatten(0, (b, self.h)))


@wrong("bool_mask_ignored")
class NoMask(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return super().forward(queries, keys, values, valid_lens)


@wrong("bool_mask_inverted")
class TorchsPolarity(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return super().forward(queries, keys, values, valid_lens, None if mask is None else ~mask)


@wrong("item_mask_read_as_head_mask")
class NoHeadAxis(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        mask = mask[None] if mask is not None and mask.dim() == 3 else mask
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("dropped_key_has_weight")
class OneMaskForAllHeads(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        mask = mask[:, 0] if mask is not None and mask.dim() == 4 else mask
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("dropout_in_eval")
class AlwaysDropping(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, dropout, bias)
        del self.dropout
        self.dropout = lambda weights: F.dropout(weights, dropout)


@wrong("dropout_on_output")
class DropsOutputs(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, 0.0, bias)
        self.last = nn.Dropout(dropout)

    def forward(self, *args, **kwargs):
        return self.last(super().forward(*args, **kwargs))


@wrong("dropout_missing")
class NeverDropping(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, 0.0, bias)


@wrong("dropout_on_scores")
class DropsScores(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            self.split(self.W_q(queries)),
            self.split(self.W_k(keys)),
            self.split(self.W_v(values)),
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        scores = q @ k.mT / math.sqrt(self.d)
        self.attention_weights = safe_softmax(scores, ok).detach()
        return self.W_o(self.merge(safe_softmax(self.dropout(scores), ok) @ v))


@wrong("attribute_attached")
class KeepsTheGraph(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            self.split(self.W_q(queries)),
            self.split(self.W_k(keys)),
            self.split(self.W_v(values)),
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        self.attention_weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        return self.W_o(self.merge(self.dropout(self.attention_weights) @ v))


@wrong("attribute_shape")
class StoresTheAverage(Almost):
    def forward(self, *args, **kwargs):
        result = super().forward(*args, **kwargs)
        self.attention_weights = self.attention_weights.mean(dim=1)
        return result


@wrong("heads_averaged")
class AveragedHeads(Almost):
    def merge(self, x):
        return torch.cat([x.mean(1)] * self.h, -1)


@wrong("wrong_values")
class SharedWeights(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        split = Almost.split
        q, k, v = (
            split(self, self.W_q(queries)),
            split(self, self.W_k(keys)),
            split(self, self.W_v(values)),
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach()
        return self.W_o(Almost.merge(self, self.dropout(weights.mean(1, keepdim=True)) @ v))


@wrong("empty_row_nan")
class EmptyRowsBreak(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        split = Almost.split
        q, k, v = (
            split(self, self.W_q(queries)),
            split(self, self.W_k(keys)),
            split(self, self.W_v(values)),
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        scores = (q @ k.mT / math.sqrt(self.d)).masked_fill(~ok, -math.inf)
        weights = scores.softmax(-1)
        self.attention_weights = weights.detach()
        return self.W_o(Almost.merge(self, self.dropout(weights) @ v))


@wrong("extra_parameters")
class DefaultBias(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, dropout, bias=True)


@wrong()
class DetachedValues(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return super().forward(queries, keys.detach(), values, valid_lens, mask)


@wrong()
class AddsToTheQueries(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        result = super().forward(queries, keys, values, valid_lens, mask)
        queries.detach().add_(result.detach())
        return result


@wrong()
class WrongInTrainModeOnly(Almost):
    def split(self, x):
        return SplitByView.split(self, x) if self.training else super().split(x)


@wrong()
class SwitchesToEval(Almost):
    def forward(self, *args, **kwargs):
        result = super().forward(*args, **kwargs)
        self.eval()
        return result


@wrong()
class TwoHeadsAlways(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, dropout, bias)
        self.h = 2 if embed_dim % 2 == 0 else 1
        self.d = embed_dim // self.h


@wrong()
class NeedsLengths(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        valid_lens = valid_lens.clamp(min=0)
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class HeadsReversedInTheMerge(Almost):
    def merge(self, x):
        return x.flip(1).transpose(1, 2).flatten(2)


@wrong("wrong_type")
class ReturnsWeightsToo(Almost):
    def forward(self, *args, **kwargs):
        result = super().forward(*args, **kwargs)
        return result, self.attention_weights


@wrong("dtype_changed")
class InFloat32(Almost):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs).float()


@wrong()
class ValuesAddedBack(Almost):
    def merge(self, x):
        return super().merge(x) + 0.1


class Stepwise(Base):
    """A right module in more steps than `Almost` has."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (self.split(x) for x in self.project(queries, keys, values))
        ok = self.permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach()
        heads = self.drop(weights) @ self.drop_values(v)
        return self.W_o(heads.transpose(1, 2).flatten(2))

    def project(self, queries, keys, values):
        return self.W_q(queries), self.W_k(keys), self.W_v(values)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def permitted(self, *given):
        return permitted(*given)

    def drop(self, weights):
        return self.dropout(weights)

    def drop_values(self, v):
        return v


@wrong("only_lengths_if_both")
class LengthsBeforeMask(Stepwise):
    def permitted(self, valid_lens, mask, *sizes):
        return permitted(valid_lens, mask if valid_lens is None else None, *sizes)


@wrong("dropped_key_has_weight")
class TrainsUnmasked(Stepwise):
    def permitted(self, valid_lens, mask, *sizes):
        given = (None, None) if self.training else (valid_lens, mask)
        return permitted(*given, *sizes)


@wrong("wrong_values")
class SplitsInTurn(Stepwise):
    def split(self, x):
        return x.unflatten(-1, (self.d, self.h)).permute(0, 3, 1, 2)


@wrong("dropout_missing")
class NeverDrops(Stepwise):
    def drop(self, weights):
        return weights


@wrong()
class DropsValues(NeverDrops):
    def drop_values(self, v):
        return self.dropout(v)


@wrong("dropout_on_scores")
class NormalisesAgain(Stepwise):
    def drop(self, weights):
        weights = self.dropout(weights)
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-9) if self.training else weights


@wrong()
class RemembersTheKeys(Stepwise):
    def project(self, queries, keys, values):
        if not hasattr(self, "seen") or self.seen.shape != keys.shape:
            self.seen = self.W_k(keys)
        return self.W_q(queries), self.seen, self.W_v(values)


@wrong()
class SelfAttentionWhereShapesAgree(Stepwise):
    def project(self, queries, keys, values):
        if queries.shape == keys.shape:
            keys = values = queries
        return self.W_q(queries), self.W_k(keys), self.W_v(values)


@wrong()
class LengthsOnlyIfAny(Stepwise):
    def permitted(self, valid_lens, mask, *sizes):
        has_lengths = valid_lens is not None and bool(valid_lens.any())
        return permitted(valid_lens if has_lengths else None, mask, *sizes)


@wrong("missing_parameter")
class LayersForEachHead(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        for name in ("W_q", "W_k", "W_v"):
            size = embed_dim // num_heads
            small = (nn.Linear(embed_dim, size, bias=bias) for _ in range(num_heads))
            setattr(self, name, nn.ModuleList(small))
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias)


@wrong("layers_in_a_list")
class ListsOfLists(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        size = embed_dim // num_heads
        self.heads = [
            [nn.Linear(embed_dim, size, bias=bias) for _ in "qkv"] for _ in range(num_heads)
        ]
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias)


@wrong("missing_parameter")
class Packed(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias)


@wrong("missing_parameter")
class OneLayerForTwo(Base):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, dropout, bias)
        self.W_k = self.W_q


@right
class OutputsAddedUp(Stepwise):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (self.split(x) for x in self.project(queries, keys, values))
        ok = self.permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach()
        heads = (self.dropout(weights) @ v).unbind(1)
        blocks = self.W_o.weight.chunk(self.h, dim=1)
        outputs = sum(F.linear(x, block) for x, block in zip(heads, blocks, strict=True))
        return outputs if self.W_o.bias is None else outputs + self.W_o.bias


@right
class PackedForSelfAttention(Stepwise):
    def project(self, queries, keys, values):
        if not queries is keys is values:
            return super().project(queries, keys, values)
        layers = self.W_q, self.W_k, self.W_v
        packed = torch.cat([layer.weight for layer in layers])
        biases = [layer.bias for layer in layers if layer.bias is not None]
        return F.linear(queries, packed, torch.cat(biases) if biases else None).chunk(3, dim=-1)


class _Scaled(Base):
    """A module whose scores are divided by `root()`."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.h, self.d)).transpose(1, 2)
            for layer, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / self.root(), ok)
        self.attention_weights = weights.detach()
        return self.W_o((self.dropout(weights) @ v).transpose(1, 2).flatten(2))

    def root(self):
        return math.sqrt(self.d)


@wrong("wrong_values")
class RootInTheWrongBrackets(_Scaled):
    def root(self):
        return self.d**1 / 2


@wrong("wrong_values")
class MultipliedByTheRoot(_Scaled):
    def root(self):
        return self.d**-0.5


@wrong("no_forward")
class CalledAsInKeras(Base):
    def call(self, queries, keys, values, valid_lens=None, mask=None):
        return _Scaled.forward(self, queries, keys, values, valid_lens, mask)


@wrong()
class NumberOfHeadsFirst(Almost):
    def __init__(self, num_heads, embed_dim, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, dropout, bias)


@wrong()
class BiasBeforeDropout(Almost):
    def __init__(self, embed_dim, num_heads, bias=False, dropout=0.0):
        super().__init__(embed_dim, num_heads, dropout, bias)


@wrong()
class MaskFirst(Almost):
    def forward(self, queries, keys, values, mask=None, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("global_rng_used")
class SeededInForward(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        torch.manual_seed(0)
        return super().forward(queries, keys, values, valid_lens, mask)


class InParts(Base):
    """Right; what follows changes one part."""

    def ok(self, valid_lens, mask, b, n, m):
        return permitted(valid_lens, mask, b, n, m)

    def softmax(self, s, ok):
        return safe_softmax(s, ok)

    def used(self, w):
        return self.dropout(w)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for layer, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        ok = self.ok(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        w = self.softmax(self.score(q, k), ok)
        self.attention_weights = w.detach()
        return self.W_o((self.used(w) @ v).transpose(1, 2).flatten(2))

    def score(self, q, k):
        return q @ k.mT / math.sqrt(self.d)


@right
class FilledWithTheLeastNumber(InParts):
    def softmax(self, s, ok):
        return s.masked_fill(~ok, torch.finfo(s.dtype).min).softmax(-1) * ok


@wrong("not_a_number")
class EmptyRowsOfItemsOnly(InParts):
    def softmax(self, s, ok):
        none = ~ok.flatten(1).any(1)[:, None, None, None]
        s = s.masked_fill(~ok, -math.inf).masked_fill(none, 0.0)
        return s.softmax(-1).masked_fill(none, 0.0)


@wrong()
class EmptyRowsOfLengthsOnly(InParts):
    def ok(self, valid_lens, mask, b, n, m):
        self.none = torch.zeros(b, 1, 1, 1, dtype=torch.bool)
        if valid_lens is not None:
            self.none = (valid_lens == 0).reshape(b, 1, -1, 1)
        return permitted(valid_lens, mask, b, n, m)

    def softmax(self, s, ok):
        s = s.masked_fill(~ok & ~self.none, -math.inf)
        return s.softmax(-1).masked_fill(self.none, 0.0)


@wrong("not_a_number")
class EmptyRowsOnlyInEval(InParts):
    def softmax(self, s, ok):
        if self.training:
            return s.masked_fill(~ok, -math.inf).softmax(-1)
        return safe_softmax(s, ok)


@wrong("attribute_values")
class WeightsStayNan(InParts):
    def softmax(self, s, ok):
        return s.masked_fill(~ok, -math.inf).softmax(-1)

    def used(self, w):
        return self.dropout(w.nan_to_num(0.0))


@wrong("input_mutated")
class MaskOfHeadsChanged(InParts):
    def ok(self, valid_lens, mask, b, n, m):
        if mask is not None and valid_lens is not None and mask.dim() == 4:
            mask &= torch.arange(m) < valid_lens.reshape(b, 1, -1, 1)
            return mask
        return permitted(valid_lens, mask, b, n, m)


@wrong("input_mutated")
class MaskOfItemsChanged(InParts):
    def ok(self, valid_lens, mask, b, n, m):
        if mask is not None and valid_lens is not None and mask.dim() == 3:
            mask &= torch.arange(m) < valid_lens.reshape(b, -1, 1)
            return mask[:, None]
        return permitted(valid_lens, mask, b, n, m)


@wrong("one_key_more")
class LengthsLessOrEqual(InParts):
    def ok(self, valid_lens, mask, b, n, m):
        return permitted(None if valid_lens is None else valid_lens + 1, mask, b, n, m)


@wrong("wrong_values")
class RootOfTheNumberOfKeys(InParts):
    def score(self, q, k):
        return q @ k.mT / math.sqrt(k.shape[2])


@wrong("wrong_values")
class KeysAndValuesExchanged(InParts):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return super().forward(queries, values, keys, valid_lens, mask)


@wrong("unscaled")
class PlainDotProducts(InParts):
    def score(self, q, k):
        return torch.einsum("bhnd,bhmd->bhnm", q, k)


@wrong("scale_embed_dim")
class RootOfAllFeatures(InParts):
    def score(self, q, k):
        return torch.matmul(q, k.transpose(-2, -1)).div((self.h * self.d) ** 0.5)


@wrong("nothing_masked")
class NothingMasked(InParts):
    def softmax(self, s, ok):
        return F.softmax(s, dim=-1)


@wrong("filled_with_zero")
class ScoresTimesTheMask(InParts):
    def softmax(self, s, ok):
        return torch.softmax(s * ok, dim=3)


@wrong("over_queries")
class SoftmaxDownTheColumns(InParts):
    def softmax(self, s, ok):
        return torch.where(ok, s, -math.inf).softmax(dim=2).nan_to_num(nan=0.0)


@wrong("values_through_W_k")
class CopiedLine(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False):
        super().__init__(embed_dim, num_heads, dropout, bias)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.split(self.W_q(queries))
        k = self.split(self.W_k(keys))
        v = self.split(self.W_k(values))
        ok = permitted(valid_lens, mask, len(q), queries.shape[1], keys.shape[1])
        weights = safe_softmax(torch.matmul(q, k.transpose(2, 3)) * self.d**-0.5, ok)
        self.attention_weights = weights.detach()
        return self.W_o(self.merge(self.dropout(weights) @ v))


@wrong("one_head")
class NeverSplit(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        ok = permitted(valid_lens, mask, len(q), q.shape[1], k.shape[1])[:, 0]
        weights = safe_softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[2]), ok)
        self.attention_weights = weights.detach()[:, None]
        return self.W_o(self.dropout(weights) @ v)


@wrong("masks_tiled")
class FoldedWithRepeat(FoldedHeads):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q = self.fold(self.W_q(queries))
        k, v = self.fold(self.W_k(keys)), self.fold(self.W_v(values))
        n, m = q.shape[1], k.shape[1]
        ok = torch.ones(len(q), n, m, dtype=torch.bool)
        if valid_lens is not None:
            lens = valid_lens if valid_lens.dim() == 2 else valid_lens[:, None].expand(-1, n)
            ok = ok & (torch.arange(m) < lens.repeat(self.h, 1)[..., None])
        if mask is not None and mask.dim() == 3:
            ok = ok & mask.repeat(self.h, 1, 1)
        elif mask is not None:
            ok = ok & (mask if mask.dim() == 2 else mask.reshape(-1, n, m))
        weights = safe_softmax(torch.bmm(q, k.mT) / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach().view(-1, self.h, n, m)
        out = torch.bmm(self.dropout(weights), v).view(-1, self.h, n, self.d)
        return self.W_o(out.transpose(1, 2).flatten(2))


@wrong("empty_row_uniform")
class FilledWithAMillion(InParts):
    def softmax(self, s, ok):
        return s.masked_fill(~ok, -1e6).softmax(-1)


@wrong("zero_after_softmax")
class MaskedAfterwards(InParts):
    def softmax(self, s, ok):
        return s.softmax(-1) * ok


@wrong("rows_do_not_sum_to_one")
class SoftmaxOverHeads(InParts):
    def softmax(self, s, ok):
        return s.masked_fill(~ok, -math.inf).softmax(1).nan_to_num(0.0)


@wrong("empty_row_uniform+inverted")
class EverythingInverted(InParts):
    def softmax(self, s, ok):
        return s.masked_fill(ok & ~ok.all(), -1e9).softmax(-1)


@wrong()
class LengthsOfTheFirstQuery(InParts):
    def ok(self, valid_lens, mask, b, n, m):
        lens = valid_lens if valid_lens is None or valid_lens.dim() == 1 else valid_lens[:, 0]
        return permitted(lens, mask, b, n, m)


@wrong()
class LargestOfAllScores(InParts):
    def softmax(self, s, ok):
        e = torch.exp(s - s.amax(-1, keepdim=True)) * ok
        return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


@wrong()
class ExponentialsOfForbiddenScores(InParts):
    def softmax(self, s, ok):
        top = s.masked_fill(~ok, -math.inf).amax(-1, keepdim=True).nan_to_num(neginf=0.0)
        e = torch.exp(s - top) * ok
        return e / (e.sum(-1, keepdim=True) + ~ok.any(-1, keepdim=True))


@wrong("attribute_missing")
class KeepsInEvalModeOnly(InParts):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        if self.training:
            del self.attention_weights
        return out


@wrong("attribute_values")
class KeepsOnTheClass(InParts):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        type(self).attention_weights = self.__dict__.pop("attention_weights")
        return out


@wrong()
class RemembersTheFirstMask(InParts):
    first = None

    def ok(self, valid_lens, mask, b, n, m):
        ok = permitted(valid_lens, mask, b, n, m)
        if self.first is None or self.first.shape != ok.shape:
            self.first = ok
        return self.first


@wrong("raised")
class RemembersTheNumberOfKeys(InParts):
    positions = None

    def ok(self, valid_lens, mask, b, n, m):
        self.positions = torch.arange(m) if self.positions is None else self.positions
        if valid_lens is None:
            return permitted(None, mask, b, n, m)
        real = self.positions < valid_lens.reshape(b, 1, -1, 1)
        return permitted(None, mask, b, n, m) & real


@wrong("stored_after_dropout")
class StoresDropped(InParts):
    def used(self, w):
        self.thinned = self.dropout(w)
        return self.thinned

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        self.attention_weights = self.thinned.detach()
        return out


@wrong("attribute_missing")
class KeepsNothing(InParts):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        del self.attention_weights
        return out


@faulty("merged by reshape", "not scaled", "mask ignored", "empty rows are NaN")
def with_masks(faults):
    class Module(InParts):
        def ok(self, valid_lens, mask, b, n, m):
            return permitted(valid_lens, None if "mask ignored" in faults else mask, b, n, m)

        def score(self, q, k):
            return q @ k.mT / (1 if "not scaled" in faults else math.sqrt(self.d))

        def softmax(self, s, ok):
            if "empty rows are NaN" in faults:
                return s.masked_fill(~ok, -math.inf).softmax(-1)
            return safe_softmax(s, ok)

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            q, k, v = (
                layer(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
                for layer, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
            )
            ok = self.ok(valid_lens, mask, len(q), q.shape[2], k.shape[2])
            weights = self.softmax(self.score(q, k), ok)
            self.attention_weights = weights.detach()
            heads = self.dropout(weights) @ v
            if "merged by reshape" not in faults:
                heads = heads.transpose(1, 2)
            return self.W_o(heads.reshape(len(q), q.shape[2], -1))

    return Module


@faulty("no W_o", "nothing dropped", "graph kept")
def with_layers(faults):
    class Module(InParts):
        def used(self, w):
            if "graph kept" in faults:
                self.kept = w
            return w if "nothing dropped" in faults else self.dropout(w)

        def forward(self, *args, **kwargs):
            if "no W_o" in faults:
                layer, self.W_o = self.W_o, nn.Identity()
            out = super().forward(*args, **kwargs)
            if "no W_o" in faults:
                self.W_o = layer
            if "graph kept" in faults:
                self.attention_weights = self.kept
            return out

    return Module


@wrong("wrong_values")
class NothingWithoutKeys(Base):
    """A query without keys gets zeros after W_o, also where W_o has a bias."""

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k = self.split(self.W_q(queries)), self.split(self.W_k(keys))
        v = self.split(self.W_v(values))
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach()
        mixed = (self.dropout(weights) @ v).transpose(1, 2).flatten(2)
        return self.W_o(mixed) * ok.any(-1).any(1)[..., None]
