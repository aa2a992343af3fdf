"""`KVCache`: attention of one new position over all those before it."""

import functools
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Problem, arrays_agree, close, tolerance_for
from course_lib.checks.judge.definitions import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import (
    FLOAT32,
    STRIDED,
    Case,
    Given,
    case,
    edge,
    in_steps,
    mistake,
)
from course_lib.reference import language_model as oracle

_ALL = "A new cache is empty, and each query attends to all positions appended to it so far."


def _sizes(rng, batch, heads, d, v, appended, strided=False) -> Given:
    n = sum(appended)
    shapes = {"keys": (n, d), "values": (n, v), "queries": (len(appended), d)}
    drawn = {
        name: tensor(rng.normal(0, 1.5, (batch, heads, *shape)), strided=strided)
        for name, shape in shapes.items()
    }
    return drawn | {"appended": appended}


def _values(rng) -> list[Probe]:
    def probe(name, *sizes, scenario="cache_steps") -> Case:
        return case(name, **_sizes(rng, *sizes), scenario=scenario)

    worked: Given = {"keys": [[[[0.0], [1.0986]]]], "values": [[[[4.0], [8.0]]]]}
    worked |= {"queries": [[[[1.0], [1.0]]]]}
    asked: Given = _sizes(rng, 1, 1, 1, 1, (1,))
    asked |= {"queries": np.full((1, 1, 2, 1), 0.7), "appended": (1, 0)}
    return [
        case("worked_number", **worked, appended=(1, 1), scenario="cache_steps").says(_ALL),
        case("two_caches", **asked, scenario="two_caches",
             compare="apart").says("A new cache is empty and independent of any other."),
        probe("token_by_token", 1, 2, 3, 4, (1, 1, 1, 1)).says(_ALL),
        probe("prompt_first", 1, 2, 3, 2, (4, 1, 1)).says(
            "A prompt of several positions may come first, then single ones."
        ),
        probe("items", 3, 2, 5, 4, (2, 1, 3, 1)).says(
            "Any number of positions may come at once, and each item and head has its own."
        ),
        probe("all_at_once", 2, 3, 4, 5, (6,)).says("All positions may come in one call."),
        probe("asked_twice", 2, 1, 3, 4, (2, 3, 1), scenario="cache_asked_twice").says(
            "A query changes nothing: the next one sees the same positions."
        ),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    def probe(name, given, **options) -> Case:
        return edge(name, **given, **options, scenario="cache_steps")

    large = _sizes(rng, 1, 2, 3, 2, (2, 2))
    large["queries"] = tensor(800 * large["queries"].data)
    return [
        probe("large_scores", large).says("Large scores do not overflow."),
        probe("many_positions", _sizes(rng, 1, 1, 2, 1, (1, 2047, 1, 60))).says(
            "There is no limit to the number of positions."
        ),
        probe("float32", _sizes(rng, 1, 2, 3, 2, (2, 1)), **FLOAT32).says("Float32 stays float32."),
        probe("strided", _sizes(rng, 2, 2, 3, 4, (2, 2), strided=True)).says(STRIDED),
    ]


def _apart(probe, expected, recorded) -> Problem | None:
    first, second = recorded.numbers[0, 0]
    if arrays_agree(first, second, tolerance_for(probe, recorded)):
        return close(probe, expected, recorded)
    return Problem(
        "caches_shared",
        "The outputs of one cache change after only another cache has been filled.",
        "Do both caches use a name of the class or a default argument, or does `attend` change "
        "its cache?",
    )


def _unfilled(probe, outputs) -> str | None:
    """Recognize zeros in keys and values, which add exp(0) to the sum and nothing to the output."""
    given = [getattr(value, "data", value) for value in probe.inputs().values()]
    if probe.scenario != "cache_steps" or sum(probe.inputs()["appended"]) < 2:
        return None
    expected, found = oracle.kv_cache(*given).outputs, outputs.numbers
    if expected.shape[-1] < 2 or np.abs(expected).min() < 1e-3:
        return None
    factors = found / expected
    alike = np.allclose(factors, factors[..., :1], rtol=1e-5)
    if not alike or not ((factors > 0) & (factors < 0.999)).all():
        return None
    return (
        f"Your first output is the correct one times {factors[0, 0, 0, 0]:.3f}, because some of "
        "the weight goes to places of your buffer that still hold zeros."
    )


def _joined(old, new, axis=2) -> torch.Tensor:
    return new if old is None else torch.cat([old, new], dim=axis)


def _prepended(old, new) -> torch.Tensor:
    return new if old is None else torch.cat([new, old], dim=2)


@in_steps(join=_joined, join_values=None, power=0.5, forgets=False)
def _model(join, join_values, power, forgets) -> type:
    """Return a correct cache in which each step may be changed."""

    class KVCache:
        def __init__(self) -> None:
            self.keys: Any = None
            self.values: Any = None

        def append(self, keys, values) -> None:
            self.keys = join(self.keys, keys)
            self.values = (join_values or join)(self.values, values)

        def attend(self, query) -> torch.Tensor:
            keys, values = self.keys, self.values
            if forgets:
                self.keys = self.values = None
            return (query @ keys.mT / query.shape[-1] ** power).softmax(-1) @ values

    return KVCache


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    starred=True,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_heads", "steps", "v")),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    oracle=oracle.kv_cache,
    comparisons={"apart": _apart},
    exact=("apart",),
    mistakes=(
        mistake("overwritten", _model(join=lambda old, new: new)).says(
            "Each `append` replaces what was there, so a query attends only to the last append.",
            "What should `self` hold after two calls to `append`?",
        ),
        mistake(
            "wrong_axis",
            _model(join=functools.partial(_joined, axis=1)),
            twins=tuple(_model(join=functools.partial(_joined, axis=axis)) for axis in (0, 3)),
        ).says(
            "You join the new positions along an axis other than that of the positions.",
            "Which axis of (B, h, s, d) counts the positions?",
        ),
        mistake("unscaled", _model(power=0)).says(
            "The scores are not divided by the root of d.",
            "What must q . k be divided by so that its size does not grow with d?",
        ),
        mistake(
            "keys_and_values_in_another_order",
            _model(join_values=_prepended),
            twins=(_model(join=_prepended, join_values=_joined),),
        ).says(
            "You append the new keys and the new values on different sides, so a key meets the "
            "value of another position.",
            "In which order do you pass the old and the new ones to `cat`?",
        ),
        mistake("emptied_by_attend", _model(forgets=True)).says(
            "`attend` empties the cache: the next call finds only what was appended since, or "
            "nothing.",
            "Which of the two methods may change what `self` holds?",
        ),
    ),
    properties=(
        Property("unfilled_places", _unfilled, "Which part of your buffer has been filled?"),
    ),
    hints=(
        "A cache is a list that grows: the keys and values of the first position, of the second, "
        "and so on. The newest query may see all of them, so no mask is needed.",
        "Let `append` put the new keys after the old ones along the axis of the positions, and "
        "the values likewise. `attend` is lesson 05's attention: scores over the root of d, "
        "softmax over the positions, weighted sum.",
        "def append(self, keys, values):\n"
        "    if self.keys is None: ...\n"
        "    else: self.keys = torch.cat([self.keys, ...], dim=...)\n"
        "def attend(self, query):\n"
        "    scores = query @ self.keys.mT / ...\n"
        "    return ... @ self.values",
    ),
)
