"""Steps as wrong answers make them, for the table of mistakes (`mistakes.py`)."""

import math
from collections.abc import Mapping

import torch

from course_lib.exercises._attention.steps import Softmax


def untouched(self, scores, allowed) -> torch.Tensor:
    """In the place of a step that changes scores or weights: nothing is done."""
    return scores


def filled(value, **others) -> Mapping[str, object]:
    """Forbidden scores get a finite number, or -inf, and empty rows no special care."""

    def fill(self, scores, allowed) -> torch.Tensor:
        return scores.masked_fill(~allowed, value)

    return {"fill": fill, "spare": untouched, "clear": untouched} | others


def unmasked(self, scores, mask) -> None:
    """In the place of the step that reads a mask."""


def flipped_if_any(self, scores, real, own) -> torch.Tensor:
    allowed = Softmax.join(self, scores, real, own)
    return allowed if allowed.all() else ~allowed


def tiled_over_queries(self, scores, lens) -> torch.Tensor:
    if lens.dim() == 2:
        return Softmax.spread(self, scores, lens)
    return lens.repeat(scores[..., 0].numel() // len(lens)).reshape(scores.shape[:-1])[..., None]


def tiled_over_heads(self, scores, lens) -> torch.Tensor:
    if scores.dim() < 4:
        return tiled_over_queries(self, scores, lens)
    folded = lens.repeat(scores.shape[1], *[1] * (lens.dim() - 1))
    return folded.reshape(*scores.shape[:2], -1, 1)


def weights_zeroed(self, weights, allowed) -> torch.Tensor:
    return weights * allowed


def kept_once(self, weights, used) -> None:
    if not hasattr(self, "attention_weights"):
        self.attention_weights = weights.detach()


def keep_dropped(self, weights, used) -> None:
    self.attention_weights = used.detach()


def numbers_added(self, scores, allowed) -> torch.Tensor:
    return scores if allowed.all() else scores + allowed.to(scores.dtype)


def infinity_added(self, scores, allowed) -> torch.Tensor:
    return scores + torch.where(allowed, 0.0, -math.inf).to(scores.dtype)


def mask_added_alone(self, scores, valid_lens=None, mask=None) -> torch.Tensor:
    raised = scores if mask is None else scores + mask.to(scores.dtype)
    return Softmax.weights(self, raised, valid_lens, mask)


def no_nan(self, weights, allowed) -> torch.Tensor:
    return weights.nan_to_num(0.0)


def reshaped(self, q, k) -> torch.Tensor:
    return q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
