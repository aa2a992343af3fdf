"""Answers to `AdditiveAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib import additive_scores, length_mask, masked_softmax
from course_lib.exercises.variants import faulty, right, wrong


class Layers(nn.Module):
    """What most answers share."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries, keys):
        q, k = self.W_q(queries).unsqueeze(2), self.W_k(keys).unsqueeze(1)
        return self.w_v(torch.tanh(q + k)).squeeze(-1)


# right


@right
class WithTheFunctions(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = additive_scores(
            queries, keys, self.W_q.weight, self.W_k.weight, self.w_v.weight.squeeze(0)
        )
        weights = masked_softmax(scores, valid_lens, mask=mask)
        self.attention_weights = weights.detach()
        return torch.bmm(self.dropout(weights), values)


@right
class WithLayers(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.clone().detach()
        return torch.einsum("bnm,bmv->bnv", self.dropout(weights), values)


@right
class Lazy(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_k = nn.LazyLinear(num_hiddens, bias=False)
        self.W_q = nn.LazyLinear(num_hiddens, bias=False)
        self.w_v = nn.LazyLinear(1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        weights = masked_softmax(self.w_v(features).squeeze(-1), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@right
class FunctionalDropout(Layers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens)
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.data
        return F.dropout(weights, self.p, self.training) @ values


@right
class DropoutByHand(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        with torch.no_grad():
            self.attention_weights = weights * 1.0
        p = self.dropout.p
        if self.training and p > 0:
            weights = weights * (torch.rand_like(weights) >= p) / (1 - p)
        return (weights.unsqueeze(-1) * values.unsqueeze(1)).sum(dim=2)


@right
class OneItemAtATime(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        dropped = self.dropout(weights)
        return torch.stack([dropped[b] @ values[b] for b in range(len(values))])


@right
class MasksItself(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        if valid_lens is not None:
            if valid_lens.dim() == 1:
                valid_lens = valid_lens[:, None].expand(-1, scores.shape[1])
            positions = torch.arange(scores.shape[2], device=scores.device)
            keep = keep & (positions < valid_lens[:, :, None])
        scores = torch.where(keep, scores, torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, dim=-1) * keep
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@right
class WeightsInABuffer(Layers):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.register_buffer("attention_weights", None, persistent=False)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


# wrong: parameters


@wrong("parameters_in_forward")
class LayersMadeWhenCalled(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.num_hiddens = num_hiddens
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        self.W_q = nn.Linear(queries.shape[-1], self.num_hiddens, bias=False).to(queries)
        self.W_k = nn.Linear(keys.shape[-1], self.num_hiddens, bias=False).to(queries)
        self.w_v = nn.Linear(self.num_hiddens, 1, bias=False).to(queries)
        weights = masked_softmax(Layers.scores(self, queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("plain_tensors")
class TensorsAsWeights(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.W_q = torch.randn(num_hiddens, query_size) * 0.1
        self.W_k = torch.randn(num_hiddens, key_size) * 0.1
        self.w_v = torch.randn(num_hiddens) * 0.1
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = additive_scores(queries, keys, self.W_q, self.W_k, self.w_v)
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("layers_in_a_list")
class ListOfLayers(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.projections = [
            nn.Linear(query_size, num_hiddens, bias=False),
            nn.Linear(key_size, num_hiddens, bias=False),
        ]
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k = self.projections[0](queries), self.projections[1](keys)
        scores = self.w_v(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1)
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("parameters_renamed")
class OtherNames(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__()
        self.query_projection = nn.Linear(query_size, num_hiddens, bias=False)
        self.key_projection = nn.Linear(key_size, num_hiddens, bias=False)
        self.score = nn.Linear(num_hiddens, 1, bias=False)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k = self.query_projection(queries), self.key_projection(keys)
        scores = self.score(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1)
        return masked_softmax(scores, valid_lens, mask) @ values


@wrong("extra_parameters")
class DefaultBias(Layers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)
        self.w_v = nn.Linear(num_hiddens, 1)
        self.W_k = nn.Linear(key_size, num_hiddens)
        self.W_q = nn.Linear(query_size, num_hiddens)

    forward = WithLayers.forward


@wrong("parameter_shape")
class SizesInTheWrongOrder(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(key_size, query_size, num_hiddens, dropout)


@wrong()
class NoModule:
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return values


@wrong()
class NoSuperInit(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False)


@right
class WeightsBehindAProperty(Layers):
    @property
    def attention_weights(self):
        return self._weights.detach()

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        self._weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        return self.dropout(self._weights) @ values


@right
class LayersFromATable(nn.Module):
    def __init__(self, query_size: int, key_size: int, num_hiddens: int, dropout: float = 0.0):
        super().__init__()
        sizes = {
            "w_v": (num_hiddens, 1),
            "W_k": (key_size, num_hiddens),
            "W_q": (query_size, num_hiddens),
        }
        for name, (read, written) in sizes.items():
            self.register_module(name, nn.Linear(read, written, bias=False))
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    @torch.no_grad()
    def remember(self, weights):
        self.attention_weights = weights + 0

    def forward(self, queries, keys, values, valid_lens=None, mask=None, **unused):
        features = self.W_q(queries)[:, :, None].add(self.W_k(keys)[:, None]).tanh()
        weights = masked_softmax(features @ self.w_v.weight[0], valid_lens, mask)
        self.remember(weights)
        return torch.stack([w @ v for w, v in zip(self.dropout(weights), values, strict=True)])


@right
class FilledAndWiped(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        dropped = torch.zeros_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            kept = length_mask(valid_lens, keys.shape[1])
            dropped = dropped | ~(kept if kept.dim() == 3 else kept.unsqueeze(1))
        if mask is not None:
            dropped = dropped | ~mask
        weights = scores.masked_fill(dropped, -math.inf).softmax(-1).nan_to_num(0.0)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@right
class BiasTakenAway(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)
        self.W_q = nn.Linear(query_size, num_hiddens)
        self.W_q.register_parameter("bias", None)


@right
class DividedByLogsumexp(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        kept = torch.ones_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            kept = length_mask(valid_lens, keys.shape[1]).reshape(len(keys), -1, keys.shape[1])
        kept = kept if mask is None else kept.logical_and(mask)
        scores = scores.masked_fill(~kept, torch.finfo(scores.dtype).min)
        weights = torch.where(kept, (scores - scores.logsumexp(-1, keepdim=True)).exp(), 0)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@right
class EachItemWithItsMask(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        rows = []
        for b in range(len(queries)):
            lens = None if valid_lens is None else valid_lens[b : b + 1]
            own = mask[b] if mask is not None and mask.dim() == 3 else mask
            rows.append(masked_softmax(self.scores(queries[b, None], keys[b, None]), lens, own))
        weights = torch.cat(rows)
        self.attention_weights = weights.detach()
        return torch.baddbmm(values.new_zeros(1, 1, 1), self.dropout(weights), values, beta=0)


# wrong in one step


class Almost(Layers):
    """A right module in steps; what follows changes one of them."""

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        weights = self.weigh(scores, valid_lens, mask)
        self.keep(weights)
        return self.outputs(weights, keys, values)

    def scores(self, queries, keys):
        return self.score(self.W_q(queries).unsqueeze(2), self.W_k(keys).unsqueeze(1))

    def score(self, q, k):
        return self.w_v(torch.tanh(q + k)).squeeze(-1)

    def weigh(self, scores, valid_lens, mask):
        return masked_softmax(scores, valid_lens, mask)

    def keep(self, weights):
        self.attention_weights = weights.detach()

    def outputs(self, weights, keys, values):
        return self.dropout(weights) @ values


def but(**steps):
    return type("AdditiveAttention", (Almost,), steps)


def _allowed(scores, lens, mask):
    return masked_softmax(torch.zeros_like(scores), lens, mask) > 0


@wrong("lengths_required")
class Textbook(Layers):
    def forward(self, queries, keys, values, valid_lens):
        weights = masked_softmax(self.scores(queries, keys), valid_lens)
        self.attention_weights = weights.detach()
        return torch.bmm(self.dropout(weights), values)


@wrong("inverted")
class TrueMeansIgnore(Almost):
    def weigh(self, scores, valid_lens, mask):
        if valid_lens is None and mask is None:
            return scores.softmax(-1)
        kept = _allowed(scores, valid_lens, mask)
        return scores.masked_fill(kept, -math.inf).softmax(-1).nan_to_num(0.0)


@wrong("over_queries")
class SoftmaxOverQueries(Almost):
    def weigh(self, scores, valid_lens, mask):
        kept = _allowed(scores, valid_lens, mask)
        return scores.masked_fill(~kept, -math.inf).softmax(dim=1).nan_to_num(0.0)


@wrong("dropout_on_scores")
class DropsScores(Almost):
    def score(self, q, k):
        return self.dropout(super().score(q, k))

    def outputs(self, weights, keys, values):
        return weights @ values


@wrong("dropout_not_rescaled")
class NotRescaled(Almost):
    def outputs(self, weights, keys, values):
        kept = torch.rand_like(weights) >= self.dropout.p if self.training else True
        return (weights * kept) @ values


@wrong("global_rng_used")
class DrawsInEval(Almost):
    def outputs(self, weights, keys, values):
        kept = (torch.rand_like(weights) >= self.dropout.p) / (1 - self.dropout.p)
        return (weights * kept if self.training else weights) @ values


@wrong("attribute_values")
class KeepsDropped(Almost):
    def outputs(self, weights, keys, values):
        weights = self.dropout(weights)
        self.attention_weights = weights.detach()
        return weights @ values


@wrong("attribute_attached")
class KeepsGraph(Almost):
    def keep(self, weights):
        self.attention_weights = weights


@wrong("attribute_shape")
class KeepsTheFirstItem(Almost):
    def keep(self, weights):
        self.attention_weights = weights[0].detach()


@wrong("training_flag_changed")
class SwitchesToEval(Almost):
    def outputs(self, weights, keys, values):
        dropped = self.dropout(weights)
        self.eval()
        return dropped @ values


@wrong("input_mutated")
class MutatesValues(Almost):
    def outputs(self, weights, keys, values):
        outputs = self.dropout(weights) @ values
        values.detach().mul_(2)
        return outputs


@wrong()
class KeptOnce(Almost):
    attention_weights = None

    def keep(self, weights):
        if self.attention_weights is None:
            self.attention_weights = weights.detach()


@wrong()
class TruthOfLengths(Almost):
    def weigh(self, scores, valid_lens, mask):
        return masked_softmax(scores, valid_lens if valid_lens else None, mask)


@wrong("weight_in_an_empty_row")
class NoLengthIfAllZero(Almost):
    def weigh(self, scores, valid_lens, mask):
        lens = valid_lens if valid_lens is not None and valid_lens.any() else None
        return masked_softmax(scores, lens, mask)


@wrong()
class OneLengthAnItem(Almost):
    def weigh(self, scores, valid_lens, mask):
        has_more = valid_lens is not None and valid_lens.dim() == 2
        return masked_softmax(scores, valid_lens[:, 0] if has_more else valid_lens, mask)


@wrong()
class OneKeyTooMany(Almost):
    def weigh(self, scores, valid_lens, mask):
        lens = None if valid_lens is None else (valid_lens + 1).clamp(max=scores.shape[2])
        return masked_softmax(scores, lens, mask)


@wrong()
class RefusesInt32(Almost):
    def weigh(self, scores, valid_lens, mask):
        assert valid_lens is None or valid_lens.dtype == torch.int64
        return masked_softmax(scores, valid_lens, mask)


@wrong()
class RefusesMasksOfKeys(Almost):
    def weigh(self, scores, valid_lens, mask):
        assert mask is None or mask.dim() > 1
        return masked_softmax(scores, valid_lens, mask)


@wrong()
class RemembersTheFirstMask(Almost):
    first = None

    def weigh(self, scores, valid_lens, mask):
        if mask is not None and self.first is None:
            self.first = mask
        return masked_softmax(scores, valid_lens, self.first)


# wrong: arguments


@wrong()
class LengthsOnly(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


@wrong()
class MaskFirst(WithLayers):
    def forward(self, queries, keys, values, mask=None, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class KeysFirst(WithLayers):
    def __init__(self, key_size, query_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)


@wrong()
class DropsByDefault(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.1):
        super().__init__(query_size, key_size, num_hiddens, dropout)


@wrong()
class Frozen(WithLayers):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.w_v.requires_grad_(False)


@wrong("missing_parameter")
class SharedLayer(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)
        if query_size == key_size:
            self.W_k = self.W_q


@wrong("no_forward")
class CalledAsInKeras(Layers):
    def call(self, queries, keys, values, valid_lens=None, mask=None):
        return WithLayers.forward(self, queries, keys, values, valid_lens, mask)


LinearScores = wrong("no_tanh")(but(score=lambda self, q, k: self.w_v(q + k).squeeze(-1)))
BareSqueeze = wrong("squeezed")(but(score=lambda self, q, k: self.w_v(torch.tanh(q + k)).squeeze()))
TanhOfEach = wrong("tanh_apart")(
    but(score=lambda self, q, k: self.w_v(q.tanh() + k.tanh())[..., 0])
)
KeysScoredAlone = wrong("query_forgotten")(
    but(score=lambda self, q, k: self.w_v(torch.tanh(torch.zeros_like(q) + k))[..., 0])
)
FeaturesAddedUp = wrong("no_w_v")(but(score=lambda self, q, k: torch.tanh(q + k).sum(dim=3)))
FeaturesMultiplied = wrong("product")(
    but(score=lambda self, q, k: self.w_v(torch.tanh(q * k)).squeeze(3))
)
RectifiedFeatures = wrong("relu")(but(score=lambda self, q, k: self.w_v(F.relu(q + k)).squeeze(-1)))
DividedByTheRoot = wrong("scaled")(
    but(score=lambda self, q, k: self.w_v(torch.tanh(q + k)).squeeze(-1) / q.shape[-1] ** 0.5)
)
ScaledProduct = wrong("scaled_dot_product")(
    but(score=lambda self, q, k: (q * k).sum(-1) / math.sqrt(q.shape[-1]))
)
CrossedOver = wrong("layers_swapped")(
    but(scores=lambda self, q, k: self.score(self.W_k(q)[:, :, None], self.W_q(k)[:, None]))
)
MaskForgotten = wrong("mask_not_passed_on")(
    but(weigh=lambda self, s, lens, m: masked_softmax(s, lens))
)
LengthsForgotten = wrong("lengths_not_passed_on")(
    but(weigh=lambda self, s, lens, m: masked_softmax(s, mask=m))
)
PlainSoftmax = wrong("nothing_passed_on")(but(weigh=lambda self, s, lens, m: s.softmax(dim=-1)))
EitherOr = wrong("only_lengths_if_both")(
    but(weigh=lambda self, s, lens, m: masked_softmax(s, lens, m if lens is None else None))
)
MaskReplacesLengths = wrong("weight_on_a_forbidden_key")(
    but(weigh=lambda self, s, lens, m: masked_softmax(s, lens if m is None else None, m))
)
MaskAsNumbers = wrong("weight_on_a_forbidden_key")(
    but(weigh=lambda self, s, lens, m: masked_softmax(s if m is None else s + m.double(), lens))
)
TorchModuleMask = wrong("mask_inverted")(
    but(weigh=lambda self, s, lens, m: masked_softmax(s, lens, None if m is None else ~m))
)
FilledWithAMillion = wrong("filled_with_1e6")(
    but(weigh=lambda self, s, *given: s.masked_fill(~_allowed(s, *given), -1e6).softmax(-1))
)
VeryNegativeAdded = wrong("weight_in_an_empty_row")(
    but(weigh=lambda self, s, *given: (s + ~_allowed(s, *given) * -1e9).softmax(-1))
)
WipedAfterwards = wrong("rows_do_not_sum_to_one")(
    but(weigh=lambda self, s, *given: s.softmax(-1) * _allowed(s, *given))
)
LeastDenominator = wrong()(
    but(weigh=lambda self, s, *given: F.normalize(s.exp() * _allowed(s, *given), p=1, dim=-1))
)
OneKeyTooFew = wrong()(
    but(
        weigh=lambda self, s, lens, m: masked_softmax(
            s, lens if lens is None else (lens - 1).clamp(0), m
        )
    )
)
AveragesKeys = wrong("values_are_keys")(but(outputs=lambda self, w, k, v: self.dropout(w) @ k))
OverwritesKeys = wrong("projected_keys_averaged")(
    but(outputs=lambda self, w, k, v: self.dropout(w) @ self.W_k(k))
)
DropoutMadeInForward = wrong("dropout_in_eval")(
    but(outputs=lambda self, w, k, v: nn.Dropout(self.dropout.p)(w) @ v)
)
DropsOutputs = wrong("dropout_on_output")(
    but(outputs=lambda self, w, k, v: F.dropout(w @ v, self.dropout.p, self.training))
)
DropsValues = wrong()(but(outputs=lambda self, w, k, v: w @ self.dropout(v)))
NeverDropping = wrong("dropout_missing")(but(outputs=lambda self, w, k, v: w @ v))
DropsWholeKeys = wrong("dropout_shared")(
    but(outputs=lambda self, w, k, v: w @ (v * self.dropout(torch.ones_like(v[..., :1]))))
)
UsesTheDetached = wrong("gradient_cut")(
    but(outputs=lambda self, w, k, v: self.dropout(self.attention_weights) @ v)
)
ReturnsATuple = wrong("wrong_type")(but(outputs=lambda self, w, k, v: (self.dropout(w) @ v, w)))
Float32Output = wrong("dtype_changed")(
    but(outputs=lambda self, w, k, v: (self.dropout(w) @ v).float())
)
KeepsNothing = wrong("attribute_missing")(but(keep=lambda self, weights: None))


@faulty("no tanh", "mask ignored", "empty rows are NaN", "graph kept")
def with_faults(faults):
    class Module(Layers):
        def scores(self, queries, keys):
            features = self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1)
            return self.w_v(features if "no tanh" in faults else features.tanh()).squeeze(-1)

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            mask = None if "mask ignored" in faults else mask
            weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
            if "empty rows are NaN" in faults:
                weights = weights / weights.sum(-1, keepdim=True)
            self.attention_weights = weights if "graph kept" in faults else weights.detach()
            return self.dropout(weights) @ values

    return Module


@faulty("no tanh", "lengths ignored", "nothing dropped")
def with_other_faults(faults):
    class Module(Layers):
        def scores(self, queries, keys):
            features = self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1)
            return self.w_v(features if "no tanh" in faults else features.tanh()).squeeze(-1)

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            lens = None if "lengths ignored" in faults else valid_lens
            weights = masked_softmax(self.scores(queries, keys), lens, mask)
            self.attention_weights = weights.detach()
            weights = weights if "nothing dropped" in faults else self.dropout(weights)
            return weights @ values

    return Module
