"""`GroupedQueryAttention`: rotated positions, shared keys and a cache, with injected weights."""

# `project` gets one sequence and a cache here.
# pyright: reportIncompatibleMethodOverride=false
import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import SHARED, Row, known
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.properties import WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP, Softmax
from course_lib.exercises._builders import FLOAT32, INDEPENDENT, Given, case, edge, in_eighths
from course_lib.reference import real_model as oracle

_CACHED = (
    "With a cache, the new positions must continue those in the cache, so that the outputs are "
    "those of one pass over the whole text."
)
_WHOLE = (
    "In each head, position i must average the values of the positions j <= i, with weights from "
    "rotated queries and keys."
)


def state_of(rng, num_heads, num_groups, head_dim) -> dict[str, np.ndarray]:
    """Return weights with which positions and contents matter about equally."""
    embed_dim, shared = num_heads * head_dim, num_groups * head_dim
    sizes = {"W_q": embed_dim, "W_k": shared, "W_v": shared, "W_o": embed_dim}
    scale = 1.3 / embed_dim**0.5
    return {f"{n}.weight": rng.normal(0, scale, (size, embed_dim)) for n, size in sizes.items()}


def _problem(rng, batch, n, heads: tuple[int, int, int], pieces=(), base=None, **options) -> Given:
    """Return the fields of a probe; `heads` are num_heads, num_groups and head_dim."""
    num_heads, num_groups, head_dim = heads
    construct = {"embed_dim": num_heads * head_dim, "num_heads": num_heads}
    construct |= {"num_groups": num_groups} | ({} if base is None else {"base": base})
    x = rng.normal(0, 1.4, (batch, n, num_heads * head_dim))
    given: Given = {"x": tensor(x, **options), "construct": construct}
    given |= {"state": state_of(rng, *heads), "attributes": ("attention_weights",)}
    return given | ({"pieces": pieces, "scenario": "in_pieces"} if pieces else {})


def _worked() -> Given:
    problem = _problem(np.random.default_rng(0), 1, 2, (1, 1, 2))
    problem["x"].data[:] = [[1, 0], [0, 1]]
    for weight in problem["state"].values():
        weight[:] = np.eye(2)
    return problem


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    means: Given = problem(3, 5, (4, 2, 2), (2, 2, 1))
    means["state"]["W_q.weight"][:] = 0.0
    large = problem(1, 3, (2, 1, 2))
    large["x"].data[:] = 512 * in_eighths(large["x"].data)
    for name, weight in large["state"].items():
        large["state"][name] = in_eighths(weight)
    in_turn: Given = problem(2, 4, (2, 1, 2), (2, 1, 1)) | {"scenario": "two_texts_in_turn"}
    by_position: Given = problem(2, 4, (4, 2, 4), base=50.0) | {"scenario": "built_by_position"}
    meta: Given = problem(1, 2, (2, 1, 2)) | {"scenario": "made_with_device_and_dtype"}
    kept: Given = problem(1, 2, (4, 2, 2)) | {"scenario": "with_num_heads_kept"}
    again: Given = problem(2, 5, (4, 2, 2)) | {"scenario": "after_another_call"}
    return [
        case("worked", **_worked()).says(_WHOLE),
        case("one_position", **problem(3, 1, (6, 2, 2))).says(
            "A single position has weight 1 in each head: head i must return the value of group "
            "i // (h / g), and W_o must read the heads side by side."
        ),
        case("one_group", **problem(2, 4, (3, 1, 4))).says(_WHOLE),
        case("as_many_groups", **problem(2, 5, (3, 3, 4), base=20.0)).says(_WHOLE),
        case("two_groups", **problem(3, 5, (4, 2, 4))).says(_WHOLE),
        case("base", **problem(1, 7, (4, 2, 6), base=30.0)).says(
            "`base` must reach the rotation of queries and keys."
        ),
        case("token_by_token", **problem(1, 3, (2, 1, 2), (1, 1, 1))).says(_CACHED),
        case("prompt_first", **problem(1, 6, (4, 2, 4), (4, 1, 1))).says(_CACHED),
        case("pieces", **problem(2, 7, (6, 3, 2), (2, 4, 1), base=40.0)).says(_CACHED),
        case("equal_scores", **means).says(
            "If all scores are 0, position i must get the mean of the values of positions j <= i, "
            "those in the cache included."
        ),
        case("two_texts", **in_turn).says(
            "Two texts that are read in turn, each with its own cache, must not affect each other, "
            "nor must calls without a cache."
        ),
        case("built_by_position", **by_position).says(
            "`__init__` must take embed_dim, num_heads, num_groups and base in this order."
        ),
        edge("device_and_dtype", **meta).says(
            "`device=` and `dtype=` must set the device and the dtype of the weights. Pass both on "
            "to each layer."
        ),
        edge("num_heads", **kept).says(
            "`self.num_heads` must hold the number of heads, because `ablate_head` reads it."
        ),
        edge("large_scores", **large).says("Large scores must not overflow."),
        edge("after_another_call", **again).says(INDEPENDENT),
        edge("float32", **problem(2, 5, (4, 2, 2)) | FLOAT32).says(
            "Float32 inputs and weights must give float32 outputs."
        ),
        edge("longer", **problem(1, 70, (2, 1, 2))).says("Any number of positions must work."),
        case("gradient", grad_outputs=rng.normal(size=(1, 3, 4)),
             **problem(1, 3, (2, 1, 2), requires_grad=True)).says(
            "Gradients must reach x and all four layers."
        ),
    ]  # fmt: skip


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
        q = self.cut(self.W_q(x), self.num_heads)
        k, v = (self.cut(layer(x), self.num_groups) for layer in (self.W_k, self.W_v))
        for_queries, for_keys = self.place(cache, x.shape[1])
        q, k = self.turn(q, for_queries), self.turn(k, for_keys)
        k, v = self.extend(cache, k, v)
        return q, self.share(k), self.share(v)

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


