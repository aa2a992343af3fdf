"""`ablate_head`: switch one head off inside a `with`, and restore everything afterwards."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem, close
from course_lib.checks.judge.definitions import Exercise, Marking, Returned, Rules
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises import kit
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.exercises.language_model.fixtures_heads import WEIGHTS_CHANGED

_ATTRIBUTES = ("attention", "attn", "mixer.heads")


def drawn(rng, num_heads=3, head_dim=2, embed_dim=5, layers=2, bias=False, **given) -> Built:
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


def call(model, tokens, layer, head, *then, moment="inside", part="values") -> Probe:
    """Return a call at whose `moment` the model runs, perhaps with a second head, `then`."""
    names = ("model", "tokens", "layer", "head", "second_layer", "second_head")[: 4 + len(then)]
    fields: dict[str, Any] = {"scenario": "head_switched_off", "compare": "as_it_was", "part": part}
    return kit.call(model, tokens, layer, head, *then, names=names, model_runs=moment, **fields)


def problems(rng) -> Problems:
    # One block with two heads of one feature. x becomes x + x + 10 x, or x + x without head 1.
    layer = {"name": "attention", "read": np.array([[1.0], [10.0]]), "bias": None}
    options: dict[str, Any] = {"embedding": np.array([[1.0], [2.0]]), "num_heads": 2}
    options["layers"] = [layer | {"W_o": np.array([[1.0, 1.0]])}]
    says = "one block of two heads, of which head 0 adds x and head 1 adds 10 x"

    def case(*heads, moment="inside", part="values", **sizes: Any) -> Probe:
        model = drawn(rng, **sizes)
        return call(model, rng.integers(0, 7, (2, 4)), *heads, moment=moment, part=part)

    edge = functools.partial(case, part="edges")
    gradient = functools.partial(case, part="gradients", num_heads=2)
    after, step = "after the with", "inside, after a step of training"
    as_before = "After the `with`, the model must be what it was before."
    yield "Inside the `with`, W_o must read zeros in place of this head's output."
    yield call(Built("small_language_model", options, says), [[0]], 0, 1)
    yield case(0, 0)
    yield case(0, 3, num_heads=4, embed_dim=8)
    yield as_before
    yield case(1, 2, moment=after)
    yield "An error raised inside must propagate, and the model must be what it was."
    yield case(0, 1, moment="after an error inside the with")
    yield "A second `with` after the first must switch off its own head alone."
    yield case(0, 1, 1, 0, moment="inside the second")
    yield "In nested `with` blocks, both heads must be off inside."
    yield edge(1, 0, 1, 2, moment="inside both")
    yield "After the inner `with`, the head of the outer one must still be off."
    yield edge(1, 0, 1, 2, moment="inside the outer, after the inner")
    yield "The bias of W_o belongs to no head: keep it."
    yield edge(1, 0, bias=True)
    yield "The heads are equal blocks of the features that W_o reads, however many it writes."
    yield edge(1, 1, head_dim=4, embed_dim=6)
    yield "The part with W_o and num_heads may be anywhere in the block."
    yield edge(2, 0, layers=3)
    yield "With a single head nothing is left, and the block must add 0."
    yield edge(1, 0, num_heads=1, head_dim=6)
    yield as_before
    yield edge(0, 2, moment=after, training=True)
    yield "Inside the `with`, gradients must be as usual, including those of other heads."
    yield gradient(0, 1, moment=step, layers=1, embed_dim=4)
    yield (
        "Inside the `with`, this head's columns of `W_o.weight` must get a gradient of 0, and all "
        "others the usual one."
    )
    yield gradient(1, 1, moment=step, embed_dim=3)
    yield (
        "A backward pass through results computed inside the `with` must give the same gradients "
        "when it runs after the `with`."
    )
    yield gradient(1, 0, moment=f"{after}, after a step from inside", embed_dim=3)


def as_it_was(probe, expected, recorded) -> Problem | None:
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


def part_of(model, layer) -> Any:
    return next(m for m in model.blocks[layer].modules() if hasattr(m, "W_o"))


def block_of(part, head, width=None) -> slice:
    size = (part.W_o.in_features if width is None else width) // part.num_heads
    return slice(head * size, (head + 1) * size)


def zero_at(part, features) -> Any:
    """Make `W_o` read zeros in these features. Return the handle of the hook."""

    def hook(module, inputs) -> torch.Tensor:
        x = inputs[0].clone()
        x[..., features] = 0.0
        return x

    return part.W_o.register_forward_pre_hook(hook)


@mistake
@contextlib.contextmanager
def not_restored_after_an_error(model, layer, head) -> Iterator[None]:
    """After an error inside the `with`, the head is still off.

    Which block of a `try` always runs, however the `try` ends?
    """
    part = part_of(model, layer)
    handle = zero_at(part, block_of(part, head))
    yield
    handle.remove()


@mistake
@contextlib.contextmanager
def weights_zeroed(model, layer, head) -> Iterator[None]:
    """You set columns of `W_o.weight` to 0. These columns still get a gradient, so after a training
    step they may no longer be 0.

    If `W_o` reads zeros instead, what is the gradient of these columns?
    """
    part = part_of(model, layer)
    weights = part.W_o.weight.data[:, block_of(part, head)]
    kept = weights.clone()
    weights.zero_()
    try:
        yield
    finally:
        weights.copy_(kept)


@mistake
@contextlib.contextmanager
def detached(model, layer, head) -> Iterator[None]:
    """Your hook detaches the features that `W_o` reads, so no gradient passes through `W_o` to the
    other heads.

    Which method copies a tensor without detaching it from the graph?
    """

    def hook(module, inputs) -> torch.Tensor:
        x = inputs[0].detach().clone()
        x[..., block_of(part, head)] = 0.0
        return x

    part = part_of(model, layer)
    handle = part.W_o.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@mistake
@contextlib.contextmanager
def same_layer_always(model, layer, head) -> Iterator[None]:
    """You always switch off a head of one fixed layer, such as layer 0, whatever `layer` is.

    Which line of your code uses `layer`?
    """
    part = part_of(model, 0)
    handle = zero_at(part, block_of(part, head))
    try:
        yield
    finally:
        handle.remove()


@mistake
@contextlib.contextmanager
def output_zeroed(model, layer, head) -> Iterator[None]:
    """You zero features of the output of `W_o`, which mixes all heads. A head's own output is a
    block of the features that `W_o` reads.

    Does your hook get what `W_o` reads or what it writes?
    """

    def hook(module, inputs, output) -> torch.Tensor:
        output = output.clone()
        output[..., block_of(part, head)] = 0.0
        return output

    part = part_of(model, layer)
    handle = part.W_o.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def switched_off(features: Callable) -> Callable:
    """Return an answer that zeroes `features(part, head)`."""

    @contextlib.contextmanager
    def ablate_head(model, layer, head) -> Iterator[None]:
        part = part_of(model, layer)
        handle = zero_at(part, features(part, head))
        try:
            yield
        finally:
            handle.remove()

    return ablate_head


@mistake
def other_features(model, layer, head) -> Any:
    """You zero the wrong features: none, all, those of other heads, such as the next one, every
    num_heads-th one, or a block of the wrong size.

    Which of the features that W_o reads belong to this head?
    """
    return switched_off(lambda part, head: slice(None))(model, layer, head)


for _features in (
    lambda part, head: slice(head, None, part.num_heads),
    lambda part, head: block_of(part, head - 1) if head else slice(0),
    lambda part, head: block_of(part, (head - 1) % part.num_heads),
    lambda part, head: block_of(part, head + 1),
    lambda part, head: block_of(part, head, part.W_o.out_features),
    lambda part, head: [
        i
        for i in range(part.W_o.in_features)
        if i not in range(part.W_o.in_features)[block_of(part, head)]
    ],
):
    like(other_features)(switched_off(_features))


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=3,
    returns=(
        Returned("logits", "tensor", "float", ("batch", "n", "vocabulary")),
        Returned("changes", "str"),
    ),
    probes=problems,
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
    rules=Rules(may_be_class=True),
    marking=Marking(comparisons={"as_it_was": as_it_was}, exact=("as_it_was",)),
)
