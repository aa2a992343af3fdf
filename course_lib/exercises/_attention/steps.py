"""The correct masked softmax in named steps. `modules.py` contains the code around it.

A mistake is a subclass that changes some steps. Scores have the shape (..., num_queries, num_keys),
with a batch axis first and optionally one for heads. Lengths are (batch,) or (batch, num_queries),
and masks fit the scores. An exercise without a step sets it to NO_STEP.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

NO_STEP: Any = None  # replaces a step that an exercise does not have


class Stepped:
    """A correct answer in named steps, which are methods or values of a class.

    Only a subclass that is marked as a mistake can be used, so that this file is not an answer.
    """

    is_wrong = False

    def __new__(cls, *args, **kwargs) -> Self:
        if not cls.is_wrong:
            raise TypeError(f"{cls.__name__} is made with at least one step changed")
        return super().__new__(cls)

    @classmethod
    def changed(cls, changes: Mapping[str, object]) -> type[Any]:
        """Return a class like this one except for the given steps, methods or values."""
        return type(cls.__name__, (cls,), {"is_wrong": bool(changes), **changes})

    @classmethod
    def answer(cls) -> Callable:
        """Return this class as an answer to the exercise."""
        return cls


class Softmax(Stepped):
    """`masked_softmax`: align, real; own; join; fill, spare, axis, normalize, clear."""

    axis = -1

    @classmethod
    def answer(cls) -> Callable:
        return cls().weights

    def weights(self, scores, valid_lens=None, mask=None) -> torch.Tensor:
        real = None if valid_lens is None else self.real(scores, valid_lens)
        own = None if mask is None else self.own(scores, mask)
        allowed = self.join(scores, real, own)
        kept = self.spare(self.fill(scores, allowed), allowed)
        return self.clear(self.normalize(kept), allowed)

    def align(self, scores, lens) -> torch.Tensor:
        """Add axes to lengths, for the keys, and for queries and heads if the scores have them."""
        return lens.reshape(len(lens), *[1] * (scores.dim() - 3), -1, 1)

    def real(self, scores, valid_lens) -> torch.Tensor:
        positions = torch.arange(scores.shape[-1], device=scores.device)
        return positions < self.align(scores, valid_lens)

    def own(self, scores, mask) -> torch.Tensor:
        return mask

    def join(self, scores, real, own) -> torch.Tensor:
        allowed = torch.ones_like(scores, dtype=torch.bool)
        for given in (real, own):
            allowed = allowed if given is None else allowed & given
        return allowed

    def fill(self, scores, allowed) -> torch.Tensor:
        return scores.masked_fill(~allowed, -math.inf)

    def spare(self, kept, allowed) -> torch.Tensor:
        """Give finite scores to rows without an allowed key."""
        return kept.masked_fill(~allowed.any(-1, keepdim=True), 0.0)

    def normalize(self, kept) -> torch.Tensor:
        return torch.softmax(kept, self.axis)

    def clear(self, weights, allowed) -> torch.Tensor:
        return weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
