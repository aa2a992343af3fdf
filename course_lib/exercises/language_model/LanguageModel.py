"""`LanguageModel`: tokens, positions, blocks and logits, judged with injected weights."""

import functools
from typing import Any

import numpy as np
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._attention.steps import Stepped
from course_lib.exercises.kit import Problems, call, like, mistake
from course_lib.exercises.translator._blocks import (
    State,
    linear_weights,
    mistakes_of_joins,
    norm_weights,
    pre_norm,
)
from course_lib.reference import language_model as oracle


def state_of(rng, num_tokens, d, hidden, num_blocks) -> State:
    state = {"tokens.weight": rng.normal(0, 1.3, (num_tokens, d))}
    for number in range(num_blocks):
        block = f"blocks.{number}"
        state[f"{block}.attention.scale"] = rng.uniform(0.6, 1.5, 1)
        state |= norm_weights(rng, f"{block}.norm_1", d)
        if hidden:
            state |= norm_weights(rng, f"{block}.norm_2", d)
            state |= linear_weights(rng, f"{block}.feed_forward.0", hidden, d)
            state |= linear_weights(rng, f"{block}.feed_forward.2", d, hidden)
    return state | norm_weights(rng, "norm", d) | linear_weights(rng, "to_logits", num_tokens, d)


def module(
    rng, batch, n, sizes, num_blocks=1, *, tokens_dtype="int64", change=None, **fields: Any
) -> Probe:
    """Return a call of a model of sizes num_tokens, context_length, embed_dim and hidden_dim.

    `change` gets the weights and the positions.
    """
    num_tokens, context_length, d, hidden = sizes
    tokens = rng.integers(0, num_tokens, (batch, n)).astype(tokens_dtype)
    tokens[:, 0] = (np.arange(batch) + num_tokens - 1) % num_tokens  # all items differ
    state = state_of(rng, num_tokens, d, hidden, num_blocks)
    positions = rng.normal(0, 1.3, (context_length, d))
    if change is not None:
        change(state, positions)
    attentions = [Built("mean_attention")] * num_blocks
    built = {"num_tokens": num_tokens, "attentions": attentions, "positions": tensor(positions)}
    built |= {"hidden_dim": hidden} if fields.pop("with_hidden_dim", True) else {}
    return call(tokens, construct=built, state=state, **fields)


def worked(state, positions) -> None:
    for name, value in state.items():
        value[:] = np.eye(2) if value.ndim == 2 else not name.endswith("bias")
    state["tokens.weight"][:] = [[0, 0], [1, 3]]
    state["norm.weight"][:] = 2
    positions[:] = [[1, 1], [2, 0], [0, 2]]


def without_parts(state, positions) -> None:
    """Set weights with which parts return zeros, and norms without scale and shift."""
    for name, value in state.items():
        if "scale" in name or "feed_forward.2" in name:
            value[:] = 0.0
        elif ".norm" in name:
            value[:] = name.endswith("weight")


def already_normed(state, positions) -> None:
    """Let attention add a constant, and give the last norm no effect."""
    signs = np.array([[1.0], [-1.0], [-1.0], [1.0], [1.0]])
    added = state["blocks.0.attention.scale"] * state["blocks.0.norm_1.bias"]
    state["blocks.0.norm_1.weight"][:] = 0.0
    state["norm.weight"][:], state["norm.bias"][:] = 1.0, 0.0
    state["tokens.weight"][:] = signs[:2] * [1, -1, 0, 0] - added
    positions[:] = signs * [0, 0, 1, -1]


