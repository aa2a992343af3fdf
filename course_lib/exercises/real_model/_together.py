"""All answers to lesson 11 in one small random model, which reads a text in three ways."""

import numpy as np

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises.real_model.GroupedQueryAttention import state_of
from course_lib.exercises.real_model.next_token_logits import model_state
from course_lib.reference import Expected
from course_lib.reference import real_model as oracle

_SAYS = (
    "A model made of your answers must give the logits of the definition: for the whole text at "
    "once, for a prompt followed by one token, and token by token, with one of your caches for "
    "each block."
)


def _probe(rng, name, batch, n, heads, num_blocks, base) -> Probe:
    num_heads, num_groups, head_dim = heads
    embed_dim = num_heads * head_dim
    state = model_state(rng, 9, embed_dim, 6, num_blocks, lambda: state_of(rng, *heads))
    sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "num_groups": num_groups}
    options = {"state": state, "sizes": sizes | {"base": base}}
    model = Built("model_of_answers", options, "a small random model")
    tokens = tensor(rng.integers(0, 9, (batch, n)))
    return Probe(name, _SAYS, args={"model": model, "tokens": tokens},
                 scenario="answers_read_in_pieces")  # fmt: skip


def _logits(model: Built, tokens: np.ndarray) -> Expected:
    sizes = model.options["sizes"]
    logits = oracle.small_model(
        model.options["state"],
        tokens,
        lambda state, x: oracle.grouped_query_module(sizes, state, x).outputs,
    )
    return Expected((logits,) * 3)


EXERCISE = Exercise(
    points=1,
    minutes=2,
    difficulty=1,
    returns=tuple(
        Returned(name, "tensor", "float", ("batch", "n", "num_tokens"))
        for name in (
            "logits of the whole text at once",
            "logits of a prompt and one token",
            "logits token by token",
        )
    ),
    probes=lambda rng: [
        _probe(rng, "two_blocks", 2, 5, (4, 2, 2), 2, 10000.0),
        _probe(rng, "three_blocks", 1, 6, (6, 2, 4), 3, 200.0),
    ],
    oracle=_logits,
    hints=("", "", ""),
)
