"""Wrong attentions, composed from small options: how to scale, how to mask, what to normalise.

`wrong(scale=..., masking=..., normalise=...)` is one mistake for each option that is not the
right one, so that pairs of mistakes are made as easily as single ones.
"""

import math

import torch
from torch import nn

SCALES = {
    "root": lambda q, k, v: 1 / math.sqrt(q.shape[-1]),
    "none": lambda q, k, v: 1.0,
    "by_d": lambda q, k, v: 1 / q.shape[-1],
    "times_root": lambda q, k, v: math.sqrt(q.shape[-1]),
    "root_of_keys": lambda q, k, v: 1 / math.sqrt(k.shape[-2]),
    "root_of_queries": lambda q, k, v: 1 / math.sqrt(q.shape[-2]),
    "root_of_values": lambda q, k, v: 1 / math.sqrt(v.shape[-1]),
    "root_of_first_axis": lambda q, k, v: 1 / math.sqrt(q.shape[0]),
    "fourth_root": lambda q, k, v: q.shape[-1] ** -0.25,
    "sixty_four": lambda q, k, v: 1 / 8,
    "whole_root": lambda q, k, v: 1 / math.isqrt(q.shape[-1]),
    "half_of_d": lambda q, k, v: 2 / q.shape[-1],
    "twice_d": lambda q, k, v: 0.5 / q.shape[-1],
    "negative": lambda q, k, v: -1 / math.sqrt(q.shape[-1]),
}


def allowed_keys(scores, valid_lens=None, mask=None):
    """Bool tensor of the shape of the scores."""
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if valid_lens is not None:
        real = torch.arange(scores.shape[-1], device=scores.device) < valid_lens[..., None]
        if valid_lens.dim() == 1:
            real = real.unsqueeze(-2)
        while real.dim() < scores.dim():
            real = real.unsqueeze(1)
        allowed = allowed & real
    return allowed if mask is None else allowed & mask


def masked_softmax(scores, allowed, dim=-1, nothing=0.0):
    """The right one for dim=-1; `nothing` is what lines without an allowed entry become."""
    filled = scores.masked_fill(~allowed, -math.inf)
    empty = ~allowed.any(dim, keepdim=True)
    weights = torch.softmax(filled.masked_fill(empty, 0.0), dim).masked_fill(empty, 0.0)
    return weights if nothing == 0.0 else weights.masked_fill(empty, nothing)


def _filled(value):
    return lambda scores, allowed, dim: torch.softmax(scores.masked_fill(~allowed, value), dim)


def _inverted(scores, allowed, dim):
    return masked_softmax(scores, allowed if allowed.all() else ~allowed, dim)


def _added(scores, allowed, dim):
    numbers = torch.zeros_like(scores) if allowed.all() else allowed.to(scores.dtype)
    return torch.softmax(scores + numbers, dim)


def _exp_over_sum(scores, allowed, dim):
    e = torch.exp(scores) * allowed
    return e / e.sum(dim, keepdim=True)


def _minus_infinity_added(scores, allowed, dim):
    minus = torch.where(allowed, 0.0, -math.inf).to(scores.dtype)
    return torch.softmax(scores + minus, dim).masked_fill(~allowed, 0.0)


def _zero_but_in_empty_rows(scores, allowed, dim):
    return torch.softmax(scores * allowed, dim) * allowed.any(dim, keepdim=True)


def _always_causal(scores, allowed, dim):
    return masked_softmax(scores, allowed & torch.ones_like(allowed).tril(), dim)


MASKINGS = {
    "right": masked_softmax,
    "ignored": lambda scores, allowed, dim: torch.softmax(scores, dim),
    "inverted": _inverted,
    "filled_with_zero": _filled(0.0),
    "filled_but_in_empty_rows": _zero_but_in_empty_rows,
    "always_causal": _always_causal,
    "finite_added": lambda s, allowed, dim: torch.softmax(s + ~allowed * -1e9, dim),
    "after_softmax": lambda scores, allowed, dim: torch.softmax(scores, dim) * allowed,
    "zero_one_added": _added,
    "empty_nan": _filled(-math.inf),
    "leaks_1e6": _filled(-1e6),
    "leaks_1e9": _filled(-1e9),
    "empty_uniform": lambda s, allowed, dim: torch.softmax(
        s.masked_fill(~allowed, torch.finfo(s.dtype).min), dim
    ),
    "naive_exp": _exp_over_sum,
    "naive_exp_zeros": lambda s, allowed, dim: _exp_over_sum(s, allowed, dim).nan_to_num(0.0),
    "empty_gradient_nan": _minus_infinity_added,
}


