"""`GroupedQueryAttention`: rotated positions, shared keys and a cache, with injected weights."""

# `project` gets one sequence and a cache here.
# pyright: reportIncompatibleMethodOverride=false
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.mistakes import (
    MergeWithoutTranspose,
    OverQueries,
    Unscaled,
    WeightsReturnedToo,
    WeightsWithGraph,
    of_these,
)
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP, Softmax
from course_lib.exercises.kit import INDEPENDENT, Problems, call, in_eighths, like, mistake
from course_lib.reference import real_model as oracle

Heads = tuple[int, int, int]  # num_heads, num_groups, head_dim
State = dict[str, np.ndarray]


def state_of(rng, num_heads, num_groups, head_dim) -> State:
    """Return weights with which positions and contents matter about equally."""
    embed_dim, groups = num_heads * head_dim, num_groups * head_dim
    sizes = {"W_q": embed_dim, "W_k": groups, "W_v": groups, "W_o": embed_dim}
    scale = 1.3 / embed_dim**0.5
    return {f"{n}.weight": rng.normal(0, scale, (size, embed_dim)) for n, size in sizes.items()}


def drawn(rng, batch, n, heads: Heads, **options) -> tuple[Array, State]:
    """Draw x and weights."""
    x = tensor(rng.normal(0, 1.4, (batch, n, heads[0] * heads[2])), **options)
    return x, state_of(rng, *heads)


def module(given: tuple[Array, State], heads: Heads, pieces=(), base=None, **fields: Any) -> Probe:
    """Return a call of a module with these inputs and weights, perhaps in pieces with a cache."""
    (x, state), (num_heads, num_groups, head_dim) = given, heads
    built = {"embed_dim": num_heads * head_dim, "num_heads": num_heads, "num_groups": num_groups}
    built |= {} if base is None else {"base": base}
    fields = ({"scenario": "in_pieces"} if pieces else {}) | fields
    args, names = ([x, pieces], ("x", "pieces")) if pieces else ([x], ("x",))
    return call(*args, names=names, construct=built, state=state, attributes=(KEPT,), **fields)


def problems(rng) -> Problems:
    def problem(batch, n, heads, *pieces, **fields: Any) -> Probe:
        return module(drawn(rng, batch, n, heads), heads, *pieces, **fields)

    def edge(*given, **fields: Any) -> Probe:
        return problem(*given, part="edges", **fields)

    means = drawn(rng, 3, 5, (4, 2, 2))
    means[1]["W_q.weight"][:] = 0.0
    x, state = drawn(rng, 1, 3, (2, 1, 2))
    x.data[:] = 512 * in_eighths(x.data)
    large = x, {name: in_eighths(weight) for name, weight in state.items()}
    in_turn = problem(2, 4, (2, 1, 2), (2, 1, 1), scenario="two_texts_in_turn")
    by_position = problem(2, 4, (4, 2, 4), base=50.0, scenario="built_by_position")
    meta = edge(1, 2, (2, 1, 2), scenario="made_with_device_and_dtype")
    kept = edge(1, 2, (4, 2, 2), scenario="with_num_heads_kept")
    equal = drawn(rng, 2, 3, (2, 1, 2))
    equal[0].data[:] = equal[0].data[:, :1]
    again = edge(2, 5, (4, 2, 2), scenario="after_another_call")
    whole = (
        "In each head, position i must average the values of the positions j <= i, with weights "
        "from rotated queries and keys."
    )
    yield whole
    eyes = {f"W_{n}.weight": np.eye(2) for n in "qkvo"}
    yield module((tensor([[[1.0, 0.0], [0.0, 1.0]]]), eyes), (1, 1, 2))
    yield (
        "A single position has weight 1 in each head: head i must return the value of group i // "
        "(h / g), and W_o must read the heads side by side."
    )
    yield problem(3, 1, (6, 2, 2))
    yield whole
    yield problem(2, 4, (3, 1, 4))
    yield problem(2, 5, (3, 3, 4), base=20.0)
    yield problem(3, 5, (4, 2, 4))
    yield "`base` must reach the rotation of queries and keys."
    yield problem(1, 7, (4, 2, 6), base=30.0)
    yield (
        "With a cache, the new positions must continue those in the cache, so that the outputs are"
        " those of one pass over the whole text."
    )
    yield problem(1, 3, (2, 1, 2), (1, 1, 1))
    yield problem(1, 6, (4, 2, 4), (4, 1, 1))
    yield problem(2, 7, (6, 3, 2), (2, 4, 1), base=40.0)
    yield (
        "If all scores are 0, position i must get the mean of the values of positions j <= i, "
        "those in the cache included."
    )
    yield module(means, (4, 2, 2), (2, 2, 1))
    yield (
        "Two texts that are read in turn, each with its own cache, must not affect each other, nor"
        " must calls without a cache."
    )
    yield in_turn
    yield "`__init__` must take embed_dim, num_heads, num_groups and base in this order."
    yield by_position
    yield (
        "`device=` and `dtype=` must set the device and the dtype of the weights. Pass both on to "
        "each layer."
    )
    yield meta
    yield "`self.num_heads` must hold the number of heads, because `ablate_head` reads it."
    yield kept
    yield "The rotated keys must be appended to the cache."
    yield module(equal, (2, 1, 2), (2, 1), scenario="equal_positions_in_pieces", part="edges")
    yield "Large scores must not overflow."
    yield module(large, (2, 1, 2), part="edges")
    yield INDEPENDENT
    yield again
    yield "Float32 inputs and weights must give float32 outputs."
    yield edge(2, 5, (4, 2, 2), dtype="float32")
    yield "Any number of positions must work."
    yield edge(1, 70, (2, 1, 2), tolerance=1e-4)  # float32 rounds an angle of 70 to 4e-6
    yield "Gradients must reach x and all four layers."
    upstream = rng.normal(size=(1, 3, 4))
    given = drawn(rng, 1, 3, (2, 1, 2), requires_grad=True)
    # In float32, terms that cancel can leave a larger error in a gradient than in the outputs.
    yield module(given, (2, 1, 2), grad_outputs=upstream, tolerance=5e-5)