def problems(rng) -> Problems:
    def problem(*sizes, **fields: Any) -> Probe:
        return module(rng, *sizes, **fields)

    def edge(*sizes, **fields: Any) -> Probe:
        return module(rng, *sizes, part="edges", **fields)

    back = {"grad_outputs": rng.normal(size=(1, 2, 2)), "part": "gradients"}
    alone = problem(2, 4, (6, 7, 5, 0), with_hidden_dim=False)
    yield (
        "x must be the sum of the vectors of tokens and positions, each block must add to x, and "
        "the logits must be to_logits(norm(x))."
    )
    yield module(np.random.default_rng(0), 1, 1, (2, 3, 2, 0), change=worked)
    yield (
        "If attention and network return zeros, the logits must be to_logits(norm(x)), where x is "
        "the sum of the vectors of the tokens and of their positions."
    )
    yield problem(2, 3, (7, 8, 4, 5), change=without_parts)
    yield "Without hidden_dim, a block must have only its attention: x + attention(norm_1(x))."
    yield alone
    yield "If x ends with mean 0 and variance 1, the last norm must change nothing."
    yield problem(2, 3, (2, 5, 4, 0), change=already_normed)
    yield "A block must add attention(norm_1(x)) to x, then feed_forward(norm_2(x)) to that sum."
    yield problem(3, 4, (6, 9, 5, 7))
    yield "Each block must read what the one before it returns."
    yield problem(2, 5, (7, 8, 6, 3), 2)
    yield "There must be one block per attention module, in the same order."
    yield problem(2, 6, (5, 9, 4, 0), 3)
    yield "A text may have context_length tokens."
    yield edge(2, 5, (4, 5, 3, 2))
    yield "A text may have a single token."
    yield edge(3, 1, (6, 4, 5, 2))
    yield "The tokens may be int32."
    yield edge(2, 3, (5, 6, 4, 3), tokens_dtype="int32")
    yield "The model must have no dropout and return the same in train mode."
    yield edge(2, 3, (5, 6, 4, 7), 2, training=True)
    yield "Float32 weights must give float32 logits."
    yield edge(2, 4, (6, 5, 3, 7), dtype="float32")
    yield "More than context_length tokens must raise a ValueError."
    yield edge(1, 3, (2, 2, 2, 1), raises="ValueError")
    yield "Weights that were stored without the positions must load into a new model."
    yield edge(2, 3, (5, 6, 4, 7), 2, scenario="stored_weights")
    yield "The positions must be a buffer, which moves to another device with the model."
    yield edge(2, 3, (5, 6, 4, 7), scenario="with_its_buffer")
    yield (
        "`__init__` must take num_tokens, attentions, positions and hidden_dim in this order, and "
        "models must be independent of each other."
    )
    yield edge(2, 3, (5, 6, 4, 7), 2, scenario="among_other_models")
    yield (
        "`device=` and `dtype=` must set the device and the dtype of the positions and of each "
        "layer that is made here."
    )
    yield edge(2, 3, (5, 6, 4, 7), 2, scenario="layers_with_device_and_dtype")
    yield "Gradients must reach all layers and the attention modules."
    yield problem(1, 2, (2, 3, 3, 2), **back)


class Right(Stepped, nn.Module):
    """The correct model in steps."""

    positions: Tensor
    joins = pre_norm, pre_norm
    between = nn.GELU

    def __init__(
        self, num_tokens, attentions, positions, hidden_dim=0, *, device=None, dtype=None
    ) -> None:
        super().__init__()
        self.context_length, d = len(positions), positions.shape[1]
        to: dict[str, Any] = {"device": device, "dtype": dtype}
        self.keep(positions.to(**to))
        self.tokens = nn.Embedding(num_tokens, d, **to)
        self.to_logits = nn.Linear(d, num_tokens, **to)
        self.norm, self.blocks = nn.LayerNorm(d, **to), nn.ModuleList()
        for attention in attentions:
            parts = {"norm_1": nn.LayerNorm(d, **to), "attention": attention}
            if hidden_dim:
                layers = nn.Linear(d, hidden_dim, **to), nn.Linear(hidden_dim, d, **to)
                network = nn.Sequential(layers[0], self.between(), layers[1])
                parts |= {"norm_2": nn.LayerNorm(d, **to), "feed_forward": network}
            self.blocks.append(nn.ModuleDict(parts))

    def keep(self, positions) -> None:
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, tokens) -> Tensor:
        if tokens.shape[1] > self.context_length:
            raise ValueError("the text is too long")
        x = self.place(self.tokens(tokens), tokens.shape[1])
        for block in self.blocks:
            parts: Any = block
            names = [name for name in ("attention", "feed_forward") if name in parts]
            x = self.through(x, [(parts[f"norm_{i}"], parts[n]) for i, n in enumerate(names, 1)])
        return self.last(x)

    def through(self, x, parts) -> Tensor:
        for join, (norm, part) in zip(self.joins, parts, strict=False):
            x = join(x, norm, part)
        return x

    def place(self, x, n) -> Tensor:
        return x + self.positions[:n]

    def last(self, x) -> Tensor:
        return self.to_logits(self.norm(x))