def _hard_max(scores, allowed):
    best = scores.masked_fill(~allowed, -math.inf).argmax(-1)
    return nn.functional.one_hot(best, scores.shape[-1]).to(scores.dtype) * allowed


def _raw(scores, allowed):
    kept = scores * allowed
    return kept / kept.sum(-1, keepdim=True)


def _everything(scores, allowed):
    flat, shape = allowed.flatten(-2), allowed.shape
    return masked_softmax(scores.flatten(-2), flat).reshape(shape)


NORMALISED = {
    "hard_max": _hard_max,
    "sigmoid": lambda s, allowed: torch.sigmoid(s.masked_fill(~allowed, -math.inf)),
    "axis_one": lambda s, allowed: masked_softmax(s, allowed, 1 if s.dim() > 1 else 0),
    "raw": _raw,
    "exp_only": lambda s, allowed: torch.exp(s.masked_fill(~allowed, -math.inf)),
    "everything": _everything,
    "uniform": lambda s, allowed: masked_softmax(torch.zeros_like(s) * s, allowed),
    "logarithm": lambda s, allowed: masked_softmax(s, allowed).log(),
}
AXES = {"queries": 0.0, "queries_nan": math.nan, "queries_filled": None}


def weights_of(scores, allowed, masking, normalise):
    """Weights from scores by the named masking and normalisation."""
    if normalise in NORMALISED:
        return NORMALISED[normalise](scores, allowed)
    dim = -2 if normalise in AXES else 0 if normalise == "batch" else -1
    if masking == "right" and normalise in AXES:
        if AXES[normalise] is None:  # -1e9 in a whole column gives 1 / n everywhere
            return torch.softmax(scores.masked_fill(~allowed, -1e9), dim)
        return masked_softmax(scores, allowed, dim, AXES[normalise])
    return MASKINGS[masking](scores, allowed, dim)


def wrong(
    scale="root",
    masking="right",
    normalise="keys",
    *,
    in_place=False,
    read=lambda valid_lens, mask: (valid_lens, mask),
    allow=allowed_keys,
    product=lambda queries, keys: queries @ keys.mT,
    finish=lambda weights, values: (weights @ values, weights),
):
    """A wrong `scaled_dot_product_attention`.

    Args:
        scale, masking, normalise: names of options, see the tables of this module.
        in_place: multiply the caller's queries by the scale.
        read: which of lengths and mask are used.
        allow: how they become a bool tensor.
        product: scores before scaling.
        finish: what is returned.
    """

    def model(queries, keys, values, valid_lens=None, mask=None):
        factor = SCALES[scale](queries, keys, values)
        if in_place:
            queries *= factor
            scores = product(queries, keys)
        else:
            scores = product(queries, keys) * factor
        allowed = allow(scores, *read(valid_lens, mask))
        return finish(weights_of(scores, allowed, masking, normalise), values)

    return model


def either(scores, valid_lens, mask):
    """A key is allowed by lengths or by the mask."""
    if valid_lens is None or mask is None:
        return allowed_keys(scores, valid_lens, mask)
    return allowed_keys(scores, valid_lens) | mask


def shifted(by):
    """Lengths that are off by a number."""
    return lambda scores, valid_lens, mask: allowed_keys(
        scores, None if valid_lens is None else valid_lens + by, mask
    )


