"""`generate`: the context that is read, the draw of the next token, and unchanged state."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._builders import (
    GRAPH_KEPT,
    MODE_CHANGED,
    Case,
    Given,
    case,
    edge,
    in_steps,
    mistake,
)
from course_lib.exercises.language_model._frequencies import (
    TOLD,
    frequencies,
    frequency_problem,
    likeliest,
    model_of,
    text_problem,
)

_GREEDY: Given = {"temperature": 0}
_LIKELIEST = "At temperature 0 the likeliest token must come next, every time."


def _called(make, name, given, *, seed=None, **by_name) -> Case:
    """Make a call with the options by name, separated from the options of the probe."""
    options = {key: by_name.pop(key) for key in ("compare", "scenario") if key in by_name}
    if seed is not None:
        by_name["generator"] = Built("generator", {"seed": int(seed.integers(10**6))})
    return make(name, **given, by_name=by_name, **options)


def _values(rng) -> list[Probe]:
    count = 2 * np.roll(np.eye(6), 1, axis=1)
    worked = {"model": model_of(np.stack([count, 0 * count])), "prompt": tensor([[2, 3]])}
    drawn: Given = {"compare": "frequencies", "seed": rng}
    often = "In thousands of texts each token must be as frequent as softmax(logits / temperature)"

    def greedy(name, *sizes, **options) -> Case:
        return _called(case, name, text_problem(rng, *sizes, **options), **_GREEDY)

    def sampled(name, num_tokens=1, **options) -> Case:
        return _called(case, name, frequency_problem(rng, num_tokens), **drawn, **options)

    return [
        _called(case, "worked_number", worked | {"num_tokens": 2}, **_GREEDY).says(_LIKELIEST),
        greedy("greedy", 3, 2, 4, 6).says(f"{_LIKELIEST} The whole text is its context."),
        greedy("prompt_longer_than_the_context", 3, 7, 3, 5).says(
            "If the text is longer, the model must read its last `context_length` tokens, and the "
            "text must keep all of its tokens."
        ),
        greedy("dropout_off", 2, 3, 4, 5, training=True).says(
            "Even a model in train mode must run in eval mode: dropout would change its logits."
        ),
        sampled("drawn", num_tokens=2).says(f"{often} says."),
        sampled("hot", temperature=3.0).says(f"{often} says, here at temperature 3."),
        sampled("top_k", top_k=3).says(
            "Only the `top_k` likeliest tokens may be drawn, in proportion to their probabilities."
        ),
    ]


def _edges(rng) -> list[Probe]:
    def greedy(name, *sizes, training=False, **options) -> Case:
        given = text_problem(rng, *sizes, training=training)
        return _called(edge, name, given, **(_GREEDY | options))

    whole = text_problem(rng, 2, 4, 3, 6)
    int32 = whole | {"prompt": whole["prompt"].astype(np.int32)}
    many = frequency_problem(rng, 2)
    drawn: Given = {"compare": "frequencies", "seed": rng}
    return [
        greedy("context_of_one", 3, 2, 4, 1).says("A context may be a single token."),
        greedy("nothing_to_add", 2, 3, 0, 5).says("With `num_tokens=0` return the prompts."),
        _called(edge, "int32", int32, **_GREEDY).says("A prompt may be int32 or int64."),
        greedy("top_k_at_0", 2, 3, 5, 4, top_k=3).says("At temperature 0 ignore `top_k`."),
        greedy("top_1", 6, 3, 5, 4, temperature=1.5, top_k=1, seed=rng).says(
            "With `top_k=1` only the likeliest token may be drawn."
        ),
        greedy("nearly_0", 2, 3, 5, 4, temperature=1e-4, seed=rng).says(
            "A temperature close to 0 must give the same texts as 0."
        ),
        _called(edge, "top_k_above_the_vocabulary", many, top_k=9, **drawn).says(
            "If `top_k` exceeds the vocabulary, any token may come."
        ),
        _called(edge, "hot_top_k", many, top_k=3, temperature=2.0, **drawn).says(
            "`top_k` and temperature must act together."
        ),
        *_around(greedy, rng),
    ]


def _around(greedy, rng) -> list[Probe]:
    """Return probes of the state that the call must not change and of its random numbers."""
    mode: Given = {"scenario": "mode_noted", "compare": "mode"}
    drawn: Given = {"compare": "noted", "temperature": 1.0}
    return [
        greedy("no_gradients", 2, 3, 2, 4, scenario="gradients_noted", compare="gradients").says(
            "The model must run with gradients disabled."
        ),
        greedy("stays_in_train_mode", 2, 3, 2, 4, training=True, **mode).says(
            "A model passed in train mode must be in train mode afterwards."
        ),
        greedy("stays_in_eval_mode", 2, 3, 2, 4, **mode).says(
            "A model passed in eval mode must be in eval mode afterwards."
        ),
        greedy("equal_generators", 5, 2, 9, 4, scenario="equal_generators", **drawn, seed=rng).says(
            "Generators in the same state must give the same texts; another state must give others."
        ),
        greedy("without_generator", 5, 2, 9, 4, scenario="equal_generators", **drawn).says(
            "Without a generator, torch's global one must be used: the same `torch.manual_seed` "
            "must give the same texts, and the next call others."
        ),
    ]


_NOTED = {
    "gradients": ("graph_kept", *GRAPH_KEPT),
    "mode": ("mode_changed", *MODE_CHANGED),
    "noted": (
        "not_from_the_generator",
        "Your texts do not depend on the generator alone: the same state gives different texts.",
        "Which of your calls draws, and what do you pass as its `generator`?",
    ),
}


def _nothing_noted(probe, expected, recorded) -> Problem | None:
    name, message, hint = _NOTED[probe.compare]
    if probe.compare == "noted" and (recorded.numbers < 0).all():
        message = "Two calls in a row give the same texts: the generator is reset or not used."
    return Cause(name, message, hint) if (recorded.numbers < 0).any() else None


def _last_tokens(tokens, length) -> torch.Tensor:
    return tokens[:, -length:]


def _restricted(logits, top_k) -> torch.Tensor:
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    smallest = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits < smallest, -torch.inf)


def _others_at_0(logits, top_k) -> torch.Tensor:
    return _restricted(logits, top_k).nan_to_num(neginf=0.0)


def _draw(logits, temperature, top_k, generator) -> torch.Tensor:
    weights = torch.softmax(_restricted(logits, top_k) / temperature, dim=-1)
    return torch.multinomial(weights, 1, generator=generator)


def _or_likeliest(draw) -> Callable:
    def chosen(logits, temperature, top_k, generator) -> torch.Tensor:
        if temperature == 0:
            return logits.argmax(-1, keepdim=True)
        return draw(logits, temperature, top_k, generator)

    return chosen


@in_steps(
    read=_last_tokens,
    choose=_or_likeliest(_draw),
    before="eval",
    kept=lambda tokens, length: tokens,
    begin=lambda prompt, length: prompt,
)
def _model(read, choose, before, kept, begin) -> Callable:
    """Return a correct answer in which each step may be changed."""

    def generate(
        model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
    ) -> torch.Tensor:
        was_training, tokens = model.training, begin(prompt, model.context_length)
        model.train(was_training and before == "as_it_was")
        with torch.no_grad():
            for _ in range(num_tokens):
                tokens = kept(tokens, model.context_length)
                logits = model(read(tokens, model.context_length))[:, -1]
                new = choose(logits, temperature, top_k, generator)
                tokens = torch.cat([tokens, new], dim=1)
        model.train(was_training)
        return tokens

    return generate


def _drawing(change) -> Callable:
    """Return an answer that draws with `change(logits, temperature, top_k, generator)`."""
    return _model(choose=_or_likeliest(lambda *given: _draw(*change(*given))))


_MISTAKES = (
    mistake("first_tokens_read", _model(lambda tokens, length: tokens[:, :length])).says(
        "From a long text you pass the first `context_length` tokens to the model, so it does not "
        "see the tokens that it wrote last.",
        "Which end of a long text should be cut off?",
    ),
    mistake("prompt_cut", _model(kept=_last_tokens), twins=(_model(begin=_last_tokens),)).says(
        "Long texts lack their beginning: you drop the tokens that leave the context.",
        "Which of the two is as long as the context: what the model reads, or what you return?",
    ),
    mistake("zero_not_treated", _model(choose=_draw)).says(
        "At temperature 0 you divide the logits by 0.",
        "Which token comes next when the likeliest one is certain?",
    ),
    mistake("temperature_multiplied", _drawing(lambda x, t, k, g: (x, 1 / t, k, g))).says(
        *TOLD["temperature_multiplied"]
    ),
    mistake(
        "top_k_ignored",
        _drawing(lambda x, t, k, g: (x, t, None, g)),
        twins=(_drawing(lambda x, t, k, g: (_others_at_0(x, k), t, None, g)),),
    ).says(*TOLD["top_k_ignored"]),
    mistake(
        "always_the_likeliest",
        _model(choose=lambda logits, *options: logits.argmax(-1, keepdim=True)),
    ).says(
        "You always choose the likeliest token, whatever the temperature is.",
        "Where does your code draw?",
    ),
    mistake("mode_left_alone", _model(before="as_it_was")).says(
        "You do not switch the model to eval mode, so in train mode dropout can change its logits.",
        "What do layers with dropout do in train mode?",
    ),
)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=3,
    returns=(Returned("tokens", "tensor", "int", ("batch", "n + num_tokens")),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    oracle=likeliest,
    comparisons={"frequencies": frequencies} | dict.fromkeys(_NOTED, _nothing_noted),
    mistakes=_MISTAKES,
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
)
