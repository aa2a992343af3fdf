"""`LanguageModel`: tokens, positions, blocks and logits, judged with injected weights."""

from collections.abc import Sequence

import numpy as np
from torch import nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._builders import FLOAT32, Given, case, edge, in_steps, mistake
from course_lib.exercises.translator._blocks import (
    linear_weights,
    mistakes_of_joins,
    norm_weights,
    pre_norm,
)
from course_lib.reference import language_model as oracle

Sizes = tuple[int, int, int, int]  # num_tokens, context_length, embed_dim, hidden_dim


def _built(rng, sizes: Sizes, num_blocks) -> Given:
    """Return the constructor arguments of a model, and weights for it."""
    num_tokens, context_length, d, hidden = sizes
    state = {"tokens.weight": rng.normal(0, 1.3, (num_tokens, d))}
    for number in range(num_blocks):
        block = f"blocks.{number}"
        state[f"{block}.attention.scale"] = rng.uniform(0.6, 1.5, 1)
        state |= norm_weights(rng, f"{block}.norm_1", d)
        if hidden:
            state |= norm_weights(rng, f"{block}.norm_2", d)
            state |= linear_weights(rng, f"{block}.feed_forward.0", hidden, d)
            state |= linear_weights(rng, f"{block}.feed_forward.2", d, hidden)
    state |= norm_weights(rng, "norm", d) | linear_weights(rng, "to_logits", num_tokens, d)
    construct = {
        "num_tokens": num_tokens,
        "attentions": [Built("mean_attention")] * num_blocks,
        "positions": tensor(rng.normal(0, 1.3, (context_length, d))),
        "hidden_dim": hidden,
    }
    return {"construct": construct, "state": state}


def _problem(rng, batch, n, sizes: Sizes, num_blocks=1, dtype="int64") -> Given:
    """Return the fields of a probe."""
    tokens = rng.integers(0, sizes[0], (batch, n)).astype(dtype)
    tokens[:, 0] = (np.arange(batch) + sizes[0] - 1) % sizes[0]  # all items differ
    return {"tokens": tokens, **_built(rng, sizes, num_blocks)}


def _worked() -> Given:
    problem = _problem(np.random.default_rng(0), 1, 1, (2, 3, 2, 0))
    for name, value in problem["state"].items():
        value[:] = np.eye(2) if value.ndim == 2 else not name.endswith("bias")
    problem["state"]["tokens.weight"][:] = [[0, 0], [1, 3]]
    problem["state"]["norm.weight"][:] = 2
    problem["construct"]["positions"].data[:] = [[1, 1], [2, 0], [0, 2]]
    return problem


def _without_parts(problem: Given) -> Given:
    """Return the problem with parts that return zeros, and norms without scale and shift."""
    for name, value in problem["state"].items():
        if "scale" in name or "feed_forward.2" in name:
            value[:] = 0.0
        elif ".norm" in name:
            value[:] = name.endswith("weight")
    return problem


def _already_normed(rng) -> Given:
    """Return a problem in which attention adds a constant and the last norm has no effect."""
    problem = _problem(rng, 2, 3, (2, 5, 4, 0))
    state = problem["state"]
    signs = np.array([[1.0], [-1.0], [-1.0], [1.0], [1.0]])
    added = state["blocks.0.attention.scale"] * state["blocks.0.norm_1.bias"]
    state["blocks.0.norm_1.weight"][:] = 0.0
    state["norm.weight"][:], state["norm.bias"][:] = 1.0, 0.0
    state["tokens.weight"][:] = signs[:2] * [1, -1, 0, 0] - added
    problem["construct"]["positions"].data[:] = signs * [0, 0, 1, -1]
    return problem


