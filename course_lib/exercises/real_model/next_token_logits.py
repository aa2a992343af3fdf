"""`next_token_logits`: the whole model, with a cache for each block or without."""

import functools
from typing import Any

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises import kit
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.exercises.translator._blocks import State, mistakes_of_joins, pre_norm


def model_state(rng, num_tokens, embed_dim, hidden_dim, num_blocks, attention) -> State:
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


def call(state, tokens, pieces=(), num_blocks=1, **fields: Any) -> Probe:
    """Return a call with a model of these weights, perhaps in pieces with caches."""
    model = Built("small_model", {"state": state}, f"a small model with {num_blocks} block(s)")
    if not pieces:
        return kit.call(model, tokens, **fields)
    return kit.call(model, tokens, pieces, scenario="logits_in_pieces", **fields)


def drawn(
    rng, batch, n, num_blocks, pieces=(), *, tokens_dtype="int64", changed=(), **fields: Any
) -> Probe:
    """Draw a model and tokens; `changed` sets all weights whose names hold a word to a number."""
    state = model_state(rng, 7, 4, 5, num_blocks, lambda: {"scale": rng.uniform(0.6, 1.5, 1)})
    for part, number in dict(changed).items():
        state |= {name: np.full_like(state[name], number) for name in state if part in name}
    tokens = (rng.integers(1, 7, (batch, n)).cumsum(1) % 7).astype(tokens_dtype)
    return call(state, tokens, pieces, num_blocks, **fields)


def worked() -> Probe:
    state = model_state(np.random.default_rng(0), 2, 2, 1, 1, lambda: {"scale": np.zeros(1)})
    state |= {name: np.zeros_like(state[name]) for name in state if "feed_forward" in name}
    state |= {name: np.ones(2) for name in state if "norm" in name}
    return call(state | {"tokens.weight": np.array([[3.0, 4.0], [-8.0, 6.0]])}, [[0, 1]])


def problems(rng) -> Problems:
    problem, edge = (functools.partial(drawn, rng, **f) for f in ({}, {"part": "edges"}))
    yield (
        "If both parts return zeros, the logits must be the dot products of norm(x), where x is "
        "the token's vector, with the vectors of all tokens."
    )
    yield worked()
    yield "If the network returns zeros, x must become x + attention(norm_1(x), cache)."
    yield problem(2, 4, 1, changed={"down": 0.0})
    yield "If the attention returns zeros, x must become x + feed_forward(norm_2(x))."
    yield problem(2, 3, 1, changed={"scale": 0.0})
    yield (
        "Each block must add attention(norm_1(x), cache) to x, then feed_forward(norm_2(x)), and "
        "the logits must be the dot products of norm(x) with the vectors of all tokens."
    )
    yield problem(3, 4, 1)
    yield problem(2, 5, 2)
    yield problem(2, 6, 3)
    yield "With caches, the logits must be those of one pass over the whole text."
    yield problem(2, 4, 2, (1, 1, 1, 1))
    yield problem(1, 6, 3, (4, 1, 1))
    yield problem(2, 5, 2, (2, 2, 1), changed={"norm_": 1.0})
    yield "A text may have a single token."
    yield edge(3, 1, 2)
    yield "The tokens may be int32."
    yield edge(2, 3, 2, tokens_dtype="int32")
    yield "With caches, the logits must be those of one pass over the whole text."
    yield edge(2, 3, 1, (3,))
    yield "A model in float32 must give float32 logits."
    yield edge(2, 4, 2, dtype="float32")


def own_cache(caches, number) -> Any:
    return None if caches is None else caches[number]


def read(
    model, tokens, caches, joins, norms=(1, 2), cache_of=own_cache, scale=1, blocks=slice(None)
) -> Tensor:
    """Return x after all blocks, whose parts use the norms with these numbers."""
    x = scale * model.tokens(tokens)
    for number, block in [*enumerate(model.blocks)][blocks]:
        attend = functools.partial(block.attention, cache=cache_of(caches, number))
        for join, norm, part in zip(joins, norms, (attend, block.feed_forward), strict=True):
            x = join(x, block.get_submodule(f"norm_{norm}"), part)
    return x