class Grouped(WithHeads, AttentionModule):
    """The correct module, with the steps cut, place, turn, extend, share and past."""

    own = real = align = drop = NO_STEP

    def __init__(
        self, embed_dim, num_heads, num_groups, base=10000.0, *, device=None, dtype=None
    ) -> None:
        super().__init__()
        self.num_heads, self.num_groups, self.base = num_heads, num_groups, base
        shared = embed_dim * num_groups // num_heads
        given = {"bias": False, "device": device, "dtype": dtype}
        self.W_q, self.W_o = (nn.Linear(embed_dim, embed_dim, **given) for _ in range(2))
        self.W_k, self.W_v = (nn.Linear(embed_dim, shared, **given) for _ in range(2))

    def forward(self, x, cache=None) -> Tensor:
        return self.attend((x, cache))[0]

    def project(self, x, cache) -> Sequence[Tensor]:
        q, k, v = self.cut_all(x)
        for_queries, for_keys = self.place(cache, x.shape[1])
        q, k = self.turn(q, for_queries), self.turn(k, for_keys)
        k, v = self.extend(cache, k, v)
        return q, self.share(k), self.share(v)

    def cut_all(self, x) -> Sequence[Tensor]:
        k, v = (self.cut(layer(x), self.num_groups) for layer in (self.W_k, self.W_v))
        return self.cut(self.W_q(x), self.num_heads), k, v

    def cut(self, x, count) -> Tensor:
        return x.unflatten(-1, (count, -1)).transpose(1, 2)

    def place(self, cache, n) -> tuple[int, int]:
        """Return the position of the first query and of the first key."""
        before = 0 if cache is None else len(cache)
        return before, before

    def rates(self, d) -> Tensor:
        return self.base ** (-torch.arange(0, d, 2).double() / d)

    def turn(self, x, offset) -> Tensor:
        angles = (offset + torch.arange(x.shape[2]))[:, None] * self.rates(x.shape[3])
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    def extend(self, cache, k, v) -> tuple[Tensor, Tensor]:
        return (k, v) if cache is None else cache.append(k, v)

    def share(self, x) -> Tensor:
        return x.repeat_interleave(self.num_heads // self.num_groups, dim=1)

    def past(self, n, m) -> Tensor:
        return torch.ones(n, m, dtype=torch.bool).tril(m - n)

    def join(self, scores, real, own) -> Tensor:
        return Softmax.join(self, scores, real, self.past(*scores.shape[-2:]))

    def average(self, weights, v) -> Tensor:
        self.keep(weights, weights)
        return weights @ v

    def out(self, averages) -> Tensor:
        return self.W_o(self.merge(averages))


@mistake
class EmptyCacheSkipped(Grouped):
    """The positions of earlier calls have no effect, although they belong in the cache: each
    position attends only to positions of its own call.

    Do you use the keys and values that `append` returns? And is an `if cache:` taken if the cache
    is empty, with length 0?
    """

    def extend(self, cache, k, v) -> tuple[Tensor, Tensor]:
        return cache.append(k, v) if cache else (k, v)


@mistake
class OffsetIgnored(Grouped):
    """With a cache, your queries, your keys or both can be rotated by the wrong positions. Their
    first position is 0 in every call, or it comes from a counter in the module instead of from
    `len(cache)`.

    Which position does the first row of `x` have if the given cache already holds five, and which
    number in your code says so?
    """

    def place(self, cache, n) -> tuple[int, int]:
        return 0, 0


@like(OffsetIgnored)
class OffsetOfKeysIgnored(Grouped):
    def place(self, cache, n) -> tuple[int, int]:
        return (0 if cache is None else len(cache)), 0


@like(OffsetIgnored)
class OffsetOfQueriesIgnored(Grouped):
    def place(self, cache, n) -> tuple[int, int]:
        return 0, (0 if cache is None else len(cache))


@like(OffsetIgnored)
class PositionsCountedByTheModule(Grouped):
    seen = 0

    def place(self, cache, n) -> tuple[int, int]:
        before = 0 if cache is None else self.seen
        self.seen = before + n
        return before, before


@mistake
class OffsetAfterAppend(Grouped):
    """You read the length of the cache after `append`, so queries, or queries and keys, are rotated
    as if they came later.

    How long is the cache before and after `append`, and which of the two is the position of the
    first row of `x`?
    """

    def place(self, cache, n) -> tuple[int, int]:
        return (0, 0) if cache is None else (len(cache) + n, len(cache))


@like(OffsetAfterAppend)
class BothOffsetsAfterAppend(Grouped):
    def place(self, cache, n) -> tuple[int, int]:
        return (0, 0) if cache is None else (len(cache) + n, len(cache) + n)


@mistake
class FirstQuerySeesFirstKey(Grouped):
    """Your mask does not align the last query with the last key: with a cache, it aligns the
    first query with the first key, or its edge is off by one.

    How many positions may the first query see if the cache already holds five?
    """

    def past(self, n, m) -> Tensor:
        return torch.ones(n, m, dtype=torch.bool).tril()


@like(FirstQuerySeesFirstKey)
class OwnPositionDropped(Grouped):
    def past(self, n, m) -> Tensor:
        return torch.ones(n, m, dtype=torch.bool).tril(m - n - 1)


@like(FirstQuerySeesFirstKey)
class NextPositionSeen(Grouped):
    def past(self, n, m) -> Tensor:
        return torch.ones(n, m, dtype=torch.bool).tril(m - n + 1)


@mistake
class NotCausal(Grouped):
    """Your code applies no causal mask, or only with a cache or only without one, so positions also
    attend to later positions.

    Does any line keep position i from attending to keys j > i, with and without a cache?
    """

    def past(self, n, m) -> Tensor:
        return torch.ones(n, m, dtype=torch.bool)


@like(NotCausal)
class NoMaskWithCache(Grouped):
    def extend(self, cache, k, v) -> tuple[Tensor, Tensor]:
        self.is_masked = cache is None
        return super().extend(cache, k, v)

    def past(self, n, m) -> Tensor:
        return super().past(n, m) | (not self.is_masked)


@like(NotCausal)
class NoMaskWithoutCache(NoMaskWithCache):
    def past(self, n, m) -> Tensor:
        return Grouped.past(self, n, m) | self.is_masked


@mistake
class GroupsTiled(Grouped):
    """Head i must use the keys and the values of group i // (h / g), so that neighboring heads
    share a group. In your code some heads use another group, such as i % g.

    For 4 heads and 2 groups, which group does head 1 use in your code?
    """

    def share(self, x) -> Tensor:
        return x.repeat(1, self.num_heads // self.num_groups, 1, 1)


@mistake
class NotRotated(Grouped):
    """The queries, the keys or both are not rotated, so the scores do not depend on the distance.

    Which two of the three projections must be rotated?
    """

    turned = ()

    def project(self, x, cache) -> Sequence[Tensor]:
        offset, (q, k, v) = self.place(cache, x.shape[1])[0], self.cut_all(x)
        q = self.turn(q, offset) if "queries" in self.turned else q
        k = self.turn(k, offset) if "keys" in self.turned else k
        k, v = self.extend(cache, k, v)
        return q, self.share(k), self.share(v)


@like(NotRotated)
class KeysNotRotated(NotRotated):
    turned = ("queries",)


@like(NotRotated)
class QueriesNotRotated(NotRotated):
    turned = ("keys",)


@mistake
class RotatedBeforeSplit(Grouped):
    """You rotate queries and keys before you cut them into heads, so only the first head gets the
    fastest rotations.

    In the statement's angles, is d the number of features of one head or of all heads together?
    """

    def cut_all(self, x) -> Sequence[Tensor]:
        q, k = (layer(x).unsqueeze(1) for layer in (self.W_q, self.W_k))
        return q, k, self.cut(self.W_v(x), self.num_groups)

    def turn(self, x, offset) -> Tensor:
        heads = self.num_heads if x.shape[-1] == self.W_q.out_features else self.num_groups
        return self.cut(super().turn(x, offset)[:, 0], heads)


@mistake
class ValuesRotated(Grouped):
    """You also rotate the values.

    Which of the three projections enter the scores?
    """

    def extend(self, cache, k, v) -> tuple[Tensor, Tensor]:
        return super().extend(cache, k, self.turn(v, self.place(cache, 0)[0]))


@mistake
class BaseIgnored(Grouped):
    """`base` has no effect: queries and keys are always rotated with base 10000.

    Where does `__init__` keep `base`, and which calls need it?
    """

    def rates(self, d) -> Tensor:
        return 10000.0 ** (-torch.arange(0, d, 2) / d)


@mistake
class HeadsCutByReshape(Grouped):
    """You cut the heads by a reshape without a transpose, so a head holds features of several
    positions.

    Which axes does `split_heads` of lesson 06 swap after its reshape?
    """

    def cut(self, x, count) -> Tensor:
        return x.reshape(len(x), count, x.shape[1], -1)


@like(HeadsCutByReshape)
class QueriesCutByReshape(Grouped):
    def cut_all(self, x) -> Sequence[Tensor]:
        queries = self.W_q(x).reshape(len(x), self.num_heads, x.shape[1], -1)
        return queries, *super().cut_all(x)[1:]


EXERCISE = Exercise(
    points=5,
    minutes=20,
    difficulty=3,
    builds_on=("rotary_embedding", "grouped_query_attention"),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=problems,
    oracle=oracle.grouped_query_module,
    mistakes=of_these(
        Grouped,
        (Unscaled, OverQueries, WeightsWithGraph, WeightsReturnedToo, MergeWithoutTranspose),
        without={"split_without_transpose", "split_and_merge_without_transpose"},
    ),
    properties=WEIGHTS,
    hints=(
        "First write it without a cache: project, split, rotate, attend with a causal mask, merge, "
        "project. The cache then changes two things, where the new positions begin and how many "
        "keys there are.",
        "Queries have h heads, keys and values have g, and all heads have D / h features. The "
        "offset of the rotation is the length of the cache before `append`. After `append`, the "
        "mask is `causal_mask(n, m)` with m keys, whose last row sees everything.",
        "keys = split_heads(self.W_k(x), ...)\n"
        "offset = 0 if cache is None else ...\n"
        "queries, keys = rotary_embedding(queries, ...), rotary_embedding(keys, ...)\n"
        "if cache is not None:\n"
        "    keys, values = ...\n"
        "mask = causal_mask(queries.shape[2], ...)\n"
        "outputs, weights = grouped_query_attention(...)",
    ),
)