def _probes(rng) -> list[Probe]:
    def problem(*sizes, **options) -> Given:
        return _problem(rng, *sizes, **options)

    back = {"grad_outputs": rng.normal(size=(1, 2, 2))}
    alone = problem(2, 4, (6, 7, 5, 0))
    del alone["construct"]["hidden_dim"]
    return [
        case("worked", **_worked()).says(
            "x must be the sum of the vectors of tokens and positions, each block must add to x, "
            "and the logits must be to_logits(norm(x))."
        ),
        case("no_parts", **_without_parts(problem(2, 3, (7, 8, 4, 5)))).says(
            "If attention and network return zeros, the logits must be to_logits(norm(x)), where x "
            "is the sum of the vectors of the tokens and of their positions."
        ),
        case("attention_alone", **alone).says(
            "Without hidden_dim, a block must have only its attention: x + attention(norm_1(x))."
        ),
        case("normed_at_the_end", **_already_normed(rng)).says(
            "Here x must end with mean 0 and variance 1, so that the last norm changes nothing."
        ),
        case("one_block", **problem(3, 4, (6, 9, 5, 7))).says(
            "A block must add attention(norm_1(x)) to x, then feed_forward(norm_2(x)) to that sum."
        ),
        case("two_blocks", **problem(2, 5, (7, 8, 6, 3), 2)).says(
            "Each block must read what the one before it returns."
        ),
        case("three_attentions", **problem(2, 6, (5, 9, 4, 0), 3)).says(
            "There must be one block per attention module, in the same order."
        ),
        edge("whole_context", **problem(2, 5, (4, 5, 3, 2))).says(
            "A text may have context_length tokens."
        ),
        edge("one_token", **problem(3, 1, (6, 4, 5, 2))).says("A text may have a single token."),
        edge("int32", **problem(2, 3, (5, 6, 4, 3), dtype="int32")).says(
            "The tokens may be int32."
        ),
        edge("train", training=True, **problem(2, 3, (5, 6, 4, 7), 2)).says(
            "The model must have no dropout and return the same in train mode."
        ),
        edge("float32", **problem(2, 4, (6, 5, 3, 7)) | FLOAT32).says(
            "Float32 weights must give float32 logits."
        ),
        edge("too_long", raises="ValueError", **problem(1, 3, (2, 2, 2, 1))).says(
            "More than context_length tokens must raise a ValueError."
        ),
        edge("stored_weights", scenario="stored_weights", **problem(2, 3, (5, 6, 4, 7), 2)).says(
            "Weights that were stored without the positions must load into a new model."
        ),
        edge("buffer", scenario="with_its_buffer", **problem(2, 3, (5, 6, 4, 7))).says(
            "The positions must be a buffer, which moves to another device with the model."
        ),
        edge("others", scenario="among_other_models", **problem(2, 3, (5, 6, 4, 7), 2)).says(
            "`__init__` must take num_tokens, attentions, positions and hidden_dim in this order, "
            "and models must be independent of each other."
        ),
        case("gradient", **back, **problem(1, 2, (2, 3, 3, 2))).says(
            "Gradients must reach all layers and the attention modules."
        ),
    ]


@in_steps(
    joins=(pre_norm, pre_norm),
    place=lambda x, positions, n: x + positions[:n],
    last=lambda model, x: model.to_logits(model.norm(x)),
    between=nn.GELU,
    keep=lambda model, positions: model.register_buffer("positions", positions, False),
)
def _model(joins, place, last, between, keep) -> type:
    """Return a correct model in which each step may be changed."""

    class LanguageModel(nn.Module):
        positions: Sequence

        def __init__(self, num_tokens, attentions, positions, hidden_dim=0) -> None:
            super().__init__()
            self.context_length, d = len(positions), positions.shape[1]
            keep(self, positions)
            self.tokens, self.to_logits = nn.Embedding(num_tokens, d), nn.Linear(d, num_tokens)
            self.norm, self.blocks = nn.LayerNorm(d), nn.ModuleList()
            for attention in attentions:
                parts = {"norm_1": nn.LayerNorm(d), "attention": attention}
                if hidden_dim:
                    network = nn.Linear(d, hidden_dim), between(), nn.Linear(hidden_dim, d)
                    parts |= {"norm_2": nn.LayerNorm(d), "feed_forward": nn.Sequential(*network)}
                self.blocks.append(nn.ModuleDict(parts))

        def forward(self, tokens) -> nn.Module:
            if tokens.shape[1] > self.context_length:
                raise ValueError("the text is too long")
            x = place(self.tokens(tokens), self.positions, tokens.shape[1])
            for block in self.blocks:
                parts = [block[name] for name in ("attention", "feed_forward") if name in block]  # pyright: ignore[reportIndexIssue, reportOperatorIssue] - a ModuleDict
                for i, (join, part) in enumerate(zip(joins, parts, strict=False)):
                    x = join(x, block[f"norm_{i + 1}"], part)  # pyright: ignore[reportIndexIssue] - a ModuleDict
            return last(self, x)

    return LanguageModel


EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=3,
    is_class=True,
    returns=(Returned("logits", "tensor", "float", ("batch", "n", "num_tokens")),),
    probes=_probes,
    oracle=oracle.language_model,
    mistakes=(
        *mistakes_of_joins(lambda joins: _model(joins=joins), 2),
        mistake("no_final_norm", _model(last=lambda model, x: model.to_logits(x))).says(
            "The logits are made from x without the last norm.", "What does `to_logits` read?"
        ),
        mistake(
            "positions_from_the_end", _model(place=lambda x, positions, n: x + positions[-n:])
        ).says(
            "You add the last positions, but the first token of any text is at position 0.",
            "Which rows of `positions` does a text of two tokens need?",
        ),
        mistake(
            "scaled_embeddings",
            _model(place=lambda x, positions, n: x * x.shape[-1] ** 0.5 + positions[:n]),
        ).says(
            "You multiply the vectors of the tokens by sqrt(D), as the original paper does. Here "
            "they are added as they are.",
            "What is added to the positions?",
        ),
        mistake("relu", _model(between=nn.ReLU)).says(
            "Your feed-forward networks use ReLU between the two linear layers instead of GELU.",
            "Which function does the statement name between the two linear layers?",
        ),
        mistake(
            "positions_stored",
            _model(keep=lambda model, positions: model.register_buffer("positions", positions)),
        ).says(
            "Your `positions` are part of `state_dict()`, so `load_state_dict` rejects weights "
            "that were stored without them.",
            "Which option of `register_buffer` keeps a buffer out of `state_dict()`?",
        ),
    ),
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