def logits_of(model, x) -> Tensor:
    return model.norm(x) @ model.tokens.weight.mT


RIGHT = pre_norm, pre_norm


@mistake
def no_final_norm(model, tokens, caches=None) -> Tensor:
    """The logits are not made from norm(x) after all blocks: the last norm or a block is left out.

    Which vector do you multiply with the vectors of the tokens, and what came before it?
    """
    return read(model, tokens, caches, RIGHT) @ model.tokens.weight.mT


@like(no_final_norm)
def last_block_left_out(model, tokens, caches=None) -> Tensor:
    return logits_of(model, read(model, tokens, caches, RIGHT, blocks=slice(-1)))


@like(no_final_norm)
def first_block_left_out(model, tokens, caches=None) -> Tensor:
    return logits_of(model, read(model, tokens, caches, RIGHT, blocks=slice(1, None)))


@like(no_final_norm)
def no_block_without_caches(model, tokens, caches=None) -> Tensor:
    blocks = slice(0) if caches is None else slice(None)
    return logits_of(model, read(model, tokens, caches, RIGHT, blocks=blocks))


@mistake
def norms_mixed_up(model, tokens, caches=None, norms=(2, 1)) -> Tensor:
    """At least one part uses the norm of the other part.

    Which norm does each of the two formulas name?
    """
    return logits_of(model, read(model, tokens, caches, RIGHT, norms))


for norms in ((1, 1), (2, 2)):
    like(norms_mixed_up)(functools.partial(norms_mixed_up, norms=norms))


@mistake
def caches_ignored(model, tokens, caches=None) -> Tensor:
    """The caches have no effect, so each call forgets the earlier tokens.

    Which call of a block takes its cache, also if its length is still 0?
    """
    return logits_of(model, read(model, tokens, None, RIGHT))


@mistake
def one_cache_for_all(model, tokens, caches=None) -> Tensor:
    """Some blocks get the cache of another block, but each block has keys and values of its own.

    Which cache belongs to block i?
    """

    def first(caches, number) -> Any:
        return caches and caches[0]

    return logits_of(model, read(model, tokens, caches, RIGHT, cache_of=first))


@mistake
def scaled_embeddings(model, tokens, caches=None) -> Tensor:
    """You multiply the vectors of the tokens by sqrt(D), as Gemma does. Here x begins with the
    vectors themselves.

    Which operation does the statement apply to the vectors before the first block?
    """
    scale = model.tokens.embedding_dim**0.5
    return logits_of(model, read(model, tokens, caches, RIGHT, scale=scale))


@mistake
def parts_side_by_side(model, tokens, caches=None) -> Tensor:
    """Both parts of a block read the same x. The network must read the sum of x and the attention's
    result.

    Which x does `norm_2` read in your code?
    """
    x = model.tokens(tokens)
    for number, block in enumerate(model.blocks):
        attended = block.attention(block.norm_1(x), cache=own_cache(caches, number))
        x = x + attended + block.feed_forward(block.norm_2(x))
    return logits_of(model, x)


@mistake
def log_probabilities(model, tokens, caches=None) -> Tensor:
    """You do not return the logits of all positions, but logarithms of probabilities, or only the
    logits of the last position.

    What do you do after the product with the vectors of all tokens?
    """
    return logits_of(model, read(model, tokens, caches, RIGHT)).log_softmax(-1)


@like(log_probabilities)
def last_position_only(model, tokens, caches=None) -> Tensor:
    return logits_of(model, read(model, tokens, caches, RIGHT))[:, -1]


@like(log_probabilities)
def last_position_kept(model, tokens, caches=None) -> Tensor:
    return logits_of(model, read(model, tokens, caches, RIGHT))[:, -1:]


def with_joins(joins) -> Any:
    return lambda model, tokens, caches=None: logits_of(model, read(model, tokens, caches, joins))


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    returns=(Returned("logits", "tensor", "float", ("batch", "n", "num_tokens")),),
    probes=problems,
    mistakes=mistakes_of_joins(with_joins, 2),
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
