"""Answers to `DotProductAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention.masked_softmax import masked_softmax
from course_lib.attention.scaled_dot_product import scaled_dot_product_attention
from course_lib.exercises.variants import faulty, right, wrong


def weights_of(queries, keys, valid_lens, mask):
    return masked_softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), valid_lens, mask)


@right
class LayerInInit(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.drop = nn.Dropout(p=dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return torch.matmul(self.drop(w), values)


@right
class FunctionalWithTraining(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.p = dropout

    def forward(self, q, k, v, valid_lens=None, mask=None):
        _, w = scaled_dot_product_attention(q, k, v, valid_lens, mask)
        self.attention_weights = w.detach().clone()
        return F.dropout(w, self.p, training=self.training) @ v


@right
class MaskByHand(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.data
        if self.training and self.p > 0:
            w = w * (torch.rand_like(w) >= self.p) / (1 - self.p)
        return torch.einsum("...nm,...mv->...nv", w, values)


@right
class Buffer(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("attention_weights", None, persistent=False)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        outputs, w = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)
        with torch.no_grad():
            self.attention_weights = w.detach()
        return self.dropout(w) @ values if self.training else outputs


@wrong("dropout_in_eval")
class FunctionalAlways(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return F.dropout(w, self.p) @ values


@wrong("dropout_in_eval")
class NewLayerEachCall(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return nn.Dropout(self.p)(w) @ values


@wrong("dropout_missing")
class ForgetsDropout(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        outputs, w = scaled_dot_product_attention(queries, keys, values, valid_lens, mask)
        self.attention_weights = w.detach()
        return outputs


@wrong("dropout_on_output")
class DropsOutputs(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(w @ values)


@wrong("dropout_on_scores")
class DropsScores(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        s = self.dropout(queries @ keys.mT / math.sqrt(queries.shape[-1]))
        w = masked_softmax(s, valid_lens, mask)
        self.attention_weights = w.detach()
        return w @ values


@wrong("dropout_keeps_p")
class KeepsWithP(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(1 - dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(w) @ values


@wrong("dropout_not_rescaled")
class NotRescaled(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        if self.training:
            w = w * (torch.rand_like(w) >= self.p)
        return w @ values


@wrong("dropout_shared")
class OneDropForTheBatch(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return (w * self.dropout(torch.ones_like(w[0]))) @ values


@wrong("stored_after_dropout")
class StoresTooLate(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = self.dropout(weights_of(queries, keys, valid_lens, mask))
        self.attention_weights = w.detach()
        return w @ values


@wrong("attribute_attached")
class Seed002(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        self.attention_weights = weights_of(queries, keys, valid_lens, mask)
        return self.dropout(self.attention_weights) @ values


@wrong("attribute_missing")
class OtherName(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        self.weights = weights_of(queries, keys, valid_lens, mask).detach()
        return self.dropout(weights_of(queries, keys, valid_lens, mask)) @ values


@wrong("raised")
class NoneCrashes(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if valid_lens.dim() == 1:
            valid_lens = valid_lens[:, None].expand(-1, queries.shape[-2])
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(w) @ values


@wrong("unscaled")
class Unscaled(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = masked_softmax(queries @ keys.mT, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(w) @ values


@wrong("bool_mask_ignored")
class MaskForgotten(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, None)
        self.attention_weights = w.detach()
        return self.dropout(w) @ values


@wrong("wrong_type")
class ReturnsBoth(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(w) @ values, w


@wrong("training_flag_changed")
class SwitchesToEval(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        outputs = self.dropout(w) @ values
        self.eval()
        return outputs


@wrong()
class DropoutFixedAtATenth(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(w) @ values


@wrong("dropout_twice")
class DropsTwice(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach()
        return self.dropout(self.dropout(w)) @ values


@wrong()
class AverageOverHeads(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        w = weights_of(queries, keys, valid_lens, mask)
        self.attention_weights = w.detach().mean(1) if w.dim() == 4 else w.detach()
        return self.dropout(w) @ values


class Almost(nn.Module):
    """A right module that wrong answers change in one place."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.weights(queries, keys, valid_lens, mask)
        self.keep(weights)
        return self.outputs(weights, values)

    def weights(self, queries, keys, valid_lens, mask):
        return weights_of(queries, keys, valid_lens, mask)

    def keep(self, weights):
        self.attention_weights = weights.detach()

    def outputs(self, weights, values):
        return self.dropout(weights) @ values


