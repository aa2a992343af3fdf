"""`KVCache`: keys and values of all positions so far."""

from typing import Any

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import (
    FLOAT32,
    Case,
    Given,
    case,
    edge,
    in_steps,
    mistake,
)
from course_lib.reference import real_model as oracle

_ALL = "`append` must return all keys and all values so far, in the order of the calls."


def _sizes(rng, batch, groups, d, v, appended) -> Given:
    shapes = {"keys": d, "values": v}
    n = sum(appended)
    drawn: Given = {
        name: tensor(rng.normal(0, 1.5, (batch, groups, n, size))) for name, size in shapes.items()
    }
    return drawn | {"appended": appended, "scenario": "cache_filled"}


def _probes(rng) -> list[Probe]:
    def probe(name, *sizes) -> Case:
        return case(name, **_sizes(rng, *sizes))

    two_caches: Given = _sizes(rng, 2, 1, 3, 4, (2, 1, 2)) | {"scenario": "two_caches_filled"}
    same: Given = _sizes(rng, 2, 2, 3, 3, (3, 1, 1))
    same["values"] = same["keys"]
    worked: Given = {"keys": [[[[0.5], [2.0]]]], "values": [[[[4.0], [8.0]]]]}
    return [
        case("worked_number", **worked, appended=(1, 1), scenario="cache_filled").says(_ALL),
        probe("token_by_token", 1, 2, 3, 4, (1, 1, 1, 1)).says(_ALL),
        probe("prompt_first", 1, 2, 3, 2, (4, 1, 1)).says(
            "The first call may add a prompt of several positions, and later calls one each."
        ),
        probe("items", 3, 2, 4, 4, (2, 1, 3, 1)).says(
            "A call may add any number of positions. Items and groups must stay separate."
        ),
        probe("all_at_once", 2, 3, 4, 5, (6,)).says(
            "The first call must return what it was given, and the length must then be the number "
            "of its positions."
        ),
        case("equal", **same).says(
            "If the values equal the keys, both results must be equal, and the length must be the "
            "number of positions so far."
        ),
        case("two_caches", **two_caches)
        .says("A new cache must be empty and independent of others."),
        edge("many_positions", **_sizes(rng, 1, 1, 2, 1, (1, 2047, 1, 60))).says(
            "The cache must accept any number of positions."
        ),
        edge("float32", **_sizes(rng, 1, 2, 3, 2, (2, 1)), **FLOAT32).says(
            "Float32 must stay float32."
        ),
    ]  # fmt: skip


def _joined(old, new) -> torch.Tensor:
    return new if old is None else torch.cat([old, new], dim=2)


@in_steps(
    join=_joined,
    swap=lambda keys, values: (keys, values),
    length=lambda cache: 0 if cache.keys is None else cache.keys.shape[2],
)
def _model(join, swap, length) -> type:
    """Return a correct cache in which each step may be changed."""

    class KVCache:
        def __init__(self) -> None:
            self.keys: Any = None
            self.values: Any = None
            self.calls = 0

        def __len__(self) -> int:
            return length(self)

        def append(self, keys, values) -> tuple:
            self.calls += 1
            self.keys, self.values = join(self.keys, keys), join(self.values, values)
            return swap(self.keys, self.values)

    return KVCache


EXERCISE = Exercise(
    points=3,
    minutes=8,
    difficulty=1,
    is_class=True,
    returns=(
        Returned("keys", "tensor", "float", ("batch", "num_groups", "positions so far", "d")),
        Returned("values", "tensor", "float", ("batch", "num_groups", "positions so far", "v")),
        Returned("lengths before and after each call", "tensor", "int", ("calls + 1",)),
    ),
    probes=_probes,
    oracle=oracle.kv_cache,
    mistakes=(
        mistake("overwritten", _model(join=lambda old, new: new)).says(
            "The earlier positions are missing: each `append` replaces what was there.",
            "What should `self` hold after two calls of `append`?",
        ),
        mistake(
            "new_first",
            _model(join=lambda old, new: new if old is None else torch.cat([new, old], dim=2)),
        ).says(
            "You put the new positions before the old ones.",
            "Which of the two tensors comes first in your `torch.cat`?",
        ),
        mistake(
            "along_another_axis",
            _model(join=lambda old, new: new if old is None else torch.cat([old, new], dim=1)),
            twins=(
                _model(join=lambda old, new: new if old is None else torch.cat([old, new])),
                _model(join=lambda old, new: new if old is None else torch.stack([old, new])),
            ),
        ).says(
            "You concatenate the old and new tensors along the wrong axis.",
            "Which axis of `(B, g, s, d)` counts the positions?",
        ),
        mistake(
            "length_of_another_axis",
            _model(length=lambda cache: 0 if cache.keys is None else len(cache.keys)),
            twins=(
                _model(length=lambda cache: 0 if cache.keys is None else cache.keys.shape[1]),
                _model(length=lambda cache: 0 if cache.keys is None else cache.keys.shape[3]),
            ),
        ).says(
            "`len(cache)` is the size of the wrong axis. The `len` of a tensor is the size of its "
            "first axis.",
            "Which axis of `(B, g, n, d)` counts the positions?",
        ),
        mistake("calls_counted", _model(length=lambda cache: cache.calls)).says(
            "`len(cache)` counts the calls of `append` instead of the positions.",
            "By how much does a prompt of four tokens make the cache longer?",
        ),
        mistake("swapped", _model(swap=lambda keys, values: (values, keys))).says(
            "You return the values before the keys.",
            "In which order does the statement name the two results?",
        ),
    ),
    hints=(
        "A cache is a list that grows: the keys and values of the first position, of the second, "
        "and so on. Its length is the number of positions.",
        "Keep two tensors, or None before the first call. `append` puts the new keys after the old "
        "ones along the axis of the positions, and the values likewise, keeps both results and "
        "returns them.",
        "def __len__(self):\n"
        "    return 0 if self.keys is None else self.keys.shape[...]\n"
        "def append(self, keys, values):\n"
        "    if self.keys is not None:\n"
        "        keys = torch.cat([self.keys, ...], dim=...)\n"
        "        values = ...\n"
        "    self.keys, self.values = ...\n"
        "    return ...",
    ),
)
