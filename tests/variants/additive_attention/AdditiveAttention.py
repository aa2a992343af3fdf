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


@wrong("extra_parameters")
class OneBiasLeft(Layers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)
        self.w_v = nn.Linear(num_hiddens, 1)

    forward = WithLayers.forward


@wrong("parameter_shape")
class SizesInTheWrongOrder(Layers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(key_size, query_size, num_hiddens, dropout)

    forward = WithLayers.forward


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


# wrong: scores, masks, values


@wrong("no_tanh")
class Linear(Layers):
    def scores(self, queries, keys):
        return self.w_v(self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None]).squeeze(-1)

    forward = WithLayers.forward


@wrong("squeezed")
class BareSqueeze(Layers):
    def scores(self, queries, keys):
        return self.w_v(torch.tanh(self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None]))

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys).squeeze(), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("layers_swapped")
class CrossedOver(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k = self.W_k(queries), self.W_q(keys)
        scores = self.w_v(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1)
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("lengths_required")
class Textbook(Layers):
    def forward(self, queries, keys, values, valid_lens):
        weights = masked_softmax(self.scores(queries, keys), valid_lens)
        self.attention_weights = weights.detach()
        return torch.bmm(self.dropout(weights), values)


@wrong("bool_mask_ignored")
class MaskForgotten(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("lengths_ignored")
class LengthsForgotten(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), mask=mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("only_lengths_if_both")
class EitherOr(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        if valid_lens is not None:
            weights = masked_softmax(scores, valid_lens)
        else:
            weights = masked_softmax(scores, mask=mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("inverted")
class TrueMeansIgnore(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        drop = torch.zeros_like(scores, dtype=torch.bool)
        if mask is not None:
            drop = drop | mask
        if valid_lens is not None:
            lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
            drop = drop | (torch.arange(scores.shape[-1]) < lens[..., None])
        if valid_lens is not None and mask is not None:
            drop = mask & (torch.arange(scores.shape[-1]) < lens[..., None])
        weights = scores.masked_fill(drop, -math.inf).softmax(-1).nan_to_num(0.0)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong()
class MaskOfThreeAxesOnly(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if mask is not None and mask.dim() == 2:
            mask = None
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("empty_row_uniform")
class FilledWithAMillion(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        n, m = scores.shape[1:]
        if valid_lens is not None:
            lens = valid_lens.repeat_interleave(n) if valid_lens.dim() == 1 else valid_lens
            real = torch.arange(m)[None] < lens.reshape(-1)[:, None]
            scores = scores.reshape(-1, m).masked_fill(~real, -1e6).reshape(-1, n, m)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e6)
        weights = scores.softmax(-1)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("values_are_keys")
class AveragesKeys(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ keys


@wrong("projected_keys_averaged")
class OverwritesKeys(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        queries, keys = self.W_q(queries), self.W_k(keys)
        scores = self.w_v(torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))).squeeze(-1)
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ keys


@wrong("over_queries")
class SoftmaxOverQueries(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        if valid_lens is not None:
            lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
            keep = keep & (torch.arange(scores.shape[-1]) < lens[..., None])
        weights = scores.masked_fill(~keep, -math.inf).softmax(dim=1).nan_to_num(0.0)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


# wrong: dropout and what is kept


@wrong("dropout_in_eval")
class AlwaysDropping(FunctionalDropout):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return F.dropout(weights, self.p) @ values


@wrong("dropout_in_eval")
class DropoutMadeInForward(FunctionalDropout):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return nn.Dropout(self.p)(weights) @ values


@wrong("dropout_on_scores")
class DropsScores(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.dropout(self.scores(queries, keys)), valid_lens, mask)
        self.attention_weights = weights.detach()
        return weights @ values


@wrong("dropout_on_output")
class DropsOutputs(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return F.dropout(weights @ values, self.dropout.p, self.training)


@wrong("dropout_missing")
class NeverDropping(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return weights @ values


@wrong("dropout_not_rescaled")
class NotRescaled(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        if self.training:
            weights = weights * (torch.rand_like(weights) >= self.dropout.p)
        return weights @ values


@wrong("dropout_shared")
class DropsWholeKeys(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return weights @ (values * self.dropout(torch.ones_like(values[..., :1])))


@wrong("stored_after_dropout")
class KeepsDropped(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.dropout(masked_softmax(self.scores(queries, keys), valid_lens, mask))
        self.attention_weights = weights.detach()
        return weights @ values


@wrong("attribute_attached")
class KeepsGraph(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        self.attention_weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        return torch.bmm(self.dropout(self.attention_weights), values)


@wrong("gradient_cut")
class UsesTheDetached(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(self.attention_weights) @ values


@wrong("attribute_missing")
class KeepsNothing(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        return self.dropout(masked_softmax(self.scores(queries, keys), valid_lens, mask)) @ values


@wrong("attribute_missing")
class KeepsAsNumpy(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach().numpy()
        return self.dropout(weights) @ values


@wrong("attribute_shape")
class KeepsTheFirstItem(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights[0].detach()
        return self.dropout(weights) @ values


@wrong("training_flag_changed")
class SwitchesToEval(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        dropped = self.dropout(weights)
        self.eval()
        return dropped @ values


@wrong("wrong_type")
class ReturnsATuple(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values, self.attention_weights


@wrong("input_mutated")
class MutatesValues(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        outputs = self.dropout(weights) @ values
        with torch.no_grad():
            values.mul_(2)
        return outputs


@wrong("dtype_changed")
class Float32Output(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return (self.dropout(weights) @ values).float()


@wrong("global_rng_used")
class DrawsInEval(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        keep = (torch.rand_like(weights) >= self.dropout.p) / (1 - self.dropout.p)
        return (weights * keep if self.training else weights) @ values


@wrong()
class TruthOfLengths(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if not valid_lens:
            valid_lens = None
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("empty_row_has_weight")
class NoLengthIfAllZero(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None and not valid_lens.any():
            valid_lens = None
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("empty_row_has_weight")
class NoMaskIfAllFalse(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if mask is not None and not mask.any():
            mask = None
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("dropped_key_has_weight")
class MaskReplacesLengths(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if mask is not None:
            valid_lens = None
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("bool_mask_inverted")
class TorchModuleMask(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        mask = None if mask is None else ~mask
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class OneLengthAnItem(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None and valid_lens.dim() == 2:
            valid_lens = valid_lens[:, 0]
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class LongestLengthOfAnItem(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None and valid_lens.dim() == 2:
            valid_lens = valid_lens.amax(1)
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class MaskCutToTwoAxes(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if mask is not None and mask.dim() == 3:
            mask = mask[0]
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("empty_row_has_weight")
class NeverEmpty(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None:
            valid_lens = valid_lens.clamp(min=1)
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("dropped_key_has_weight")
class LengthsOrMask(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None:
            kept = length_mask(valid_lens, keys.shape[1]).reshape(len(keys), -1, keys.shape[1])
            mask = kept if mask is None else kept | mask
        return super().forward(queries, keys, values, None, mask)


@wrong("dropped_key_has_weight")
class ZeroedPads(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens is not None and valid_lens.dim() == 1:
            real = length_mask(valid_lens, keys.shape[1]).unsqueeze(-1)
            keys, values, valid_lens = keys * real, values * real, None
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("zero_one_mask_added")
class MaskAsNumbers(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys)
        if mask is not None:
            scores = scores + mask.double()
        weights = masked_softmax(scores, valid_lens)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong()
class RowsDropped(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), mask=mask)
        if valid_lens is not None and valid_lens.dim() == 1:
            weights = weights * length_mask(valid_lens, queries.shape[1]).unsqueeze(-1)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("nothing_masked+over_queries")
class SoftmaxOverQueriesUnmasked(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.scores(queries, keys).softmax(dim=1)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("scaled_dot_product")
class ScaledProduct(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        q, k = self.W_q(queries), self.W_k(keys)
        weights = masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong()
class DropsValues(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return weights @ self.dropout(values)


@wrong("dropout_on_scores")
class SumsToOneAgain(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        weights = self.dropout(weights)
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-9) @ values


@wrong()
class KeptOnce(Layers):
    attention_weights = None

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        if self.attention_weights is None:
            self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong()
class RunningAverage(Layers):
    attention_weights = None

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        before = self.attention_weights
        now = weights.detach()
        self.attention_weights = now if before is None else (before + now) / 2
        return self.dropout(weights) @ values


@wrong("gradient_cut")
class NoGradientInTraining(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        if self.training:
            weights = self.dropout(self.attention_weights)
        return weights @ values


@wrong("dtype_changed")
class Float64Within(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        scores = self.scores(queries, keys).double()
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values.double()


@wrong("squeezed")
class SqueezedThenMasked(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        weights = masked_softmax(self.w_v(features).squeeze(), valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong()
class LengthsOnly(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


@wrong()
class NoDefaults(WithLayers):
    def forward(self, queries, keys, values, valid_lens, mask):
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class MaskFirst(WithLayers):
    def forward(self, queries, keys, values, mask=None, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong()
class KeysFirst(WithLayers):
    def __init__(self, key_size, query_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)


@wrong()
class Frozen(WithLayers):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.w_v.requires_grad_(False)


@wrong()
class AlwaysAHalf(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, 0.5 if dropout > 0 else 0.0)


@wrong("missing_parameter")
class SharedLayer(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.0):
        super().__init__(query_size, key_size, num_hiddens, dropout)
        if query_size == key_size:
            self.W_k = self.W_q


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


@wrong("no_forward")
class CalledAsInKeras(Layers):
    def call(self, queries, keys, values, valid_lens=None, mask=None):
        return WithLayers.forward(self, queries, keys, values, valid_lens, mask)


@wrong("global_rng_used")
class SeededInForward(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        torch.manual_seed(0)
        return super().forward(queries, keys, values, valid_lens, mask)


@wrong("stored_after_dropout")
class DropsInPlace(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        self.attention_weights = weights.detach()
        return F.dropout(weights, self.dropout.p, self.training, inplace=True) @ values


@wrong()
class DropsByDefault(WithLayers):
    def __init__(self, query_size, key_size, num_hiddens, dropout=0.1):
        super().__init__(query_size, key_size, num_hiddens, dropout)


@wrong()
class OneKeyTooMany(WithLayers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        lens = None if valid_lens is None else (valid_lens + 1).clamp(max=keys.shape[1])
        return super().forward(queries, keys, values, lens, mask)


# right but for the weights


def _weighing(weigh):
    """Right but for the weights, which are `weigh(scores, lengths, mask)`."""

    class Module(Layers):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            weights = weigh(self.scores(queries, keys), valid_lens, mask)
            self.attention_weights = weights.detach()
            return self.dropout(weights) @ values

    return Module


def _allowed(scores, lens, mask):
    return masked_softmax(torch.zeros_like(scores), lens, mask) > 0


def _over_a_least_sum(scores, lens, mask):
    weights = scores.softmax(-1) * _allowed(scores, lens, mask)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


LeastDenominator = wrong()(_weighing(_over_a_least_sum))
RefusesInt32 = wrong()(
    _weighing(
        lambda s, lens, m: masked_softmax(
            s, lens if lens is None or lens.dtype == torch.int64 else 1 / 0, m
        )
    )
)
RefusesMasksOfKeys = wrong()(
    _weighing(lambda s, lens, m: masked_softmax(s, lens, m if m is None or m.dim() > 1 else 1 / 0))
)
RefusesMasksOfQueries = wrong()(
    _weighing(
        lambda s, lens, m: masked_softmax(s, lens, m if m is None or m.shape[-1] > 1 else 1 / 0)
    )
)
ItemLengthsReadAsQueryLengths = wrong()(
    _weighing(
        lambda s, lens, m: masked_softmax(
            s,
            lens.expand(len(s), -1)
            if lens is not None and lens.dim() == 1 and len(lens) == s.shape[1]
            else lens,
            m,
        )
    )
)
MasksTheFuture = wrong()(
    _weighing(
        lambda s, lens, m: masked_softmax(
            s, lens, s.new_ones(s.shape[1:]).bool().tril() & (m is None or m)
        )
    )
)
OneKeyTooFew = wrong()(
    _weighing(
        lambda s, lens, m: masked_softmax(s, None if lens is None else (lens - 1).clamp(0), m)
    )
)
VeryNegativeAdded = wrong("empty_row_has_weight")(
    _weighing(lambda s, lens, m: (s + ~_allowed(s, lens, m) * -1e9).softmax(-1))
)
TimesTheMask = wrong("filled_with_zero")(
    _weighing(
        lambda s, lens, m: (
            (s * _allowed(s, lens, m)).softmax(-1) * _allowed(s, lens, m).any(-1, keepdim=True)
        )
    )
)


# further scores


def _scoring(score):
    """Right but for the scores, which are `score(projected queries, projected keys, w_v)`."""

    class Module(Layers):
        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            q, k = self.W_q(queries), self.W_k(keys)
            weights = masked_softmax(score(q, k, self.w_v), valid_lens, mask)
            self.attention_weights = weights.detach()
            return self.dropout(weights) @ values

    return Module


TanhOfEach = wrong("tanh_apart")(
    _scoring(lambda q, k, v: v(q.tanh().unsqueeze(2) + k.tanh().unsqueeze(1))[..., 0])
)
KeysScoredAlone = wrong("query_forgotten")(
    _scoring(lambda q, k, v: v(torch.tanh(torch.zeros_like(q)[:, :, None] + k[:, None]))[..., 0])
)
FeaturesAddedUp = wrong("no_w_v")(
    _scoring(lambda q, k, v: torch.tanh(q[:, :, None] + k[:, None]).sum(dim=3))
)
FeaturesMultiplied = wrong("product")(
    _scoring(lambda q, k, v: v(torch.tanh(torch.einsum("bnh,bmh->bnmh", q, k))).squeeze(3))
)
RectifiedFeatures = wrong("relu")(
    _scoring(lambda q, k, v: v(F.relu(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(dim=-1))
)
DividedByTheRoot = wrong("scaled")(
    _scoring(
        lambda q, k, v: (
            v(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1) / math.sqrt(q.shape[-1])
        )
    )
)


@wrong("nothing_masked")
class PlainSoftmax(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.scores(queries, keys).softmax(dim=-1)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


# what is kept, and from which call


@wrong("attribute_missing")
class KeepsInEvalModeOnly(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        if not self.training:
            self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("attribute_values")
class KeepsOnTheClass(Layers):
    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = masked_softmax(self.scores(queries, keys), valid_lens, mask)
        KeepsOnTheClass.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong()
class RemembersTheFirstMask(WithLayers):
    first = None

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if mask is not None and self.first is None:
            self.first = mask
        return super().forward(queries, keys, values, valid_lens, self.first)


LargestOfAllScores = wrong()(
    _weighing(
        lambda s, lens, m: F.normalize(
            (s - s.amax(-1, keepdim=True)).exp() * _allowed(s, lens, m), p=1, dim=-1
        )
    )
)
WipedAfterwards = wrong("zero_after_softmax")(
    _weighing(lambda s, lens, m: s.softmax(-1) * _allowed(s, lens, m))
)


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
