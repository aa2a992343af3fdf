"""Models of mistakes in switching a head off: hooks and weights, one step at a time replaced."""

import contextlib
from collections.abc import Callable, Iterator

import torch

from course_lib.exercises._rows import in_steps


def _parts(model, layer) -> list:
    return [m for m in model.blocks[layer].modules() if hasattr(m, "W_o")]


def _block_of(part, head) -> slice:
    size = part.W_o.in_features // part.num_heads
    return slice(head * size, (head + 1) * size)


def _zero_at(features) -> Callable:
    def hook(module, inputs) -> torch.Tensor:
        x = inputs[0].clone()
        x[..., features] = 0.0
        return x

    return hook


@in_steps(
    features=_block_of,
    parts=_parts,
    hook_of=_zero_at,
    around=contextlib.nullcontext,
    removed="always",
)
def switch(
    features: Callable, parts: Callable, hook_of: Callable, around: Callable, removed: str
) -> Callable:
    """A right answer; each argument is one step of it."""

    @contextlib.contextmanager
    def ablate_head(model, layer, head) -> Iterator[None]:
        chosen = parts(model, layer)
        handles = [
            part.W_o.register_forward_pre_hook(hook_of(features(part, head))) for part in chosen
        ]
        if removed == "too early":
            _remove(handles)
        try:
            with around():
                yield
        except Exception:
            if removed in ("always", "too early"):
                _remove(handles)
            if removed != "hides errors":
                raise
        if removed != "never":
            _remove(handles)

    return ablate_head


def _remove(handles) -> None:
    for handle in handles:
        handle.remove()


def interleaved(part, head) -> slice:
    return slice(head, None, part.num_heads)


def by_what_it_writes(part, head) -> slice:
    size = part.W_o.out_features // part.num_heads
    return slice(head * size, (head + 1) * size)


def next_head(part, head) -> slice:
    return _block_of(part, head + 1)


def others(part, head) -> list[int]:
    own = range(part.W_o.in_features)[_block_of(part, head)]
    return [i for i in range(part.W_o.in_features) if i not in own]


def all_parts(model, layer) -> list:
    return [m for m in model.modules() if hasattr(m, "W_o")]


def detached(features) -> Callable:
    def hook(module, inputs) -> torch.Tensor:
        return _zero_at(features)(module, [inputs[0].detach()])

    return hook


@in_steps(columns=True, copy=True, restored="always")
def zeroed(columns, copy, restored) -> Callable:
    """The same with the weights of W_o, set to 0 and put back."""

    @contextlib.contextmanager
    def ablate_head(model, layer, head) -> Iterator[None]:
        (part,) = _parts(model, layer)
        own = _block_of(part, head)
        weights = part.W_o.weight.data[:, own] if columns else part.W_o.weight.data[own]
        kept = weights.clone() if copy else weights
        weights.zero_()
        try:
            yield
        except Exception:
            if restored == "always":
                weights.copy_(kept)
            raise
        if restored != "never":
            weights.copy_(kept)

    return ablate_head
