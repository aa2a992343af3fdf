"""Answers to `AdditiveAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib import additive_scores, length_mask, masked_softmax
from course_lib.exercises.variants import faulty, right, wrong, wrong_in


class Almost(nn.Module):
    """A right module in steps; others change one of them."""

    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__()
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.weigh(self.scores(queries, keys), valid_lens, mask)
        self.keep(weights)
        return self.outputs(weights, keys, values)

    def scores(self, queries, keys):
        return self.score(self.W_q(queries).unsqueeze(2), self.W_k(keys).unsqueeze(1))

    def score(self, q, k):
        return self.w_v(torch.tanh(q + k)).squeeze(-1)

    def weigh(self, scores, valid_lens, mask):
        return masked_softmax(scores, valid_lens, mask)

    def keep(self, weights):
        self.attention_weights = self.kept(weights)

    def kept(self, weights):
        return weights.detach()

    def outputs(self, weights, keys, values):
        return self.dropout(weights) @ values


def allowed(scores, valid_lens, mask):
    return masked_softmax(torch.zeros_like(scores), valid_lens, mask) > 0


@right
class WithTheFunctions(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = additive_scores(
            queries, keys, self.W_q.weight, self.W_k.weight, self.w_v.weight.squeeze(0)
        )
        weights = masked_softmax(scores, valid_lens, mask=mask)
        self.attention_weights = weights.detach()
        return torch.bmm(self.dropout(weights), values)


@right
class WithLayers(Almost):
    def kept(self, weights):
        return weights.clone().detach()

    def outputs(self, weights, keys, values):
        return torch.einsum("bnm,bmv->bnv", self.dropout(weights), values)


@right
class Lazy(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        nn.Module.__init__(self)
        self.W_k = nn.LazyLinear(num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_q = nn.LazyLinear(num_hiddens, bias=False, device=device, dtype=dtype)
        self.w_v = nn.LazyLinear(1, bias=False, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)


@right
class FunctionalDropout(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, device=device, dtype=dtype)
        self.p = dropout

    def kept(self, weights):
        return weights.data

    def outputs(self, weights, keys, values):
        return F.dropout(weights, self.p, self.training) @ values


@right
class DropoutByHand(Almost):
    @torch.no_grad()
    def kept(self, weights):
        return weights * 1.0

    def outputs(self, weights, keys, values):
        p = self.dropout.p
        if self.training and p > 0:
            weights = weights * (torch.rand_like(weights) >= p) / (1 - p)
        return (weights.unsqueeze(-1) * values.unsqueeze(1)).sum(dim=2)


@right
class OneItemAtATime(Almost):
    def outputs(self, weights, keys, values):
        dropped = self.dropout(weights)
        return torch.stack([dropped[b] @ values[b] for b in range(len(values))])


@right
class MasksItself(Almost):
    def weigh(self, scores, valid_lens, mask):
        keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        if valid_lens is not None:
            if valid_lens.dim() == 1:
                valid_lens = valid_lens[:, None].expand(-1, scores.shape[1])
            positions = torch.arange(scores.shape[2], device=scores.device)
            keep = keep & (positions < valid_lens[:, :, None])
        scores = torch.where(keep, scores, torch.finfo(scores.dtype).min)
        return F.softmax(scores, dim=-1) * keep


@right
class WeightsInABuffer(Almost):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.register_buffer("attention_weights", None, persistent=False)


@right
class WeightsBehindAProperty(Almost):
    @property
    def attention_weights(self):
        return self._weights.detach()

    def keep(self, weights):
        self._weights = weights


@right
class LayersFromATable(nn.Module):
    def __init__(
        self,
        query_size: int,
        key_size: int,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        device=None,
        dtype=None,
    ):
        super().__init__()
        sizes = {
            "w_v": (num_hiddens, 1),
            "W_k": (key_size, num_hiddens),
            "W_q": (query_size, num_hiddens),
        }
        for name, (read, written) in sizes.items():
            self.register_module(
                name, nn.Linear(read, written, bias=False, device=device, dtype=dtype)
            )
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
class FilledAndWiped(Almost):
    def weigh(self, scores, valid_lens, mask):
        dropped = torch.zeros_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            kept = length_mask(valid_lens, scores.shape[2])
            dropped = dropped | ~(kept if kept.dim() == 3 else kept.unsqueeze(1))
        if mask is not None:
            dropped = dropped | ~mask
        return scores.masked_fill(dropped, -math.inf).softmax(-1).nan_to_num(0.0)


@right
class BiasTakenAway(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)
        self.W_q = nn.Linear(query_size, num_hiddens, device=device, dtype=dtype)
        self.W_q.register_parameter("bias", None)


@right
class DividedByLogsumexp(Almost):
    def weigh(self, scores, valid_lens, mask):
        kept = torch.ones_like(scores, dtype=torch.bool)
        if valid_lens is not None:
            m = scores.shape[2]
            kept = length_mask(valid_lens, m).reshape(len(scores), -1, m)
        kept = kept if mask is None else kept.logical_and(mask)
        scores = scores.masked_fill(~kept, torch.finfo(scores.dtype).min)
        return torch.where(kept, (scores - scores.logsumexp(-1, keepdim=True)).exp(), 0)


@right
class EachItemWithItsMask(Almost):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        rows = []
        for b in range(len(queries)):
            lens = None if valid_lens is None else valid_lens[b : b + 1]
            own = mask[b] if mask is not None and mask.dim() == 3 else mask
            rows.append(masked_softmax(self.scores(queries[b, None], keys[b, None]), lens, own))
        weights = torch.cat(rows)
        self.attention_weights = weights.detach()
        return torch.baddbmm(values.new_zeros(1, 1, 1), self.dropout(weights), values, beta=0)


# wrong: layers


@wrong("parameters_in_forward")
class LayersMadeWhenCalled(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        nn.Module.__init__(self)
        self.num_hiddens = num_hiddens
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries, keys):
        self.W_q = nn.Linear(queries.shape[-1], self.num_hiddens, bias=False).to(queries)
        self.W_k = nn.Linear(keys.shape[-1], self.num_hiddens, bias=False).to(queries)
        self.w_v = nn.Linear(self.num_hiddens, 1, bias=False).to(queries)
        return super().scores(queries, keys)


@wrong("plain_tensors")
class TensorsAsWeights(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        nn.Module.__init__(self)
        self.W_q = torch.randn(num_hiddens, query_size, device=device, dtype=dtype) * 0.1
        self.W_k = torch.randn(num_hiddens, key_size, device=device, dtype=dtype) * 0.1
        self.w_v = torch.randn(num_hiddens, device=device, dtype=dtype) * 0.1
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries, keys):
        return additive_scores(queries, keys, self.W_q, self.W_k, self.w_v)


@wrong("layers_in_a_list")
class ListOfLayers(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        nn.Module.__init__(self)
        self.projections = [
            nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype),
            nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype),
        ]
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def scores(self, queries, keys):
        q, k = self.projections[0](queries), self.projections[1](keys)
        return self.score(q.unsqueeze(2), k.unsqueeze(1))


@wrong("parameters_renamed")
class OtherNames(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__()
        self.query_projection = nn.Linear(
            query_size, num_hiddens, bias=False, device=device, dtype=dtype
        )
        self.key_projection = nn.Linear(
            key_size, num_hiddens, bias=False, device=device, dtype=dtype
        )
        self.score = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k = self.query_projection(queries), self.key_projection(keys)
        scores = self.score(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1)
        return masked_softmax(scores, valid_lens, mask) @ values


@wrong("extra_parameters")
class DefaultBias(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, device=device, dtype=dtype)
        self.W_q = nn.Linear(query_size, num_hiddens, device=device, dtype=dtype)


@wrong("missing_parameter")
class SharedLayer(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)
        if query_size == key_size:
            self.W_k = self.W_q


@wrong("parameter_shape")
class SizesInTheWrongOrder(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(key_size, query_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong()
class Frozen(WithLayers):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.w_v.requires_grad_(False)


@wrong()
class NoModule:
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return values


@wrong()
class NoSuperInit(nn.Module):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)


# wrong: arguments


@wrong("lengths_required")
class Textbook(Almost):
    def forward(self, queries, keys, values, valid_lens):
        return super().forward(queries, keys, values, valid_lens)


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
    def __init__(self, key_size, query_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong()
class DropsByDefault(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.1, *, device=None, dtype=None):
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong("no_forward")
class CalledAsInKeras(Almost):
    call, forward = Almost.forward, nn.Module.forward


# wrong in one step


@wrong("inverted")
class TrueMeansIgnore(Almost):
    def weigh(self, scores, valid_lens, mask):
        if valid_lens is None and mask is None:
            return scores.softmax(-1)
        kept = allowed(scores, valid_lens, mask)
        return scores.masked_fill(kept, -math.inf).softmax(-1).nan_to_num(0.0)


@wrong("empty_row_has_weight")
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


@wrong("stored_after_dropout")
class KeepsDropped(Almost):
    def outputs(self, weights, keys, values):
        weights = self.dropout(weights)
        self.attention_weights = weights.detach()
        return weights @ values


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


def filled(scores, given, number=-math.inf):
    return scores.masked_fill(~allowed(scores, *given), number)


but = wrong_in(Almost)
LinearScores = but("no_tanh", score=lambda self, q, k: self.w_v(q + k).squeeze(-1))
BareSqueeze = but("squeezed", score=lambda self, q, k: self.w_v(torch.tanh(q + k)).squeeze())
TanhOfEach = but("tanh_apart", score=lambda self, q, k: self.w_v(q.tanh() + k.tanh())[..., 0])
KeysScoredAlone = but(
    "query_forgotten", score=lambda self, q, k: Almost.score(self, torch.zeros_like(q), k)
)
FeaturesAddedUp = but("no_w_v", score=lambda self, q, k: torch.tanh(q + k).sum(dim=3))
FeaturesMultiplied = but("product", score=lambda self, q, k: self.w_v(torch.tanh(q * k)).squeeze(3))
RectifiedFeatures = but("relu", score=lambda self, q, k: self.w_v(F.relu(q + k)).squeeze(-1))
DividedByTheRoot = but(
    "scaled", score=lambda self, q, k: Almost.score(self, q, k) / q.shape[-1] ** 0.5
)
ScaledProduct = but(
    "scaled_dot_product", score=lambda self, q, k: (q * k).sum(-1) / math.sqrt(q.shape[-1])
)
CrossedOver = but(
    "layers_swapped",
    scores=lambda self, q, k: self.score(self.W_k(q)[:, :, None], self.W_q(k)[:, None]),
)
MaskForgotten = but("bool_mask_ignored", weigh=lambda self, s, lens, m: masked_softmax(s, lens))
LengthsForgotten = but("lengths_ignored", weigh=lambda self, s, lens, m: masked_softmax(s, mask=m))
PlainSoftmax = but("nothing_masked", weigh=lambda self, s, lens, m: s.softmax(dim=-1))
EitherOr = but(
    "only_lengths_if_both",
    weigh=lambda self, s, lens, m: masked_softmax(s, lens, m if lens is None else None),
)
MaskReplacesLengths = but(
    "dropped_key_has_weight",
    weigh=lambda self, s, lens, m: masked_softmax(s, lens if m is None else None, m),
)
MaskAsNumbers = but(
    "zero_one_mask_added",
    weigh=lambda self, s, lens, m: masked_softmax(s if m is None else s + m.double(), lens),
)
TorchModuleMask = but(
    "bool_mask_inverted",
    weigh=lambda self, s, lens, m: masked_softmax(s, lens, None if m is None else ~m),
)
SoftmaxOverQueries = but(
    "over_queries", weigh=lambda self, s, *given: filled(s, given).softmax(dim=1).nan_to_num(0.0)
)
FilledWithAMillion = but(
    "empty_row_uniform", weigh=lambda self, s, *given: filled(s, given, -1e6).softmax(-1)
)
VeryNegativeAdded = but(
    "empty_row_has_weight",
    weigh=lambda self, s, *given: (s + ~allowed(s, *given) * -1e9).softmax(-1),
)
WipedAfterwards = but(
    "zero_after_softmax", weigh=lambda self, s, *given: s.softmax(-1) * allowed(s, *given)
)
LeastDenominator = but(
    weigh=lambda self, s, *given: F.normalize(s.exp() * allowed(s, *given), p=1, dim=-1)
)
TruthOfLengths = but(weigh=lambda self, s, lens, m: masked_softmax(s, lens if lens else None, m))
OneKeyTooMany = but(
    weigh=lambda self, s, lens, m: masked_softmax(
        s, None if lens is None else (lens + 1).clamp(max=s.shape[2]), m
    )
)
OneKeyTooFew = but(
    weigh=lambda self, s, lens, m: masked_softmax(
        s, lens if lens is None else (lens - 1).clamp(0), m
    )
)
AveragesKeys = but("values_are_keys", outputs=lambda self, w, k, v: self.dropout(w) @ k)
OverwritesKeys = but(
    "projected_keys_averaged", outputs=lambda self, w, k, v: self.dropout(w) @ self.W_k(k)
)
DropoutMadeInForward = but(
    "dropout_in_eval", outputs=lambda self, w, k, v: nn.Dropout(self.dropout.p)(w) @ v
)
DropsOutputs = but(
    "dropout_on_output",
    outputs=lambda self, w, k, v: F.dropout(w @ v, self.dropout.p, self.training),
)
DropsScores = but(
    "dropout_on_scores",
    score=lambda self, q, k: self.dropout(Almost.score(self, q, k)),
    outputs=lambda self, w, k, v: w @ v,
)
DropsValues = but(outputs=lambda self, w, k, v: w @ self.dropout(v))
NeverDropping = but("dropout_missing", outputs=lambda self, w, k, v: w @ v)
DropsWholeKeys = but(
    "dropout_shared",
    outputs=lambda self, w, k, v: w @ (v * self.dropout(torch.ones_like(v[..., :1]))),
)
UsesTheDetached = but(
    "gradient_cut", outputs=lambda self, w, k, v: self.dropout(self.attention_weights) @ v
)
ReturnsATuple = but("wrong_type", outputs=lambda self, w, k, v: (self.dropout(w) @ v, w))
Float32Output = but("dtype_changed", outputs=lambda self, w, k, v: (self.dropout(w) @ v).float())
KeepsNothing = but("attribute_missing", keep=lambda self, weights: None)
KeepsGraph = but("attribute_attached", kept=lambda self, weights: weights)
KeepsTheFirstItem = but("attribute_shape", kept=lambda self, weights: weights[0].detach())


class Faulty(Almost):
    faults = ()

    def score(self, q, k):
        return self.w_v(q + k if "no tanh" in self.faults else (q + k).tanh()).squeeze(-1)

    def weigh(self, scores, valid_lens, mask):
        lens = None if "lengths ignored" in self.faults else valid_lens
        weights = masked_softmax(scores, lens, None if "mask ignored" in self.faults else mask)
        if "empty rows are NaN" in self.faults:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights

    def kept(self, weights):
        return weights if "graph kept" in self.faults else weights.detach()

    def outputs(self, weights, keys, values):
        return (weights if "nothing dropped" in self.faults else self.dropout(weights)) @ values


@faulty("no tanh", "mask ignored", "empty rows are NaN", "graph kept")
def with_faults(faults):
    return type("Module", (Faulty,), {"faults": faults})


@faulty("no tanh", "lengths ignored", "nothing dropped")
def with_other_faults(faults):
    return type("Module", (Faulty,), {"faults": faults})


@wrong("not_as_requested")
class DoubleByDefault(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        dtype = torch.float64 if dtype is None else dtype
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong("not_as_requested")
class DoubleOrNothing(Almost):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None):
        dtype = None if dtype is None else torch.float64
        super().__init__(query_size, key_size, num_hiddens, dropout, device=device, dtype=dtype)


@wrong("attribute_values")
class WeightsKeptOnTheClass(WithLayers):
    def forward(self, *inputs, **named):
        outputs = super().forward(*inputs, **named)
        type(self).attention_weights = vars(self).pop("attention_weights")
        return outputs
