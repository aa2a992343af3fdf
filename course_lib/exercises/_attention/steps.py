"""The right masked softmax in named steps; what is around it is in `modules.py`.

A mistake is the right one with some steps changed (`mistakes.py`), a mistake of two is one with the
steps of both. Shapes: scores (..., num_queries, num_keys), with a batch axis first and perhaps one
for heads; lengths (batch,) or (batch, num_queries); masks that fit the scores. An exercise without
a step sets it to NO_STEP.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

NO_STEP: Any = None  # in the place of a step that an exercise does not have


class Then:
    """A changed step: the right one, and what `function` makes of its result."""

    def __init__(self, function: Callable):
        self.function = function

    def after(self, right: Callable) -> Callable:
        return lambda *args: self.function(right(*args))


def changed(base: type, changes: Mapping[str, object]) -> type:
    """A class like the base but for the given steps: methods, values, or `Then`."""
    made = {
        step: change.after(getattr(base, step)) if isinstance(change, Then) else change
        for step, change in changes.items()
    }
    return type(base.__name__, (base,), made)


class Stepped(Protocol):
    """A right answer in named steps: methods or values of a class."""

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        """An answer to the exercise with these steps changed."""
        ...


class Softmax:
    """`masked_softmax`: lens, spread, real; own; join; fill, spare, axis, clear."""

    axis = -1

    @classmethod
    def answer(cls, changes: Mapping[str, object]) -> Callable:
        """An answer to the exercise with these steps changed."""
        return changed(cls, changes)().weights

    def weights(self, scores, valid_lens=None, mask=None) -> torch.Tensor:
        real = None if valid_lens is None else self.real(scores, valid_lens)
        own = None if mask is None else self.own(scores, mask)
        allowed = self.join(scores, real, own)
        kept = self.spare(self.fill(scores, allowed), allowed)
        return self.clear(torch.softmax(kept, self.axis), allowed)

    def lens(self, valid_lens) -> torch.Tensor:
        return valid_lens

    def spread(self, scores, lens) -> torch.Tensor:
        """Lengths with an axis for the keys, and for queries and heads where the scores have it."""
        return lens.reshape(len(lens), *[1] * (scores.dim() - 3), -1, 1)

    def real(self, scores, valid_lens) -> torch.Tensor:
        positions = torch.arange(scores.shape[-1], device=scores.device)
        return positions < self.spread(scores, self.lens(valid_lens))

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
        """Harmless scores for the rows without any allowed key."""
        return kept.masked_fill(~allowed.any(-1, keepdim=True), 0.0)

    def clear(self, weights, allowed) -> torch.Tensor:
        return weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
