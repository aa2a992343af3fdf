"""Answers to `MultiHeadAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


class Base(nn.Module):
    """What most answers share: four layers and the arguments' names."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.h, self.d = num_heads, embed_dim // num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
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


def filled(scores, ok, number=-math.inf):
    return scores.masked_fill(~ok, number)


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
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        for name in ("W_q", "W_k", "W_v", "W_o"):
            self.add_module(name, nn.Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype))
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
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.num_heads, self.p = num_heads, dropout
        self.W_q = nn.LazyLinear(embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_k = nn.LazyLinear(embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_v = nn.LazyLinear(embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_o = nn.LazyLinear(embed_dim, bias=bias, device=device, dtype=dtype)

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
    """A right module in steps; what follows changes one of them."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (self.split(x) for x in self.project(queries, keys, values))
        ok = self.ok(*self.given(valid_lens, mask), len(q), q.shape[2], k.shape[2])
        weights = self.softmax(self.score(q, k), ok)
        self.keep(weights)
        return self.last(self.merge(self.used(weights) @ v))

    def project(self, queries, keys, values):
        return self.W_q(queries), self.W_k(keys), self.W_v(values)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d)).transpose(1, 2)

    def given(self, valid_lens, mask):
        return valid_lens, mask

    def ok(self, valid_lens, mask, batch, n, m):
        return permitted(valid_lens, mask, batch, n, m)

    def score(self, q, k):
        return q @ k.mT / math.sqrt(self.d)

    def softmax(self, s, ok):
        return safe_softmax(s, ok)

    def keep(self, weights):
        self.attention_weights = self.kept(weights)

    def kept(self, weights):
        return weights.detach()

    def used(self, weights):
        return self.dropout(weights)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def last(self, x):
        return self.W_o(x)


@right
class OutputsAddedUp(Almost):
    def merge(self, x):
        return x.unbind(1)

    def last(self, heads):
        blocks = self.W_o.weight.chunk(self.h, dim=1)
        outputs = sum(F.linear(x, block) for x, block in zip(heads, blocks, strict=True))
        return outputs if self.W_o.bias is None else outputs + self.W_o.bias


@right
class PackedForSelfAttention(Almost):
    def project(self, queries, keys, values):
        if not queries is keys is values:
            return super().project(queries, keys, values)
        layers = self.W_q, self.W_k, self.W_v
        packed = torch.cat([layer.weight for layer in layers])
        biases = [layer.bias for layer in layers if layer.bias is not None]
        return F.linear(queries, packed, torch.cat(biases) if biases else None).chunk(3, dim=-1)


@right
class FilledWithTheLeastNumber(Almost):
    def softmax(self, s, ok):
        return s.masked_fill(~ok, torch.finfo(s.dtype).min).softmax(-1) * ok


# wrong: layers and arguments


@wrong("layers_in_a_list")
class HeadsInAList(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        d = embed_dim // num_heads
        self.W_q = [
            nn.Linear(embed_dim, d, bias=bias, device=device, dtype=dtype) for _ in range(num_heads)
        ]
        self.W_k = [
            nn.Linear(embed_dim, d, bias=bias, device=device, dtype=dtype) for _ in range(num_heads)
        ]
        self.W_v = [
            nn.Linear(embed_dim, d, bias=bias, device=device, dtype=dtype) for _ in range(num_heads)
        ]
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        outputs = []
        for W_q, W_k, W_v in zip(self.W_q, self.W_k, self.W_v):
            q, k, v = W_q(queries), W_k(keys), W_v(values)
            outputs.append((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v)
        return self.W_o(torch.cat(outputs, -1))


@wrong("parameters_renamed")
class OtherNames(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.query = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.key = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.value = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return self.out(self.value(values))


@wrong("missing_parameter")
class Packed(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__()
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)


@wrong("extra_parameters")
class DefaultBias(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, dropout, bias=True, device=device, dtype=dtype)


@wrong()
class TwoHeadsAlways(Almost):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__(
            embed_dim, 2 if embed_dim % 2 == 0 else 1, dropout, bias, device=device, dtype=dtype
        )


@wrong()
class NumberOfHeadsFirst(Almost):
    def __init__(self, num_heads, embed_dim, dropout=0.0, bias=False, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, dropout, bias, device=device, dtype=dtype)


@wrong()
class BiasBeforeDropout(Almost):
    def __init__(self, embed_dim, num_heads, bias=False, dropout=0.0, *, device=None, dtype=None):
        super().__init__(embed_dim, num_heads, dropout, bias, device=device, dtype=dtype)


@wrong()
class MaskFirst(Almost):
    def forward(self, queries, keys, values, mask=None, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("no_forward")
class CalledAsInKeras(Base):
    def call(self, queries, keys, values, valid_lens=None, mask=None):
        return Almost.forward(self, queries, keys, values, valid_lens, mask)


# wrong in one step


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


@wrong("one_head")
class NeverSplit(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        ok = permitted(valid_lens, mask, len(q), q.shape[1], k.shape[1])[:, 0]
        weights = safe_softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[2]), ok)
        self.attention_weights = weights.detach()[:, None]
        return self.W_o(self.dropout(weights) @ v)


@wrong()
class AddsToTheQueries(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        result = super().forward(queries, keys, values, valid_lens, mask)
        queries.detach().add_(result.detach())
        return result


@wrong()
class RemembersTheKeys(Almost):
    def project(self, queries, keys, values):
        if not hasattr(self, "seen") or self.seen.shape != keys.shape:
            self.seen = self.W_k(keys)
        return self.W_q(queries), self.seen, self.W_v(values)


@wrong("not_a_number")
class EmptyRowsOnlyInEval(Almost):
    def softmax(self, s, ok):
        if self.training:
            return s.masked_fill(~ok, -math.inf).softmax(-1)
        return safe_softmax(s, ok)


@wrong("input_mutated")
class MaskOfItemsChanged(Almost):
    def ok(self, valid_lens, mask, b, n, m):
        if mask is not None and valid_lens is not None and mask.dim() == 3:
            mask &= torch.arange(m) < valid_lens.reshape(b, -1, 1)
            return mask[:, None]
        return permitted(valid_lens, mask, b, n, m)


@wrong("stored_after_dropout")
class StoresDropped(Almost):
    def used(self, weights):
        dropped = self.dropout(weights)
        self.attention_weights = dropped.detach()
        return dropped


@wrong("dropout_on_scores")
class DropsScores(Almost):
    def softmax(self, s, ok):
        self.attention_weights = safe_softmax(s, ok).detach()
        return safe_softmax(self.dropout(s), ok)

    def keep(self, weights):
        pass

    def used(self, weights):
        return weights


def of_layers(project):
    """The step `project`, from the three layers and the three inputs."""
    return lambda self, q, k, v: project(self.W_q, self.W_k, self.W_v, q, k, v)


but = wrong_in(Almost)
SeedsSlip = but("values_from_keys", project=of_layers(lambda a, b, c, q, k, v: (a(q), b(k), c(k))))
OnlySelfAttention = but(
    "keys_and_values_from_queries", project=of_layers(lambda a, b, c, q, k, v: (a(q), b(q), c(q)))
)
KeysAndValuesExchanged = but(
    "outside_the_values", project=of_layers(lambda a, b, c, q, k, v: (a(q), b(v), c(k)))
)
CopiedLine = but(
    "values_through_W_k", project=of_layers(lambda a, b, c, q, k, v: (a(q), b(k), b(v)))
)
DetachedValues = but(project=of_layers(lambda a, b, c, q, k, v: (a(q), b(k), c(v).detach())))
SplitByView = but(
    "split_without_transpose", split=lambda self, x: x.contiguous().view(len(x), self.h, -1, self.d)
)
MergedByReshape = but(
    "merge_without_transpose", merge=lambda self, x: x.reshape(len(x), x.shape[2], -1)
)
NeverTransposed = but(
    "merge_without_transpose+split_without_transpose",
    split=SplitByView.split,
    merge=MergedByReshape.merge,
)
Interleaved = but(
    "interleaved_heads",
    split=lambda self, x: torch.stack([x[..., i :: self.h] for i in range(self.h)], 1),
    merge=lambda self, x: torch.stack(list(x.unbind(1)), -1).flatten(2),
)
SplitsInTurn = but(
    "outside_the_values",
    split=lambda self, x: x.unflatten(-1, (self.d, self.h)).permute(0, 3, 1, 2),
)
AveragedHeads = but("heads_averaged", merge=lambda self, x: torch.cat([x.mean(1)] * self.h, -1))
OutputLayerForgotten = but("no_W_o", last=lambda self, x: x)
ReturnsWeightsToo = but("wrong_type", last=lambda self, x: (self.W_o(x), self.attention_weights))
InFloat32 = but("dtype_changed", last=lambda self, x: self.W_o(x).float())
NoMask = but("bool_mask_ignored", given=lambda self, lens, m: (lens, None))
TorchsPolarity = but(
    "bool_mask_inverted", given=lambda self, lens, m: (lens, None if m is None else ~m)
)
NoHeadAxis = but(
    "item_mask_read_as_head_mask",
    given=lambda self, lens, m: (lens, m[None] if m is not None and m.dim() == 3 else m),
)
LengthsBeforeMask = but(
    "only_lengths_if_both", given=lambda self, lens, m: (lens, m if lens is None else None)
)
LengthsLessOrEqual = but(
    "one_key_more", given=lambda self, lens, m: (None if lens is None else lens + 1, m)
)
TrainsUnmasked = but(
    "dropped_key_has_weight",
    given=lambda self, lens, m: (None, None) if self.training else (lens, m),
)
NeedsLengths = but(given=lambda self, lens, m: (lens.clamp(min=0), m))
PlainDotProducts = but("unscaled", score=lambda self, q, k: torch.einsum("bhnd,bhmd->bhnm", q, k))
RootOfAllFeatures = but(
    "scale_embed_dim", score=lambda self, q, k: (q @ k.mT).div((self.h * self.d) ** 0.5)
)
NothingMasked = but("nothing_masked", softmax=lambda self, s, ok: F.softmax(s, dim=-1))
ScoresTimesTheMask = but("filled_with_zero", softmax=lambda self, s, ok: F.softmax(s * ok, dim=3))
EmptyRowsBreak = but("empty_row_nan", softmax=lambda self, s, ok: filled(s, ok).softmax(-1))
FilledWithAMillion = but(
    "empty_row_uniform", softmax=lambda self, s, ok: filled(s, ok, -1e6).softmax(-1)
)
MaskedAfterwards = but("zero_after_softmax", softmax=lambda self, s, ok: s.softmax(-1) * ok)
SoftmaxOverHeads = but(
    "rows_do_not_sum_to_one", softmax=lambda self, s, ok: filled(s, ok).softmax(1).nan_to_num(0.0)
)
SoftmaxDownTheColumns = but(
    "over_queries", softmax=lambda self, s, ok: filled(s, ok).softmax(dim=2).nan_to_num(nan=0.0)
)
KeepsTheGraph = but("attribute_attached", kept=lambda self, w: w)
StoresTheAverage = but("attribute_shape", kept=lambda self, w: w.detach().mean(dim=1))
KeepsNothing = but("attribute_missing", keep=lambda self, w: None)
NeverDrops = but("dropout_missing", used=lambda self, w: w)
AlwaysDropping = but("dropout_in_eval", used=lambda self, w: F.dropout(w, self.dropout.p))
DropsOutputs = but(
    "dropout_on_output", used=lambda self, w: w, last=lambda self, x: self.dropout(self.W_o(x))
)
DropsValues = but(
    project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), self.dropout(self.W_v(v))),
    used=lambda self, w: w,
)


@faulty("merged by reshape", "not scaled", "mask ignored", "empty rows are NaN")
def with_masks(faults):
    class Module(Almost):
        def given(self, valid_lens, mask):
            return valid_lens, None if "mask ignored" in faults else mask

        def score(self, q, k):
            return q @ k.mT / (1 if "not scaled" in faults else math.sqrt(self.d))

        def softmax(self, s, ok):
            return (
                filled(s, ok).softmax(-1) if "empty rows are NaN" in faults else safe_softmax(s, ok)
            )

        def merge(self, x):
            x = x if "merged by reshape" in faults else x.transpose(1, 2)
            return x.reshape(len(x), -1, self.h * self.d)

    return Module


@faulty("no W_o", "nothing dropped", "graph kept")
def with_layers(faults):
    class Module(Almost):
        def used(self, weights):
            return weights if "nothing dropped" in faults else self.dropout(weights)

        def kept(self, weights):
            return weights if "graph kept" in faults else weights.detach()

        def last(self, x):
            return x if "no W_o" in faults else self.W_o(x)

    return Module


@wrong("inputs_not_projected")
class StraightIntoTheHeads(Base):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k, v = (
            x.unflatten(-1, (self.h, self.d)).transpose(1, 2) for x in (queries, keys, values)
        )
        ok = permitted(valid_lens, mask, len(q), q.shape[2], k.shape[2])
        weights = safe_softmax(q @ k.mT / math.sqrt(self.d), ok)
        self.attention_weights = weights.detach()
        return self.W_o((self.dropout(weights) @ v).transpose(1, 2).flatten(2))


@wrong("attribute_values")
class WeightsKeptOnTheClass(LoopOverHeads):
    def forward(self, *inputs, **named):
        outputs = super().forward(*inputs, **named)
        type(self).attention_weights = vars(self).pop("attention_weights")
        return outputs


@wrong()
class HeadsCountedOnTheClass(LoopOverHeads):
    def __init__(self, *sizes, **named):
        super().__init__(*sizes, **named)
        type(self).num_heads = vars(self).pop("num_heads")
