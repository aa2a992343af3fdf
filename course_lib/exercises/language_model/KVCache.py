"""`KVCache`: attention of one new position over all earlier ones."""

from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem, arrays_agree, close, tolerance_for
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import unshifted, words
from course_lib.exercises._builders import (
    FLOAT32,
    Case,
    Given,
    case,
    edge,
    in_eighths,
    in_steps,
    mistake,
)
from course_lib.reference import language_model as oracle

_ALL = "`attend` must return softmax(q K^T / sqrt(d)) V over all positions appended so far."


def _sizes(rng, batch, heads, d, v, appended) -> Given:
    n = sum(appended)
    shapes = {"keys": (n, d), "values": (n, v), "queries": (len(appended), d)}
    drawn = {
        name: tensor(rng.normal(0, 1.5, (batch, heads, *shape))) for name, shape in shapes.items()
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
             compare="apart").says("A new cache must be empty and independent of others."),
        probe("token_by_token", 1, 2, 3, 4, (1, 1, 1, 1)).says(_ALL),
        probe("prompt_first", 1, 2, 3, 2, (4, 1, 1)).says(
            "A prompt of several positions may come first, then single ones."
        ),
        probe("items", 3, 2, 5, 4, (2, 1, 3, 1)).says(
            "Any number of positions may come at once, and each item and head has its own."
        ),
        probe("all_at_once", 2, 3, 4, 5, (6,)).says("All positions may come in one call."),
        probe("asked_twice", 2, 1, 3, 4, (2, 3, 1), scenario="cache_asked_twice").says(
            "A query must change nothing: the next one must see the same positions."
        ),
    ]  # fmt: skip


def _edges(rng) -> list[Probe]:
    def probe(name, given, **options) -> Case:
        return edge(name, **given, **options, scenario="cache_steps")

    large = _sizes(rng, 1, 2, 4, 2, (2, 2))
    large["queries"] = tensor(800 * in_eighths(large["queries"].data))
    large["keys"] = tensor(in_eighths(large["keys"].data))
    return [
        probe("large_scores", large).says("Large scores must not overflow."),
        probe("many_positions", _sizes(rng, 1, 1, 2, 1, (1, 2047, 1, 60))).says(
            "There must be no limit to the number of positions."
        ),
        probe("float32", _sizes(rng, 1, 2, 3, 2, (2, 1)), **FLOAT32).says("Keep float32."),
    ]


def _apart(probe, expected, recorded) -> Problem | None:
    first, second = recorded.numbers[0, 0]
    if arrays_agree(first, second, tolerance_for(probe, recorded)):
        return close(probe, expected, recorded)
    return Cause(
        "caches_shared",
        "A cache's outputs for the same query change when only another cache is filled.",
        "Do both caches use a name of the class or a default argument, or does `attend` change "
        "its cache?",
    )


def _joined(old, new) -> torch.Tensor:
    return new if old is None else torch.cat([old, new], dim=2)


@in_steps(
    join=_joined,
    size=lambda query, keys, values: query.shape[-1],
    normalize=lambda scores: scores.softmax(-1),
)
def _model(join, size, normalize) -> type:
    """Return a correct cache in which each step may be changed."""

    class KVCache:
        def __init__(self) -> None:
            self.keys: Any = None
            self.values: Any = None

        def append(self, keys, values) -> None:
            self.keys = join(self.keys, keys)
            self.values = join(self.values, values)

        def attend(self, query) -> torch.Tensor:
            keys, values = self.keys, self.values
            return normalize(query @ keys.mT / size(query, keys, values) ** 0.5) @ values

    return KVCache


def _top_left(scores) -> torch.Tensor:
    return scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf).softmax(-1)


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
            "A query misses what was appended earlier: each `append` replaces what was there, or "
            "`attend` empties the cache.",
            "What should `self` hold after `append`, `attend` and `append`, in this order?",
        ),
        mistake("unscaled", _model(size=lambda *given: 1)).says(*words("unscaled")),
        mistake(
            "root_of_another_size",
            _model(size=lambda query, keys, values: values.shape[-1]),
            twins=(
                _model(size=lambda query, keys, values: keys.shape[-2]),
                _model(size=lambda query, keys, values: query.shape[-1] ** 2),
            ),
        ).says(*words("root_of_another_size")),
        mistake(
            "over_queries",
            _model(normalize=lambda scores: scores.softmax(-2)),
            twins=tuple(_model(normalize=lambda s, axis=axis: s.softmax(axis)) for axis in (0, 1)),
        ).says(*words("over_queries")),
        mistake("is_causal", _model(normalize=_top_left)).says(
            "Your query attends only to the first position. `is_causal=True` aligns the first "
            "query with the first key, but the newest query belongs to the last position.",
            "Which positions may the newest query attend to, and does it need a mask?",
        ),
        mistake("unstable", _model(normalize=unshifted)).says(*words("unstable")),
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
