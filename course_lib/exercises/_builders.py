"""Builders of probes and known mistakes, which add the sentence for students last."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from course_lib.checks.judge.definitions import Mistake
from course_lib.checks.observe.probe import Array, Probe, tensor

Given = dict[str, Any]  # arguments of a call or fields of its probe, by name

# Arguments and sentences of probes in several exercises.
FLOAT32: Given = {"dtype": "float32"}
BETWEEN: Given = {"scenario": "between_calls"}
INDEPENDENT = (
    "Calls and modules must be independent: outputs and `attention_weights` must be those of the "
    "module's last call, whatever came before and whatever other modules do."
)
# Patterns of names in `cost_meter.Calls` that match every ready-made attention in torch.
READY_MADE_ATTENTION = (
    *("*scaled_dot_product*", "*flash_attention*", "*efficient_attention*", "flex_attention"),
    *("*multi_head_attention*", "*transformer_encoder_layer*"),
)
_FIELDS = {field.name for field in fields(Probe)} - {"args", "kwargs"}


@dataclass(frozen=True)
class Case:
    """A probe without its sentence."""

    name: str
    given: Mapping[str, Any]

    def says(self, sentence: str) -> Probe:
        """Return the probe with a sentence that tells a student what must hold."""
        return Probe(self.name, sentence, **self.given)


_NONE: Mapping[str, Any] = {}


def case(name: str, *, args: Mapping = _NONE, by_name: Mapping = _NONE, **given) -> Case:
    """Call the answer on ordinary input; with `grad_outputs`, also compute its gradients.

    `case("square", num_queries=3).says("Query i sees keys 0 to i.")` calls it with the argument 3.

    Args:
        name: short id, unique within the exercise.
        args: arguments whose names are fields of `Probe` or not identifiers.
        by_name: arguments that are passed by keyword.
        given: fields of `Probe`, and the other arguments in their order. Arrays and lists of
            numbers become tensors.
    """
    options = {key: value for key, value in given.items() if key in _FIELDS}
    named = {key: value for key, value in given.items() if key not in _FIELDS}
    args, kwargs = ({k: _argument(v) for k, v in d.items()} for d in ({**args, **named}, by_name))
    part = "gradients" if "grad_outputs" in options else "values"
    return Case(name, {"part": part, "args": args, "kwargs": kwargs, **options})


def edge(name: str, **given) -> Case:
    """Make a `case` of the edges: sizes of one, empty rows, extreme numbers, other dtypes."""
    return case(name, part="edges", **given)


def _argument(value: Any) -> Any:
    made = isinstance(value, list) and any(isinstance(item, Array) for item in value)
    return tensor(value) if isinstance(value, np.ndarray | list) and not made else value


def in_eighths(numbers: np.ndarray) -> np.ndarray:
    """Round numbers to eighths, so that float32 represents products and sums of them exactly."""
    return np.round(8 * numbers) / 8


_LARGEST = float(np.finfo(np.float32).max)  # answers may compute in float32 for float64 inputs, too


def at_the_largest(make: Callable[[float], Mapping]) -> list[Probe]:
    """Put the largest numbers of float32 where they have no effect, with `make(size)`."""
    return [
        edge(f"largest_{dtype}", **make(_LARGEST), dtype=dtype).says(
            f"In {dtype}, too, masked numbers of any finite size must have no effect."
        )
        for dtype in ("float32", "float64")
    ]


LOG_OF_SOFTMAX = (
    "You take exponentials before the logarithm. With large logits they may overflow or "
    "underflow, and the result may be infinite or NaN.",
    "Which function takes the softmax and the logarithm in one step?",
)
GRAPH_KEPT = (
    "The model ran with gradients enabled, so autograd built a graph in each call.",
    "What does `torch.no_grad()` do?",
)
MODE_CHANGED = (
    "The call does not restore the mode (train or eval) that the model was in.",
    "What was `model.training` before you changed it?",
)
RESHAPED = (
    "You reshape the logits to (batch, vocabulary, positions), which mixes positions and "
    "vocabulary. Swap the axes, or join batch and positions.",
    "What is the difference between `reshape` and `transpose`?",
)


def in_steps(**right: Any) -> Callable[[Callable], Callable[..., Any]]:
    """Make the correct steps the defaults of a function that makes a model from its steps."""

    def with_right(make: Callable) -> Callable:
        def changed(*first: Any, **changes: Any) -> Any:
            changes |= dict(zip(right, first, strict=False))
            if not changes:
                raise TypeError(f"{make.__name__} makes a model with at least one step changed")
            return make(**right | changes)

        return changed

    return with_right


@dataclass(frozen=True)
class Model:
    """A known mistake without its message."""

    id: str
    model: Callable
    twins: tuple[Callable, ...]

    def says(self, fact: str, question: str) -> Mistake:
        """Return the mistake with the fact in one or two sentences and one question."""
        return Mistake(self.id, self.model, fact, question, self.twins)


def mistake(id: str, model: Callable, *, twins: tuple[Callable, ...] = ()) -> Model:
    """Make a known mistake: `mistake("transposed", lambda q, k: k @ q.mT).says("...", "...?")`.

    Args:
        id: name used in messages, tests and class reports.
        model: function or class with the exercise's signature that makes this mistake.
        twins: other models of the same mistake.
    """
    return Model(id, model, twins)
