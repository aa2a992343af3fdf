"""Lesson 09: small translators with known outputs, and scenarios in which answers use them."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.checks.observe.scenarios import BUILDERS, scenario


class _Noise(nn.Module):
    """A stand-in for dropout that changes results in train mode without drawing numbers."""

    def forward(self, logits):
        return logits.flip(-1) if self.training else logits


class _Translator(nn.Module):
    """A model, `model(source, valid_lens, inputs, mask=None) -> logits`, with a `logits_of`."""

    def __init__(self, start, end, pad, looked_at=""):
        super().__init__()
        self.start, self.end, self.pad = start, end, pad
        self.looked_at, self.graph_built = looked_at, False
        self.noise = _Noise()

    def forward(self, source, valid_lens, inputs, mask=None):
        _check(source, valid_lens, inputs, mask)
        allowed = torch.arange(source.shape[1], device=source.device) < valid_lens[:, None]
        allowed = allowed if mask is None else allowed & mask
        logits = self.noise(
            self.logits_of(source.long(), valid_lens.long(), inputs.long(), allowed)
        )
        self.graph_built |= logits.requires_grad
        return logits

    def logits_of(self, source, valid_lens, inputs, allowed):
        raise NotImplementedError


def _check(source, valid_lens, inputs, mask) -> None:
    """Raise a readable error for inputs that a real model would reject."""
    batch = len(source)
    if inputs.dim() != 2 or len(inputs) != batch:
        got = tuple(inputs.shape)
        raise ValueError(f"`inputs` must have shape (B, t) with B = {batch}; got {got}.")
    if tuple(valid_lens.shape) != (batch,):
        got = tuple(valid_lens.shape)
        raise ValueError(f"`valid_lens` must have shape (B,) = ({batch},); got {got}.")
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"`mask` must be a bool tensor, True = may attend; got {mask.dtype}.")
    if mask is not None and mask.shape != source.shape:
        shapes = f"{tuple(source.shape)}; got {tuple(mask.shape)}"
        raise ValueError(f"`mask` must have shape (B, m) = {shapes}.")


class _Adding(_Translator):
    """A model in which the id of each next word is larger by the item's length."""

    def __init__(self, size, dtype, **options):
        super().__init__(**options)
        self.words = nn.Parameter(torch.eye(size, dtype=dtype))

    def logits_of(self, source, valid_lens, inputs, allowed):
        return F.embedding((inputs + valid_lens[:, None]) % len(self.words), self.words)


class _Voting(_Adding):
    """A model in which each word has one vote, and each visible position adds one for its word."""

    def logits_of(self, source, valid_lens, inputs, allowed):
        votes = (F.embedding(source, self.words) * allowed[..., None]).sum(1, keepdim=True)
        return torch.log(1 + votes).expand(-1, inputs.shape[1], -1)


class _Scripted(_Translator):
    """A model with attention to the source, a fading memory of earlier words, and a fixed end."""

    queries: nn.Parameter
    keys: nn.Parameter
    values: nn.Parameter
    previous: nn.Parameter

    def __init__(self, near, stop, dtype, start, end, pad, looked_at="", **tables):
        super().__init__(start, end, pad, looked_at)
        self.near, self.stop = near, stop
        for name, table in tables.items():
            setattr(self, name, nn.Parameter(torch.tensor(table, dtype=dtype)))

    def logits_of(self, source, valid_lens, inputs, allowed):
        step = torch.arange(inputs.shape[1], device=source.device)
        at = torch.arange(source.shape[1], device=source.device)
        scores = F.embedding(inputs, self.queries) @ F.embedding(source, self.keys).mT
        scores = scores + self.near * (step[:, None] == at)
        scores = scores.masked_fill(~allowed[:, None], -1e30)
        weights = torch.softmax(scores, -1) * allowed[:, None]
        logits = weights @ F.embedding(source, self.values)
        ages = step[:, None] - step
        memory = 0.7 ** ages.clamp(min=0).to(logits) * (ages >= 0)
        logits = logits + memory @ F.embedding(inputs, self.previous)
        over = (step == valid_lens[:, None]).to(logits)
        is_end = torch.arange(logits.shape[-1], device=source.device) == self.end
        return logits + self.stop * (2 * over - 1)[..., None] * is_end


def _builder(kind: Callable[..., _Translator]) -> Callable[..., nn.Module]:
    return lambda *, dtype, training=False, **options: kind(dtype=dtype, **options).train(training)


BUILDERS["adding_translator"] = _builder(_Adding)
BUILDERS["voting_translator"] = _builder(_Voting)
BUILDERS["scripted_translator"] = _builder(_Scripted)


@scenario
def twice(target, probe, args, kwargs):
    """Return the second of two calls with the same objects, which the first must not change."""
    target(*args.values(), **kwargs)
    return target(*args.values(), **kwargs)


@scenario
def with_a_model(target, probe, args, kwargs):
    """Return the result and, if asked, whether a graph was built or the model's mode changed."""
    model = args["model"]
    before = [module.training for module in model.modules()]
    result = target(*args.values(), **kwargs)
    changed = [module.training for module in model.modules()] != before
    looked_at = model.looked_at
    return result, model.graph_built and "graph" in looked_at, changed and "mode" in looked_at