@mistake
class NoFinalNorm(Right):
    """The logits are made from x without the last norm.

    What does `to_logits` read?
    """

    def last(self, x) -> Tensor:
        return self.to_logits(x)


@mistake
class PositionsFromTheEnd(Right):
    """You do not add `positions[:n]` once: you add the last positions, all of them, or add them in
    each block. The first token of any text is at position 0.

    Which rows of `positions` does a text of two tokens need, and where are they added?
    """

    def place(self, x, n) -> Tensor:
        return x + self.positions[-n:]


@like(PositionsFromTheEnd)
class AllPositions(Right):
    def place(self, x, n) -> Tensor:
        return x + self.positions


@like(PositionsFromTheEnd)
class PositionsInEachBlock(Right):
    def place(self, x, n) -> Tensor:
        return x

    def through(self, x, parts) -> Tensor:
        return super().through(x + self.positions[: x.shape[1]], parts)


@mistake
class ScaledEmbeddings(Right):
    """You multiply the vectors of the tokens by sqrt(D), as the original paper does. Here they are
    added as they are.

    What is added to the positions?
    """

    def place(self, x, n) -> Tensor:
        return x * x.shape[-1] ** 0.5 + self.positions[:n]


@mistake
class PartsSideBySide(Right):
    """Both parts of a block read the same x. The network must read the sum of x and the attention's
    result.

    Which x does `norm_2` read in your code?
    """

    def through(self, x, parts) -> Tensor:
        return x + sum(part(norm(x)) for norm, part in parts)


@mistake
class Relu(Right):
    """Your feed-forward networks use ReLU between the two linear layers instead of GELU.

    Which function does the statement name between the two linear layers?
    """

    between = nn.ReLU


@mistake
class GeluByTanh(Right):
    """Your feed-forward networks use the tanh approximation of GELU instead of the exact GELU.

    What does `nn.GELU` compute if you do not pass `approximate`?
    """

    between = functools.partial(nn.GELU, approximate="tanh")


@mistake
class PositionsStored(Right):
    """Your `positions` are part of `state_dict()`, so `load_state_dict` rejects weights that were
    stored without them.

    Which option of `register_buffer` keeps a buffer out of `state_dict()`?
    """

    def keep(self, positions) -> None:
        self.register_buffer("positions", positions)


EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=3,
    is_class=True,
    returns=(Returned("logits", "tensor", "float", ("batch", "n", "num_tokens")),),
    probes=problems,
    oracle=oracle.language_model,
    mistakes=mistakes_of_joins(lambda joins: Right.changed({"joins": tuple(joins)}), 2),
    hints=(
        "x begins as the sum of two tables' rows, one for the token and one for the position. "
        "Each block only ever adds to x. At the end a norm and a linear layer read x.",
        "In `__init__`, make one block for each attention module and keep all of them in an "
        "`nn.ModuleList`; a block can be an `nn.ModuleDict` or a small class of yours. In "
        "`forward`, check the length, add the first n rows of the positions, let x pass through "
        "the blocks, and return the logits.",
        "x = self.tokens(tokens) + self.positions[...]\n"
        "for block in self.blocks:\n"
        "    x = x + block.attention(...)\n"
        "    if ...:\n"
        "        x = ... + ...\n"
        "return self.to_logits(...)",
    ),
)
