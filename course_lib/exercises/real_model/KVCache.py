"""`KVCache`: keys and values of all positions so far."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import kit
from course_lib.exercises._attention.steps import Stepped
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.reference import real_model as oracle


def call(*given, scenario="cache_filled", **fields: Any) -> Probe:
    return kit.call(*given, scenario=scenario, **fields)


def problems(rng) -> Problems:
    def drawn(batch, groups, d, v, appended, **fields: Any) -> Probe:
        n = sum(appended)
        pair = (tensor(rng.normal(0, 1.5, (batch, groups, n, size))) for size in (d, v))
        return call(*pair, appended, **fields)

    everything = "`append` must return all keys and all values so far, in the order of the calls."
    two_caches = drawn(2, 1, 3, 4, (2, 1, 2), scenario="two_caches_filled")
    same: Any = drawn(2, 2, 3, 3, (3, 1, 1)).args
    yield everything
    yield call([[[[0.5], [2.0]]]], [[[[4.0], [8.0]]]], (1, 1))
    yield drawn(1, 2, 3, 4, (1, 1, 1, 1))
    yield "The first call may add a prompt of several positions, and later calls one each."
    yield drawn(1, 2, 3, 2, (4, 1, 1))
    yield "A call may add any number of positions. Items and groups must stay separate."
    yield drawn(3, 2, 4, 4, (2, 1, 3, 1))
    yield (
        "The first call must return what it was given, and the length must then be the number of "
        "its positions."
    )
    yield drawn(2, 3, 4, 5, (6,))
    yield (
        "If the values equal the keys, both results must be equal, and the length must be the "
        "number of positions so far."
    )
    yield call(same[0], same[0], same[2])
    yield "A new cache must be empty and independent of others."
    yield two_caches
    yield "The cache must accept any number of positions."
    yield drawn(1, 1, 2, 1, (1, 2047, 1, 60), part="edges")
    yield "Float32 must stay float32."
    yield drawn(1, 2, 3, 2, (2, 1), part="edges", dtype="float32")


class Cache(Stepped):
    """The correct cache, with the steps join, swap and length."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.calls = 0

    def __len__(self) -> int:
        return 0 if self.keys is None else self.length()

    def append(self, keys, values) -> tuple[Tensor, Tensor]:
        self.calls += 1
        first = self.keys is None
        self.keys = keys if first else self.join(self.keys, keys)
        self.values = values if first else self.join(self.values, values)
        return self.found()

    def join(self, old, new) -> Tensor:
        return torch.cat([old, new], dim=2)

    def found(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.values

    def length(self) -> int:
        return self.keys.shape[2]


@mistake
class Overwritten(Cache):
    """The earlier positions are missing: each `append` replaces what was there, or returns only
    what is new.

    What should `self` hold after two calls of `append`, and what must the second call return?
    """

    def join(self, old, new) -> Tensor:
        return new


@like(Overwritten)
class OnlyNewReturned(Cache):
    def append(self, keys, values) -> tuple[Tensor, Tensor]:
        super().append(keys, values)
        return keys, values


@like(Overwritten)
class OnlyKeysKept(Cache):
    def append(self, keys, values) -> tuple[Tensor, Tensor]:
        return super().append(keys, values)[0], values


@mistake
class NewFirst(Cache):
    """You put the new positions before the old ones, in the keys, the values, or both.

    Which tensor comes first in each `torch.cat`?
    """

    def join(self, old, new) -> Tensor:
        return torch.cat([new, old], dim=2)


@like(NewFirst)
class NewValuesFirst(Cache):
    def append(self, keys, values) -> tuple[Tensor, Tensor]:
        old = self.values
        super().append(keys, values)
        self.values = values if old is None else torch.cat([values, old], dim=2)
        return self.found()


@mistake
class AlongAnotherAxis(Cache):
    """You concatenate the old and new tensors along the wrong axis.

    Which axis of `(B, g, s, d)` counts the positions?
    """

    def join(self, old, new) -> Tensor:
        return torch.cat([old, new], dim=1)


@like(AlongAnotherAxis)
class AlongAnotherAxisWithACounter(AlongAnotherAxis):
    def append(self, keys, values) -> tuple[Tensor, Tensor]:
        self.added = keys.shape[2] + (0 if self.keys is None else self.added)
        return super().append(keys, values)

    def length(self) -> int:
        return self.added


@like(AlongAnotherAxis)
class AlongTheItems(Cache):
    def join(self, old, new) -> Tensor:
        return torch.cat([old, new])


@like(AlongAnotherAxis)
class Stacked(Cache):
    def join(self, old, new) -> Tensor:
        return torch.stack([old, new])


@mistake
class LengthOfAnotherAxis(Cache):
    """`len(cache)` is the size of the wrong axis. The `len` of a tensor is the size of its first
    axis.

    Which axis of `(B, g, n, d)` counts the positions?
    """

    def length(self) -> int:
        return len(self.keys)


@like(LengthOfAnotherAxis)
class NumberOfGroups(Cache):
    def length(self) -> int:
        return self.keys.shape[1]


@mistake
class CallsCounted(Cache):
    """`len(cache)` counts the calls to `append`, or only the positions of the last call. It must
    count the positions of all calls.

    What should `len(cache)` be after a prompt of four tokens and then one more token?
    """

    def length(self) -> int:
        return self.calls


@like(CallsCounted)
class LengthOfTheLastCall(Cache):
    def append(self, keys, values) -> tuple[Tensor, Tensor]:
        self.added = keys.shape[2]
        return super().append(keys, values)

    def length(self) -> int:
        return self.added


@mistake
class Swapped(Cache):
    """You exchange keys and values: you return them in another order, or one of them twice.

    In which order does the statement name the two results?
    """

    def found(self) -> tuple[Tensor, Tensor]:
        return self.values, self.keys


@like(Swapped)
class KeysTwice(Cache):
    def found(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.keys


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
    probes=problems,
    oracle=oracle.kv_cache,
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
