"""Answers to `DotProductAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import masked_softmax, scaled_dot_product_attention
from course_lib.exercises.variants import faulty, right, wrong, wrong_in


class Almost(nn.Module):
    """A right module in steps; what follows changes one of them."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens=None, mask=None):
        weights = self.weigh(self.score(queries, keys), valid_lens, mask)
        self.keep(weights)
        return self.outputs(weights, values)

    def score(self, queries, keys):
        return queries @ keys.mT / math.sqrt(queries.shape[-1])

    def weigh(self, scores, valid_lens, mask):
        return masked_softmax(scores, valid_lens, mask)

    def keep(self, weights):
        self.attention_weights = self.kept(weights)

    def kept(self, weights):
        return weights.detach()

    def outputs(self, weights, values):
        return self.dropout(weights) @ values


@right
class LayerInInit(Almost):
    def outputs(self, weights, values):
        return torch.matmul(self.dropout(weights), values)


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
class MaskByHand(Almost):
    def kept(self, weights):
        return weights.data

    def outputs(self, weights, values):
        p = self.dropout.p
        if self.training and p > 0:
            weights = weights * (torch.rand_like(weights) >= p) / (1 - p)
        return torch.einsum("...nm,...mv->...nv", weights, values)


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


@wrong("dropout_not_rescaled")
class NotRescaled(Almost):
    def outputs(self, weights, values):
        kept = torch.rand_like(weights) >= self.dropout.p if self.training else True
        return (weights * kept) @ values


@wrong("stored_after_dropout")
class StoresTooLate(Almost):
    def outputs(self, weights, values):
        weights = self.dropout(weights)
        self.attention_weights = weights.detach()
        return weights @ values


@wrong("attribute_missing")
class OtherName(Almost):
    def keep(self, weights):
        self.weights = weights.detach()


@wrong("training_flag_changed")
class SwitchesToEval(Almost):
    def outputs(self, weights, values):
        outputs = self.dropout(weights) @ values
        self.eval()
        return outputs


@wrong()
class DropoutFixedAtATenth(Almost):
    def __init__(self, dropout=0.0):
        super().__init__(0.1)


@wrong()
class DropsATenthUnlessTold(Almost):
    def __init__(self, dropout=0.1):
        super().__init__(dropout)


@wrong("dropout_keeps_p")
class DropsTheOthers(Almost):
    def __init__(self, dropout=0.0):
        super().__init__(1 - dropout)


@wrong("weights_of_the_first_call_kept")
class KeepsTheFirst(Almost):
    attention_weights = None

    def keep(self, weights):
        if self.attention_weights is None:
            self.attention_weights = weights.detach()


@wrong("no_forward")
class ForwardMisspelt(Almost):
    foward, forward = Almost.forward, nn.Module.forward


@wrong()
class RefusesInt32(Almost):
    def weigh(self, scores, valid_lens, mask):
        assert valid_lens is None or valid_lens.dtype == torch.int64
        return masked_softmax(scores, valid_lens, mask)


@wrong("raised")
class WithoutAMaskArgument(Almost):
    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


@wrong("dropped_key_has_weight")
class RemembersTheFirstMask(Almost):
    masks = None

    def weigh(self, scores, valid_lens, mask):
        if self.masks is None:
            self.masks = valid_lens, mask
        return masked_softmax(scores, *self.masks)


def allowed(scores, valid_lens, mask):
    return masked_softmax(torch.zeros_like(scores), valid_lens, mask) > 0


but = wrong_in(Almost)
KeepsTheGraph = but("attribute_attached", kept=lambda self, w: w)
DropsScores = but(
    "dropout_on_scores",
    score=lambda self, q, k: self.dropout(Almost.score(self, q, k)),
    outputs=lambda self, w, v: w @ v,
)
FillsWithMinusInfinity = but(
    "empty_row_nan",
    weigh=lambda self, s, *given: s.masked_fill(~allowed(s, *given), -math.inf).softmax(-1),
)
MasksTooLate = but(
    "zero_after_softmax", weigh=lambda self, s, *given: s.softmax(-1) * allowed(s, *given)
)
CutsTheGradientInTrainMode = but(
    weigh=lambda self, s, *given: masked_softmax(s.detach() if self.training else s, *given)
)
DropoutInForward = but(
    "dropout_in_eval", outputs=lambda self, w, v: nn.Dropout(self.dropout.p)(w) @ v
)
ForgetsDropout = but("dropout_missing", outputs=lambda self, w, v: w @ v)
DropsOutputs = but("dropout_on_output", outputs=lambda self, w, v: self.dropout(w @ v))
DropsValues = but("wrong_values", outputs=lambda self, w, v: w @ self.dropout(v))
DropsTwice = but("dropout_twice", outputs=lambda self, w, v: self.dropout(self.dropout(w)) @ v)
OneDropForTheBatch = but(
    "dropout_shared", outputs=lambda self, w, v: (w * self.dropout(torch.ones_like(w[0]))) @ v
)
ReturnsBoth = but("wrong_type", outputs=lambda self, w, v: (self.dropout(w) @ v, w))
Unscaled = but("unscaled", score=lambda self, q, k: q @ k.mT)
DividedByTheFeatures = but("divided_by_d", score=lambda self, q, k: q @ k.mT / q.shape[-1])
RootInTheWrongBrackets = but(
    "wrong_factor", score=lambda self, q, k: q @ k.mT / (k.shape[-1] ** 1 / 2)
)
MaskForgotten = but("bool_mask_ignored", weigh=lambda self, s, lens, m: masked_softmax(s, lens))
LengthsNotPassedOn = but(
    "lengths_ignored", weigh=lambda self, s, lens, m: masked_softmax(s, mask=m)
)
NothingPassedOn = but("nothing_masked", weigh=lambda self, s, lens, m: s.softmax(-1))
MaskAsTorchsLayerWantsIt = but(
    "bool_mask_inverted",
    weigh=lambda self, s, lens, m: masked_softmax(s, lens, None if m is None else ~m),
)
OneKeyTooFew = but(
    "allowed_key_has_no_weight",
    weigh=lambda self, s, lens, m: masked_softmax(
        s, lens if lens is None else (lens - 1).clamp(0), m
    ),
)
EmptyMaskIgnored = but(
    weigh=lambda self, s, lens, m: masked_softmax(s, lens, m if m is None or m.any() else None)
)
MaskIgnoredWithHeads = but(
    weigh=lambda self, s, lens, m: masked_softmax(s, lens, m if s.dim() < 4 else None)
)
MasksInEvalModeOnly = but(
    "dropped_key_has_weight",
    weigh=lambda self, s, lens, m: s.softmax(-1) if self.training else masked_softmax(s, lens, m),
)


@faulty("dropout_in_eval", "stored_after_dropout", "graph_kept", "lengths_lost")
def with_faults(faults):
    class Attention(nn.Module):
        def __init__(self, dropout=0.0):
            super().__init__()
            self.p = dropout

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            lens = None if "lengths_lost" in faults else valid_lens
            _, weights = scaled_dot_product_attention(queries, keys, values, lens, mask)
            dropped = F.dropout(weights, self.p, self.training or "dropout_in_eval" in faults)
            kept = dropped if "stored_after_dropout" in faults else weights
            self.attention_weights = kept if "graph_kept" in faults else kept.detach()
            return dropped @ values

    return Attention


@wrong("attribute_values")
class WeightsKeptOnTheClass(LayerInInit):
    def forward(self, *inputs, **named):
        outputs = super().forward(*inputs, **named)
        type(self).attention_weights = vars(self).pop("attention_weights")
        return outputs