def _before_or_0(cache) -> int:
    return 0 if cache is None else len(cache)


def _late(self, cache, n) -> tuple[int, int]:
    before = _before_or_0(cache)
    return before if cache is None else before + n, before


def _both_late(self, cache, n) -> tuple[int, int]:
    return (0, 0) if cache is None else (len(cache) + n, len(cache) + n)


def _turned_values(self, cache, k, v) -> tuple[Tensor, Tensor]:
    return Grouped.extend(self, cache, k, self.turn(v, _before_or_0(cache)))


def _only_if_filled(self, cache, k, v) -> tuple[Tensor, Tensor]:
    return cache.append(k, v) if cache else (k, v)


def _tiled(self, x) -> Tensor:
    return x.repeat(1, self.num_heads // self.num_groups, 1, 1)


def _unturned(*kept: str) -> Callable:
    """Return a step `project` that leaves the queries, the keys or both as they are."""

    def project(self, x, cache) -> Sequence[Tensor]:
        offset = _before_or_0(cache)
        q = self.cut(self.W_q(x), self.num_heads)
        k, v = (self.cut(layer(x), self.num_groups) for layer in (self.W_k, self.W_v))
        q = q if "queries" in kept else self.turn(q, offset)
        k = k if "keys" in kept else self.turn(k, offset)
        k, v = self.extend(cache, k, v)
        return q, self.share(k), self.share(v)

    return project


def _first_aligned(self, n, m) -> Tensor:
    return torch.ones(n, m, dtype=torch.bool).tril()


def _all_allowed(self, n, m) -> Tensor:
    return torch.ones(n, m, dtype=torch.bool)


_OWN = (
    Row("empty_cache_skipped", {"extend": _only_if_filled}).says(
        "The positions of earlier calls have no effect, although they belong in the cache: each "
        "position attends only to positions of its own call.",
        "Do you use the keys and values that `append` returns? And is an `if cache:` taken if the "
        "cache is empty, with length 0?",
    ),
    Row("offset_ignored", {"place": lambda self, cache, n: (0, 0)}).says(
        "With a cache, your rotation begins at position 0 again in each call.",
        "Which position does the first row of `x` have if the cache already holds five?",
    ),
    Row("offset_after_append", {"place": _late}, twins=({"place": _both_late},)).says(
        "You read the length of the cache after `append`, so queries, or queries and keys, are "
        "rotated as if they came later.",
        "How long is the cache before and after `append`, and which of the two is the position of "
        "the first row of `x`?",
    ),
    Row("first_query_sees_first_key", {"past": _first_aligned}).says(
        "With a cache, your mask aligns the first query with the first key. But the last query "
        "belongs to the last key.",
        "How many positions may the first query see if the cache already holds five?",
    ),
    Row("not_causal", {"past": _all_allowed}).says(
        "Your code applies no causal mask, so positions also attend to later positions.",
        "Does any line keep position i from attending to keys j > i?",
    ),
    Row("groups_tiled", {"share": _tiled}).says(
        "Head i uses group i % g, but it must use group i // (h / g), so that neighboring heads "
        "share a group.",
        "For 4 heads and 2 groups, which group does head 1 use in your code?",
    ),
    Row(
        "not_rotated",
        {"project": _unturned("queries", "keys")},
        twins=({"project": _unturned("keys")}, {"project": _unturned("queries")}),
    ).says(
        "The queries, the keys or both are not rotated, so the scores do not depend on the "
        "distance.",
        "Which two of the three projections must be rotated?",
    ),
    Row("values_rotated", {"extend": _turned_values}).says(
        "You also rotate the values.", "Which of the three projections enter the scores?"
    ),
    Row("base_ignored", {"rates": lambda self, d: 10000.0 ** (-torch.arange(0, d, 2) / d)}).says(
        "`base` has no effect: queries and keys are always rotated with base 10000.",
        "Where does `__init__` keep `base`, and which calls need it?",
    ),
    Row(
        "heads_cut_by_reshape",
        {"cut": lambda self, x, count: x.reshape(len(x), count, x.shape[1], -1)},
    ).says(
        "You cut the heads by a reshape without a transpose, so a head holds features of several "
        "positions.",
        "Which axes does `split_heads` of lesson 06 swap after its reshape?",
    ),
)
_MADE = {"unscaled", "over_queries", "merge_without_transpose"}
_MADE |= {"weights_with_graph", "weights_returned_too"}

EXERCISE = Exercise(
    points=5,
    minutes=20,
    difficulty=3,
    builds_on=("rotary_embedding", "grouped_query_attention"),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=_probes,
    oracle=oracle.grouped_query_module,
    mistakes=known(Grouped, *_OWN, without={row.id for row in SHARED} - _MADE),
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