def tiled(scores, valid_lens, mask):
    """Lengths handed out to rows 0, 1, 2, ... in turn."""
    if valid_lens is None or valid_lens.dim() == 2:
        return allowed_keys(scores, valid_lens, mask)
    rows = scores[..., 0].numel()
    flat = valid_lens.repeat(rows // len(valid_lens)).reshape(scores.shape[:-1])
    real = torch.arange(scores.shape[-1], device=scores.device) < flat[..., None]
    return real if mask is None else real & mask


def tiled_over_heads(scores, valid_lens, mask):
    """Lengths handed out to the heads of all items in turn."""
    if valid_lens is None or scores.dim() < 4:
        return allowed_keys(scores, valid_lens, mask)
    flat = valid_lens.repeat(scores.shape[1], *[1] * (valid_lens.dim() - 1))
    real = allowed_keys(scores.flatten(0, 1), flat).reshape(scores.shape)
    return real if mask is None else real & mask


def first_length(scores, valid_lens, mask):
    """Lengths per query read as one length per item."""
    if valid_lens is not None and valid_lens.dim() == 2:
        valid_lens = valid_lens[:, 0]
    return allowed_keys(scores, valid_lens, mask)


def lengths_need_none(scores, valid_lens, mask):
    """Asks for the lengths' axes without asking whether there are lengths."""
    valid_lens.dim()
    return allowed_keys(scores, valid_lens, mask)


def mask_as_lengths(scores, valid_lens, mask):
    """The mask lands in the place of the lengths."""
    if mask is not None:
        raise TypeError("lengths must be integers")
    return allowed_keys(scores, valid_lens)


def cosine(queries, keys):
    """Dot products of unit vectors, whatever scale follows."""
    unit = nn.functional.normalize
    return unit(queries, dim=-1) @ unit(keys, dim=-1).mT


def rolled(weights, values):
    """Items averaged with the next item's values."""
    return weights @ (values.roll(1, 0) if values.dim() > 2 else values), weights


def reshaped(queries, keys):
    """Keys reshaped where they should be transposed."""
    return queries @ keys.reshape(*keys.shape[:-2], keys.shape[-1], keys.shape[-2])


def first_item(queries, keys):
    """The keys of item 0 for all items."""
    return queries @ keys[:1].mT if keys.dim() > 2 else queries @ keys.mT


def dropped(p):
    """Dropout on the weights that never switches off."""

    def finish(weights, values):
        weights = nn.functional.dropout(weights, p)
        return weights @ values, weights

    return finish


def three_axes(queries, keys):
    """A product that holds for a batch of matrices only."""
    return torch.bmm(queries, keys.transpose(1, 2))


def module(attend, *, drop="weights", keep="weights", on=None):
    """A wrong `DotProductAttention`.

    Args:
        attend: function to (outputs, weights), as `wrong` makes them.
        drop: "weights", "scores", "outputs", "queries", "values", "twice", "normalised",
            "not_rescaled", "nothing".
        keep: "weights", "dropped", "attached", "scores", "nothing", "outputs".
        on: dropout's training flag; that of the module if None.
    """

    class Wrong(nn.Module):
        def __init__(self, dropout=0.0):
            super().__init__()
            self.p = dropout
            self.attention_weights = None

        def _drop(self, x):
            return nn.functional.dropout(x, self.p, self.training if on is None else on)

        def _thinned(self, weights):
            if drop in ("weights", "twice", "normalised", "not_rescaled"):
                weights = self._drop(weights)
            if drop == "twice":
                weights = self._drop(weights)
            if drop == "normalised" and self.training:
                weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-9)
            if drop == "not_rescaled" and self.training:
                weights = weights * (1 - self.p)
            return weights

        def forward(self, queries, keys, values, valid_lens=None, mask=None):
            queries = self._drop(queries) if drop == "queries" else queries
            scores = queries @ keys.mT / math.sqrt(queries.shape[-1])
            if drop == "scores":
                scores = self._drop(scores)
                weights = masked_softmax(scores, allowed_keys(scores, valid_lens, mask))
            else:
                _, weights = attend(queries, keys, values, valid_lens, mask)
            used = self._thinned(weights)
            outputs = used @ (self._drop(values) if drop == "values" else values)
            if drop == "outputs":
                outputs = self._drop(outputs)
            kept = {"weights": weights, "dropped": used, "outputs": outputs, "scores": scores}.get(
                keep
            )
            if keep == "attached":
                self.attention_weights = weights
            elif kept is not None:
                self.attention_weights = kept.detach()
            return outputs

    return Wrong


def divided_weights(queries, keys, values, valid_lens=None, mask=None):
    """The root divides the weights instead of the scores."""
    scores = queries @ keys.mT
    weights = masked_softmax(scores, allowed_keys(scores, valid_lens, mask))
    weights = weights / math.sqrt(queries.shape[-1])
    return weights @ values, weights


def scores_returned(queries, keys, values, valid_lens=None, mask=None):
    """Right outputs, with the scores in the place of the weights."""
    outputs, _ = wrong()(queries, keys, values, valid_lens, mask)
    return outputs, queries @ keys.mT / math.sqrt(queries.shape[-1])


def in_numpy(model):
    """The same mistake for NumPy arrays without lengths."""

    def numpy_model(queries, keys, values, mask=None):
        tensors = [torch.from_numpy(x.copy()) for x in (queries, keys, values)]
        outputs = model(*tensors, None, None if mask is None else torch.from_numpy(mask.copy()))
        if not isinstance(outputs, tuple):
            return outputs.numpy()
        return tuple(x.numpy() for x in outputs)

    return numpy_model