@right
class KeptByAHook(Almost):
    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.weighted = nn.Identity()
        self.weighted.register_forward_hook(lambda layer, given, out: self.note(out))

    def note(self, weights):
        self.attention_weights = weights.data

    def outputs(self, weights, values):
        return self.dropout(self.weighted(weights)) @ values


@wrong("weights_of_the_first_call_kept")
class KeepsTheFirst(Almost):
    attention_weights = None

    def keep(self, weights):
        if self.attention_weights is None:
            self.attention_weights = weights.detach()


@wrong("wrong_values")
class MasksInEvalModeOnly(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        if self.training:
            return weights_of(queries, keys, None, None)
        return weights_of(queries, keys, valid_lens, mask)


@wrong("dropout_on_scores")
class NormalisesAgain(Almost):
    def outputs(self, weights, values):
        dropped = self.dropout(weights)
        return dropped @ values / dropped.sum(-1, keepdim=True).clamp_min(1e-9)


@wrong("dropout_on_scores")
class DropsQueries(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return weights_of(self.dropout(queries), keys, valid_lens, mask)

    def outputs(self, weights, values):
        return weights @ values


@wrong("wrong_values")
class DropsValues(Almost):
    def outputs(self, weights, values):
        return weights @ self.dropout(values)


@wrong("dropout_keeps_p")
class DropsTheOthers(Almost):
    def __init__(self, dropout=0.0):
        super().__init__(1 - dropout)


@wrong("wrong_factor")
class FourFeaturesAlways(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return masked_softmax(queries @ keys.mT / 2, valid_lens, mask)


@wrong("attribute_values")
class StoresScores(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        self.attention_weights = (queries @ keys.mT / math.sqrt(keys.shape[-1])).detach()
        return weights_of(queries, keys, valid_lens, mask)

    def keep(self, weights):
        pass


@wrong("no_forward")
class ForwardMisspelt(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def foward(self, queries, keys, values, valid_lens=None, mask=None):
        return Almost.forward(self, queries, keys, values, valid_lens, mask)


@wrong("wrong_factor")
class RootInTheWrongBrackets(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return masked_softmax(queries @ keys.mT / (keys.shape[-1] ** 1 / 2), valid_lens, mask)


# right but for one thing


def _module(read=lambda s, lens, mask: (lens, mask), default=0.0, change=lambda self, w: w):
    class Module(nn.Module):
        def __init__(self, dropout=default):
            super().__init__()
            self.dropout = nn.Dropout(dropout)

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
            weights = change(self, masked_softmax(scores, *read(scores, valid_lens, mask)))
            self.attention_weights = weights.detach()
            return self.dropout(weights) @ values

    return Module


DropsATenthUnlessTold = wrong()(_module(default=0.1))
CutsTheGradientInTrainMode = wrong()(
    _module(change=lambda self, w: w.detach() if self.training else w)
)
LengthsOfZeroIgnored = wrong()(
    _module(lambda s, lens, m: (lens if lens is not None and lens.any() else None, m))
)
EmptyMaskIgnored = wrong()(_module(lambda s, lens, m: (lens, m if m is None or m.any() else None)))
MaskIgnoredWithHeads = wrong()(_module(lambda s, lens, m: (lens, m if s.dim() < 4 else None)))
RefusesMasksOfKeys = wrong()(
    _module(lambda s, lens, m: (lens, m if m is None or m.dim() > 1 else 1 / 0))
)
RefusesInt32 = wrong()(
    _module(lambda s, lens, m: (lens if lens is None or lens.dtype == torch.int64 else 1 / 0, m))
)
MasksTheFuture = wrong("allowed_key_has_no_weight")(
    _module(lambda s, lens, m: (lens, s.new_ones(s.shape[-2:]).bool().tril() & (m is None or m)))
)
OneKeyTooFew = wrong("allowed_key_has_no_weight")(
    _module(lambda s, lens, m: (lens if lens is None else (lens - 1).clamp(min=0), m))
)


@wrong("raised")
class WithoutAMaskArgument(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None):
        scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
        weights = masked_softmax(scores, valid_lens)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


@wrong("divided_by_d")
class DividedByTheFeatures(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return masked_softmax(queries @ keys.mT / queries.shape[-1], valid_lens, mask)


@wrong("lengths_ignored")
class LengthsNotPassedOn(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return scaled_dot_product_attention(queries, keys, keys, mask=mask)[1]


@wrong("nothing_masked")
class NothingPassedOn(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return scaled_dot_product_attention(queries, keys, keys)[1]


@wrong("bool_mask_inverted")
class MaskAsTorchsLayerWantsIt(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        return weights_of(queries, keys, valid_lens, None if mask is None else ~mask)


def _masks(scores, valid_lens, mask):
    real = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
        real = torch.arange(scores.shape[-1]) < lens[..., None]
        while real.dim() < scores.dim():
            real = real[:, None]
    return real.expand(scores.shape) if mask is None else real & mask


@wrong("empty_row_nan")
class FillsWithMinusInfinity(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        scores = queries @ keys.mT / math.sqrt(keys.shape[-1])
        scores = scores.masked_fill(~_masks(scores, valid_lens, mask), float("-inf"))
        return F.softmax(scores, dim=-1)


@wrong("zero_after_softmax")
class MasksTooLate(Almost):
    def weights(self, queries, keys, valid_lens, mask):
        scores = queries @ keys.mT / math.sqrt(keys.shape[-1])
        return F.softmax(scores, dim=-1) * _masks(scores, valid_lens, mask)


@wrong("dropped_key_has_weight")
class RemembersTheFirstMask(Almost):
    masks = None

    def weights(self, queries, keys, valid_lens, mask):
        if self.masks is None:
            self.masks = valid_lens, mask
        return weights_of(queries, keys, *self.masks)


@wrong("raised")
class RemembersTheFirstShape(Almost):
    allowed = None

    def weights(self, queries, keys, valid_lens, mask):
        scores = queries @ keys.mT / math.sqrt(keys.shape[-1])
        if self.allowed is None:
            self.allowed = torch.zeros_like(scores, dtype=torch.bool)
        real = _masks(scores, valid_lens, mask)
        return masked_softmax(scores, mask=self.allowed | real)


@wrong("attribute_values")
class StoresInEvalModeOnly(Almost):
    def keep(self, weights):
        if not self.training:
            self.attention_weights = weights.detach()
        else:
            self.attention_weights = torch.zeros_like(weights)


@faulty("dropout_in_eval", "stored_after_dropout", "graph_kept", "lengths_lost")
def with_faults(faults):
    class Attention(nn.Module):
        def __init__(self, dropout=0.0):
            super().__init__()
            self.p = dropout

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            lens = None if "lengths_lost" in faults else valid_lens
            weights = weights_of(queries, keys, lens, mask)
            acts = self.training or "dropout_in_eval" in faults
            dropped = F.dropout(weights, self.p, acts)
            kept = dropped if "stored_after_dropout" in faults else weights
            self.attention_weights = kept if "graph_kept" in faults else kept.detach()
            return dropped @ values

    return Attention


@wrong("wrong_values")
class ScaleOfTheFirstCall(nn.Module):
    """Keeps what the first call found; queries of another width are scaled wrongly."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.scale = None

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        if self.scale is None:
            self.scale = queries.shape[-1] ** -0.5
        scores = self.scale * queries @ keys.mT
        weights = masked_softmax(scores, valid_lens, mask)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values
