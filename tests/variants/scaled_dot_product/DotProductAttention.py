"""Answers to `DotProductAttention`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.attention import masked_softmax, scaled_dot_product_attention
from course_lib.authoring.variants import faulty, right, wrong, wrong_in


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


@wrong("training_flag_changed")
class SwitchesToEval(Almost):
    def outputs(self, weights, values):
        outputs = self.dropout(weights) @ values
        self.eval()
        return outputs


@wrong("dropout_keeps_p")
class DropsTheOthers(Almost):
    def __init__(self, dropout=0.0):
        super().__init__(1 - dropout)


@wrong("attribute_values")
class KeepsTheFirst(Almost):
    attention_weights = None

    def keep(self, weights):
        if self.attention_weights is None:
            self.attention_weights = weights.detach()


@wrong("dropped_key_has_weight")
class RemembersTheFirstMask(Almost):
    masks = None

    def weigh(self, scores, valid_lens, mask):
        if self.masks is None:
            self.masks = valid_lens, mask
        return masked_softmax(scores, *self.masks)


but = wrong_in(Almost)
OtherName = but("attribute_missing", keep=lambda self, w: setattr(self, "weights", w.detach()))
CutsTheGradientInTrainMode = but(
    weigh=lambda self, s, *given: masked_softmax(s.detach() if self.training else s, *given)
)
ForgetsDropout = but("dropout_missing", outputs=lambda self, w, v: w @ v)
DropsValues = but("wrong_values", outputs=lambda self, w, v: w @ self.dropout(v))
ThreeAxesOnly = but(
    score=lambda self, q, k: torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1]),
)
EmptyMaskIgnored = but(
    weigh=lambda self, s, lens, m: masked_softmax(s, lens, m if m is None or m.any() else None)
)


@wrong()
class ScaleOfTheFirstCall(Almost):
    def score(self, queries, keys):
        self.scale = getattr(self, "scale", 1 / math.sqrt(queries.shape[-1]))
        return queries @ keys.mT * self.scale


@wrong()
class MaskOfAnEarlierCall(Almost):
    def weigh(self, scores, valid_lens, mask):
        self.mask = mask = getattr(self, "mask", None) if mask is None else mask
        return masked_softmax(scores, valid_lens, mask)


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
