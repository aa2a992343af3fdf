"""`ablate_head`: switch one head off inside a `with`, and restore everything afterwards."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem, close
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.lessons.language_model_heads import WEIGHTS_CHANGED
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._builders import Case, Given, case, in_steps, mistake

_ATTRIBUTES = ("attention", "attn", "mixer.heads")
_OBSERVED: Given = {"scenario": "head_switched_off", "compare": "as_it_was"}


def _model(rng, num_heads=3, head_dim=2, embed_dim=5, layers=2, bias=False, **given) -> Built:
    """Make a model of 7 tokens; `W_o` reads num_heads * head_dim features and writes embed_dim."""

    def normal(*shape) -> np.ndarray:
        return rng.normal(0, 0.9, shape)

    width = num_heads * head_dim
    made = [
        {
            "name": name,
            "read": normal(width, embed_dim),
            "W_o": normal(embed_dim, width),
            "bias": normal(embed_dim) if bias else None,
        }
        for name in _ATTRIBUTES[:layers]
    ]
    options = {"embedding": normal(7, embed_dim), "num_heads": num_heads, "layers": made}
    return Built("small_language_model", options | given, "a model with random weights")


def _probe(rng, name, layer, head, moment="inside", part="values", then=(), **options) -> Case:
    given = dict(zip(("second_layer", "second_head"), then, strict=False))
    args = {"model": _model(rng, **options), "tokens": tensor(rng.integers(0, 7, (2, 4)))}
    return case(
        name,
        part=part,
        args={**args, "layer": layer, "head": head, **given},
        by_name={"model_runs": moment},
        **_OBSERVED,
    )


_OFF = "Inside the `with`, W_o must read zeros in place of this head's output."
_AS_BEFORE = "After the `with`, the model must be what it was before."
_AFTER = "after the with"


def _values(rng) -> list[Probe]:
    # One block with two heads of one feature. x becomes x + x + 10 x, or x + x without head 1.
    layer: Given = {"name": "attention", "read": np.array([[1.0], [10.0]]), "bias": None}
    options: Given = {"embedding": np.array([[1.0], [2.0]]), "num_heads": 2}
    options["layers"] = [layer | {"W_o": np.array([[1.0, 1.0]])}]
    says = "one block of two heads, of which head 0 adds x and head 1 adds 10 x"
    model = Built("small_language_model", options, says)
    worked: Given = {"model": model, "tokens": tensor([[0]]), "layer": 0, "head": 1}
    probe = functools.partial(_probe, rng)
    return [
        case("worked", args=worked, by_name={"model_runs": "inside"}, **_OBSERVED).says(_OFF),
        probe("first_head", 0, 0).says(_OFF),
        probe("last_head", 0, 3, num_heads=4, embed_dim=8).says(_OFF),
        probe("afterwards", 1, 2, _AFTER).says(_AS_BEFORE),
        probe("after_an_error", 0, 1, "after an error inside the with").says(
            "An error raised inside must propagate, and the model must be what it was."
        ),
        probe("one_after_the_other", 0, 1, "inside the second", then=(1, 0)).says(
            "A second `with` after the first must switch off its own head alone."
        ),
    ]


def _edges(rng) -> list[Probe]:
    edge = functools.partial(_probe, rng, part="edges")
    return [
        edge("two_heads", 1, 0, "inside both", then=(1, 2)).says(
            "In nested `with` blocks, both heads must be off inside."
        ),
        edge("after_the_inner", 1, 0, "inside the outer, after the inner", then=(1, 2)).says(
            "After the inner `with`, the head of the outer one must still be off."
        ),
        edge("with_biases", 1, 0, bias=True).says("The bias of W_o belongs to no head: keep it."),
        edge("wide_heads", 1, 1, head_dim=4, embed_dim=6).says(
            "The heads are equal blocks of the features that W_o reads, however many it writes."
        ),
        edge("found_deeper", 2, 0, layers=3).says(
            "The part with W_o and num_heads may be anywhere in the block."
        ),
        edge("one_head", 1, 0, num_heads=1, head_dim=6).says(
            "With a single head nothing is left, and the block must add 0."
        ),
        edge("in_train_mode", 0, 2, _AFTER, training=True).says(_AS_BEFORE),
    ]


def _gradients(rng) -> list[Probe]:
    gradient = functools.partial(_probe, rng, part="gradients", num_heads=2)
    step = "inside, after a step of training"
    return [
        gradient("gradient_of_one_layer", 0, 1, step, layers=1, embed_dim=4).says(
            "Inside the `with`, gradients must be as usual, including those of other heads."
        ),
        gradient("gradient", 1, 1, step, embed_dim=3).says(
            "Inside the `with`, this head's columns of `W_o.weight` must get a gradient of 0, and "
            "all others the usual one."
        ),
        gradient(
            "gradient_afterwards", 1, 0, f"{_AFTER}, after a step from inside", embed_dim=3
        ).says(
            "A backward pass through results computed inside the `with` must give the same "
            "gradients when it runs after the `with`."
        ),
    ]


def _as_it_was(probe, expected, recorded) -> Problem | None:
    """Compare the logits, but first report a model that was not restored."""
    logits, changes = recorded.items.values()
    if changes.text == "nothing":
        return close(probe, expected[0], logits)
    name = "weights_zeroed" if changes.text == WEIGHTS_CHANGED else ""
    return Cause(
        "left_over",
        f"{changes.text[0].upper()}{changes.text[1:]}.",
        "Which line causes this? Can it work on a copy, or do you undo only that change, and what "
        "happens to an error?",
        name,
    )


def _part(model, layer) -> Any:
    return next(m for m in model.blocks[layer].modules() if hasattr(m, "W_o"))


def _block_of(part, head, width=None) -> slice:
    size = (part.W_o.in_features if width is None else width) // part.num_heads
    return slice(head * size, (head + 1) * size)


def _zero_at(features) -> Callable:
    def hook(module, inputs) -> torch.Tensor:
        x = inputs[0].clone()
        x[..., features] = 0.0
        return x

    return hook


@in_steps(features=_block_of, around=contextlib.nullcontext, removed="always")
def _switch(features: Callable, around: Callable, removed: str) -> Callable:
    """Return a correct answer; each argument is one of its steps."""

    @contextlib.contextmanager
    def ablate_head(model, layer, head) -> Iterator[None]:
        part = _part(model, layer)
        handle = part.W_o.register_forward_pre_hook(_zero_at(features(part, head)))
        if removed == "too early":
            handle.remove()
        try:
            with around():
                yield
        except Exception:
            if removed in ("always", "too early"):
                handle.remove()
            raise
        if removed != "never":
            handle.remove()

    return ablate_head


@contextlib.contextmanager
def _zeroed(model, layer, head) -> Iterator[None]:
    """Temporarily zero the weights of W_o, which gives correct logits but wrong gradients."""
    part = _part(model, layer)
    weights = part.W_o.weight.data[:, _block_of(part, head)]
    kept = weights.clone()
    weights.zero_()
    try:
        yield
    finally:
        weights.copy_(kept)


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=3,
    may_be_class=True,
    returns=(
        Returned("logits", "tensor", "float", ("batch", "n", "vocabulary")),
        Returned("changes", "str"),
    ),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    mistakes=(
        mistake("not_restored_after_an_error", _switch(removed="without errors")).says(
            "After an error inside the `with`, the head is still off.",
            "Which block of a `try` always runs, however the `try` ends?",
        ),
        mistake("weights_zeroed", _zeroed).says(
            "You set columns of `W_o.weight` to 0. These columns still get a gradient, so after a "
            "training step they may no longer be 0.",
            "If `W_o` reads zeros instead, what is the gradient of these columns?",
        ),
        mistake(
            "other_features",
            _switch(features=lambda part, head: slice(None)),
            twins=(
                _switch(features=lambda part, head: slice(head, None, part.num_heads)),
                _switch(features=lambda part, head: _block_of(part, head, part.W_o.out_features)),
            ),
        ).says(
            "You zero the wrong features: none, all, every num_heads-th one, or a block of the "
            "wrong size.",
            "Which of the features that W_o reads belong to this head?",
        ),
    ),
    comparisons={"as_it_was": _as_it_was},
    exact=("as_it_was",),
    hints=(
        "A head's whole output passes through W_o. What would W_o have to read, and in which "
        "features, if the head said nothing?",
        "A forward pre-hook of `W_o` gets `(module, inputs)` before W_o runs; W_o reads what the "
        "hook returns instead. Register it before the `yield` and remove it afterwards, in a "
        "`finally`. Leave `W_o.weight` alone: its gradient needs the numbers that it has.",
        "Three heads of two features: which columns of (batch, n, 6) are those of head 1? A "
        "forward pre-hook sees what a module is about to read and may replace it. Afterwards the "
        "hook must be gone, even if the block raised.",
    ),
)
