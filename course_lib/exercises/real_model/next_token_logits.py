"""`next_token_logits`: the whole model, with a cache for each block or without."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._builders import FLOAT32, Given, case, edge, in_steps, mistake
from course_lib.exercises.translator._blocks import mistakes_of_joins, pre_norm

_BLOCKS = (
    "Each block must add attention(norm_1(x), cache) to x, then feed_forward(norm_2(x)), and the "
    "logits must be the dot products of norm(x) with the vectors of all tokens."
)
_PIECES = "With caches, the logits must be those of one pass over the whole text."


def model_state(rng, num_tokens, embed_dim, hidden_dim, num_blocks, attention) -> Given:
    """Return weights of a small model; `attention()` makes those of one attention."""

    def weight(rows, columns) -> np.ndarray:
        return rng.normal(0, 1.3 / columns**0.5, (rows, columns))

    state = {"tokens.weight": rng.normal(0, 1.2, (num_tokens, embed_dim))}
    for number in range(num_blocks):
        block = f"blocks.{number}"
        state |= {f"{block}.norm_{i}.weight": rng.uniform(0.5, 1.6, embed_dim) for i in (1, 2)}
        state |= {f"{block}.attention.{name}": data for name, data in attention().items()}
        state[f"{block}.feed_forward.gate.weight"] = weight(hidden_dim, embed_dim)
        state[f"{block}.feed_forward.up.weight"] = weight(hidden_dim, embed_dim)
        state[f"{block}.feed_forward.down.weight"] = weight(embed_dim, hidden_dim)
    return state | {"norm.weight": rng.uniform(0.5, 1.6, embed_dim)}


def _problem(rng, batch, n, num_blocks, pieces=(), dtype="int64", **changed) -> Given:
    num_tokens, embed_dim, hidden_dim = 7, 4, 5
    state = model_state(rng, num_tokens, embed_dim, hidden_dim, num_blocks,
                        lambda: {"scale": rng.uniform(0.6, 1.5, 1)})  # fmt: skip
    state |= {
        name: np.full_like(state[name], changed[part])
        for name in state
        for part in changed
        if part in name
    }
    tokens = (rng.integers(1, num_tokens, (batch, n)).cumsum(1) % num_tokens).astype(dtype)
    model = Built("small_model", {"state": state}, f"a small model with {num_blocks} block(s)")
    given: Given = {"model": model, "tokens": tensor(tokens)}
    return given | ({"pieces": pieces, "scenario": "logits_in_pieces"} if pieces else {})


def _worked() -> Given:
    problem = _problem(np.random.default_rng(0), 1, 2, 1, down=0.0)
    state = problem["model"].options["state"]
    state["tokens.weight"] = np.array([[3.0, 4.0], [-8.0, 6.0]])
    state["blocks.0.feed_forward.gate.weight"] = np.zeros((1, 2))
    state["blocks.0.feed_forward.up.weight"] = np.zeros((1, 2))
    state["blocks.0.feed_forward.down.weight"] = np.zeros((2, 1))
    state |= {name: np.ones(2) for name in state if "norm" in name}
    state["blocks.0.attention.scale"] = np.array([0.0])
    return problem | {"tokens": tensor([[0, 1]])}


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    return [
        case("worked", **_worked()).says(
            "If both parts return zeros, the logits must be the dot products of norm(x), where x "
            "is the token's vector, with the vectors of all tokens."
        ),
        case("attention_alone", **problem(2, 4, 1, down=0.0)).says(
            "If the network returns zeros, x must become x + attention(norm_1(x), cache)."
        ),
        case("network_alone", **problem(2, 3, 1, scale=0.0)).says(
            "If the attention returns zeros, x must become x + feed_forward(norm_2(x))."
        ),
        case("one_block", **problem(3, 4, 1)).says(_BLOCKS),
        case("two_blocks", **problem(2, 5, 2)).says(_BLOCKS),
        case("three_blocks", **problem(2, 6, 3)).says(_BLOCKS),
        case("token_by_token", **problem(2, 4, 2, (1, 1, 1, 1))).says(_PIECES),
        case("prompt_first", **problem(1, 6, 3, (4, 1, 1))).says(_PIECES),
        case("equal_norms", **problem(2, 5, 2, (2, 2, 1), norm_=1.0)).says(_PIECES),
        edge("one_token", **problem(3, 1, 2)).says("A text may have a single token."),
        edge("int32", **problem(2, 3, 2, dtype="int32")).says("The tokens may be int32."),
        edge("one_piece", **problem(2, 3, 1, (3,))).says(_PIECES),
        edge("float32", **problem(2, 4, 2) | FLOAT32).says(
            "A model in float32 must give float32 logits."
        ),
    ]


@in_steps(
    joins=(pre_norm, pre_norm),
    norms=(1, 2),
    last=lambda model, x: model.norm(x),
    cache_of=lambda caches, number: None if caches is None else caches[number],
    shown=lambda logits: logits,
)
def _model(joins, norms, last, cache_of, shown) -> Callable:
    """Return a correct answer in which each step may be changed."""

    def next_token_logits(model, tokens, caches=None) -> torch.Tensor:
        x = model.tokens(tokens)
        for number, block in enumerate(model.blocks):
            attend = functools.partial(block.attention, cache=cache_of(caches, number))
            for join, norm, part in zip(joins, norms, (attend, block.feed_forward), strict=True):
                x = join(x, block.get_submodule(f"norm_{norm}"), part)
        return shown(last(model, x) @ model.tokens.weight.mT)

    return next_token_logits


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    returns=(Returned("logits", "tensor", "float", ("batch", "n", "num_tokens")),),
    probes=_probes,
    mistakes=(
        *mistakes_of_joins(lambda joins: _model(joins=joins), 2),
        mistake("no_final_norm", _model(last=lambda model, x: x)).says(
            "The logits are made from x without the last norm.",
            "Which vector do you multiply with the vectors of the tokens?",
        ),
        mistake(
            "norms_mixed_up",
            _model(norms=(2, 1)),
            twins=(_model(norms=(1, 1)), _model(norms=(2, 2))),
        ).says(
            "At least one part uses the norm of the other part.",
            "Which norm does each of the two formulas name?",
        ),
        mistake("caches_ignored", _model(cache_of=lambda caches, number: None)).says(
            "The caches have no effect, so each call forgets the earlier tokens.",
            "Which call of a block takes its cache, also if its length is still 0?",
        ),
        mistake(
            "one_cache_for_all", _model(cache_of=lambda caches, number: caches and caches[0])
        ).says(
            "All blocks share one cache, but each block has keys and values of its own.",
            "Which cache belongs to block i?",
        ),
    ),
    hints=(
        "It is lesson 10's model with three changes. No position is added, the last layer uses the "
        "weights of the embedding, and each block's attention may get a cache.",
        "Look up the vectors of the tokens. Then take the blocks in order, each with its cache or "
        "None, and add the results of its two parts to x. At the end, multiply norm(x) with the "
        "transposed weight of the embedding.",
        "x = model.tokens(tokens)\n"
        "for number, block in enumerate(model.blocks):\n"
        "    cache = None if caches is None else ...\n"
        "    x = x + block.attention(..., cache)\n"
        "    x = ...\n"
        "return ... @ model.tokens.weight.T",
    ),
)
