"""`generate`: the context that is read, the draw of the next token, and unchanged state."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises import kit
from course_lib.exercises.kit import Problems, like, mistake
from course_lib.exercises.language_model._frequencies import (
    frequencies,
    frequency_problem,
    likeliest,
    model_of,
    text_problem,
)
from course_lib.exercises.translator._models import GRAPH_KEPT, MODE_CHANGED

_NAMES = ("model", "prompt", "num_tokens")


def call(given, *, draws=None, **fields: Any) -> Probe:
    """Return a call with a model, a prompt and a number of tokens; `draws` seeds a generator."""
    if draws is not None:
        fields["generator"] = Built("generator", {"seed": int(draws.integers(10**6))})
    return kit.call(*given, names=_NAMES, **fields)


def problems(rng) -> Problems:
    count = 2 * np.roll(np.eye(6), 1, axis=1)
    worked = model_of(np.stack([count, 0 * count])), [[2, 3]], 2
    drawn = {"compare": "frequencies", "draws": rng}
    likeliest_next = "At temperature 0 the likeliest token must come next, every time."
    often = "In thousands of texts each token must be as frequent as softmax(logits / temperature)"
    yield likeliest_next
    yield call(worked, temperature=0)
    yield f"{likeliest_next} The whole text is its context."
    yield call(text_problem(rng, 3, 2, 4, 6), temperature=0)
    yield (
        "If the text is longer, the model must read its last `context_length` tokens, and the text"
        " must keep all of its tokens."
    )
    yield call(text_problem(rng, 3, 7, 3, 5), temperature=0)
    yield "Even a model in train mode must run in eval mode: dropout would change its logits."
    yield call(text_problem(rng, 2, 3, 4, 5, training=True), temperature=0)
    yield f"{often} says."
    yield call(frequency_problem(rng, 2), **drawn)
    yield f"{often} says, here at temperature 0.25."
    yield call(frequency_problem(rng, 1), temperature=0.25, **drawn)
    yield "Only the `top_k` likeliest tokens may be drawn, in proportion to their probabilities."
    yield call(frequency_problem(rng, 1), top_k=3, **drawn)
    yield from edges(rng)
    yield from of_state(rng)


def edges(rng) -> Problems:
    def edge(*sizes, **fields: Any) -> Probe:
        return call(text_problem(rng, *sizes), part="edges", **{"temperature": 0} | fields)

    model, prompt, num_tokens = text_problem(rng, 2, 4, 3, 6)
    many = frequency_problem(rng, 2)
    drawn = {"compare": "frequencies", "draws": rng, "part": "edges"}
    yield "A context may be a single token."
    yield edge(3, 2, 4, 1)
    yield "With `num_tokens=0` return the prompts."
    yield edge(2, 3, 0, 5)
    yield "A prompt may be int32 or int64."
    yield call((model, prompt.astype(np.int32), num_tokens), part="edges", temperature=0)
    yield "At temperature 0 ignore `top_k`."
    yield edge(2, 3, 5, 4, top_k=3)
    yield "With `top_k=1` only the likeliest token may be drawn."
    yield edge(6, 3, 5, 4, temperature=1.5, top_k=1, draws=rng)
    yield "A temperature close to 0 must give the same texts as 0."
    yield edge(2, 3, 5, 4, temperature=1e-4, draws=rng)
    yield "If `top_k` exceeds the vocabulary, any token may come."
    yield call(many, top_k=9, **drawn)
    yield "`top_k` and temperature must act together."
    yield call(many, top_k=3, temperature=2.0, **drawn)


def of_state(rng) -> Problems:
    """Yield problems of the state that the call must not change and of its random numbers."""

    def edge(*sizes, training=False, **fields: Any) -> Probe:
        given = text_problem(rng, *sizes, training=training)
        return call(given, part="edges", **{"temperature": 0} | fields)

    mode: dict[str, Any] = {"scenario": "mode_noted", "compare": "mode"}
    equal = {"scenario": "equal_generators", "compare": "noted", "temperature": 1.0}
    yield "The model must run with gradients disabled."
    yield edge(2, 3, 2, 4, scenario="gradients_noted", compare="gradients")
    yield "A model passed in train mode must be in train mode afterwards."
    yield edge(2, 3, 2, 4, training=True, **mode)
    yield "A model passed in eval mode must be in eval mode afterwards."
    yield edge(2, 3, 2, 4, **mode)
    yield "Generators in the same state must give the same texts; another state must give others."
    yield edge(5, 2, 9, 4, draws=rng, **equal)
    yield (
        "Without a generator, torch's global one must be used: the same `torch.manual_seed` must "
        "give the same texts, and the next call others."
    )
    yield edge(5, 2, 9, 4, **equal)


_NOTED = {
    "gradients": ("graph_kept", *GRAPH_KEPT),
    "mode": ("mode_changed", *MODE_CHANGED),
    "noted": (
        "not_from_the_generator",
        "Your texts do not depend on the generator alone: the same state gives different texts.",
        "Which of your calls draws, and what do you pass as its `generator`?",
    ),
}


def nothing_noted(probe, expected, recorded) -> Problem | None:
    name, message, hint = _NOTED[probe.compare]
    if probe.compare == "noted" and (recorded.numbers < 0).all():
        message = "Two calls in a row give the same texts: the generator is reset or not used."
    return Cause(name, message, hint) if (recorded.numbers < 0).any() else None


def last_tokens(tokens, length) -> Tensor:
    return tokens[:, -length:]


def whole(tokens, length) -> Tensor:
    return tokens


def restricted(logits, top_k) -> Tensor:
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    smallest = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits < smallest, -torch.inf)


def draw(logits, temperature, top_k, generator) -> Tensor:
    weights = torch.softmax(restricted(logits, top_k) / temperature, dim=-1)
    return torch.multinomial(weights, 1, generator=generator)


def chosen(logits, temperature, top_k, generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return draw(logits, temperature, top_k, generator)


def written(
    model,
    prompt,
    num_tokens,
    options,
    choose=chosen,
    *,
    read=last_tokens,
    kept=whole,
    mode=False,
    at=-1,
) -> Tensor:
    """Return texts that `choose(logits, *options)` continues, with the model in train mode or not.

    `read` cuts what the model reads, and `kept` the text itself, to the model's context.
    """
    was_training, tokens = model.training, prompt
    model.train(mode)
    with torch.no_grad():
        for _ in range(num_tokens):
            tokens = kept(tokens, model.context_length)
            logits = model(read(tokens, model.context_length))[:, at]
            tokens = torch.cat([tokens, choose(logits, *options)], dim=1)
    model.train(was_training)
    return tokens


@mistake
def first_tokens_read(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    """You do not choose the next token by the last `context_length` tokens: the model reads other
    tokens, too many or too few, or you use its logits at another position.

    Which tokens must the model read, and which of its positions predicts the next one?
    """
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options, read=lambda tokens, n: tokens[:, :n])


@like(first_tokens_read)
def last_token_read(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options, read=lambda tokens, n: tokens[:, -1:])


@like(first_tokens_read)
def prompt_read(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None) -> Tensor:
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options, read=lambda tokens, n: prompt[:, -n:])


@like(first_tokens_read)
def one_token_less_read(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    options = temperature, top_k, generator
    read = lambda tokens, n: tokens[:, -max(n - 1, 1) :]  # noqa: E731
    return written(model, prompt, num_tokens, options, read=read)


@like(first_tokens_read)
def whole_text_read(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options, read=whole)


@like(first_tokens_read)
def first_position_used(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options, at=0)


@mistake
def prompt_cut(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None) -> Tensor:
    """Your texts have another length: you drop their beginning, such as the prompt or the tokens
    that leave the context, or you write another number of tokens.

    How many tokens does each text have at first, how many are added, and which are dropped?
    """
    return written(model, prompt, num_tokens, (temperature, top_k, generator), kept=last_tokens)


@like(prompt_cut)
def prompt_cut_at_first(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    prompt = last_tokens(prompt, model.context_length)
    return written(model, prompt, num_tokens, (temperature, top_k, generator))


@like(prompt_cut)
def prompt_left_out(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options)[:, prompt.shape[1] :]


@like(prompt_cut)
def one_token_more(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    return written(model, prompt, num_tokens + 1, (temperature, top_k, generator))


@mistake
def zero_not_treated(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    """At temperature 0 you divide the logits by 0.

    Which token comes next when the likeliest one is certain?
    """
    return written(model, prompt, num_tokens, (temperature, top_k, generator), draw)


@mistake
def temperature_multiplied(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    """You multiply the logits by the temperature; they must be divided by it.

    Which should make the likeliest token certain: a low temperature or a high one?
    """
    inverse = temperature and 1 / temperature
    return written(model, prompt, num_tokens, (inverse, top_k, generator))


@mistake
def top_k_ignored(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None) -> Tensor:
    """You also draw tokens that are not among the `top_k` likeliest ones.

    Which tokens can your code draw? For which logit is a token's probability 0?
    """
    return written(model, prompt, num_tokens, (temperature, None, generator))


@like(top_k_ignored)
def others_at_0(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None) -> Tensor:
    def choose(logits, *options) -> Tensor:
        others = logits if temperature == 0 else restricted(logits, top_k).nan_to_num(neginf=0.0)
        return chosen(others, *options)

    return written(model, prompt, num_tokens, (temperature, None, generator), choose)


@mistake
def always_the_likeliest(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    """You always choose the likeliest token, whatever the temperature is.

    Where does your code draw?
    """
    return written(model, prompt, num_tokens, (0, top_k, generator))


@mistake
def mode_left_alone(
    model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
) -> Tensor:
    """You do not switch the model to eval mode, so in train mode dropout can change its logits.

    What do layers with dropout do in train mode?
    """
    options = temperature, top_k, generator
    return written(model, prompt, num_tokens, options, mode=model.training)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=3,
    returns=(Returned("tokens", "tensor", "int", ("batch", "n + num_tokens")),),
    probes=problems,
    oracle=likeliest,
    hints=(
        "A text grows by one token per step: read, look at the logits of the last position, "
        "choose, append, repeat. Everything else is about how to choose, and about leaving the "
        "model as it was.",
        "Remember `model.training`, switch to eval mode, and loop without gradients. Read the "
        "last `context_length` tokens and take the logits of the last position. At temperature 0 "
        "take their argmax; otherwise keep the `top_k` largest (the others become -inf), divide "
        "by the temperature, apply the softmax, and draw one token for each row with the "
        "generator.",
        "Begin with temperature 0 and one token: the logits of the last position are (batch, "
        "vocabulary), the new tokens (batch, 1). Then draw instead, from the whole vocabulary. "
        "Then cut the vocabulary down to `top_k`, and make sure that the rest still sums to 1.",
    ),
    marking=Marking(
        comparisons={"frequencies": frequencies} | dict.fromkeys(_NOTED, nothing_noted)
    ),
)
