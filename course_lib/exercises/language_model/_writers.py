"""Wrong models of `generate`: each a right one with a step changed."""

from collections.abc import Callable
from typing import Any

import torch

from course_lib.exercises._rows import in_steps, mistake
from course_lib.exercises.language_model._frequencies import TOLD


def _last_tokens(tokens, length) -> torch.Tensor:
    return tokens[:, -length:]


def _restricted(logits, top_k, ruled_out=-torch.inf) -> torch.Tensor:
    if top_k is None or top_k >= logits.shape[-1]:
        return logits
    smallest = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits < smallest, ruled_out)


def _largest(logits, top_k) -> torch.Tensor:
    """Sorted, so that an index into them is no token."""
    return logits if top_k is None else logits.topk(min(top_k, logits.shape[-1])).values


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
    finish=lambda tokens, num_given: tokens,
)
def _model(read, choose, before, kept, finish) -> Callable:
    """A right answer, of which each step may be changed."""

    def generate(
        model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None
    ) -> torch.Tensor:
        was_training, tokens = model.training, prompt
        model.train(was_training and before == "as_it_was")
        with torch.no_grad():
            for _ in range(num_tokens):
                tokens = kept(tokens, model.context_length)
                logits = model(read(tokens, model.context_length))[:, -1]
                new = choose(logits, temperature, top_k, generator)
                tokens = torch.cat([tokens, new], dim=1)
        model.train(was_training)
        return finish(tokens, prompt.shape[1])

    return generate


def _drawing(change) -> Callable:
    """`change(logits, temperature, top_k, generator)` gives other arguments for the draw."""
    return _model(choose=_or_likeliest(lambda *given: _draw(*change(*given))))


def _said(id, model: Any, **options) -> Any:
    return mistake(id, model, **options).says(*TOLD[id])


MISTAKES = (
    mistake("whole_text_read", _model(lambda tokens, length: tokens), fails=True).says(
        "You give the model the whole text, which is longer than its `context_length`.",
        "Which part of a long text may the model read?",
    ),
    mistake("first_tokens_read", _model(lambda tokens, length: tokens[:, :length])).says(
        "The model always reads the first `context_length` tokens, so it never sees what it wrote "
        "last.",
        "Which end of a long text should be cut off?",
    ),
    mistake("last_token_read", _model(lambda tokens, length: tokens[:, -1:])).says(
        "You give the model the last token alone, but what comes next also depends on those "
        "before it.",
        "How much of the text may the model read?",
    ),
    mistake("one_token_less_read", _model(lambda tokens, n: tokens[:, -max(1, n - 1) :])).says(
        "The model reads one token fewer than it could.",
        "How many tokens does your slice keep?",
    ),
    mistake(
        "prompt_cut",
        _model(kept=_last_tokens),
        twins=(_model(finish=lambda tokens, num_given: tokens[:, num_given:]),),
    ).says(
        "Your texts lack their beginning: the prompt, or whatever no longer fits into the context.",
        "Which of the two is as long as the context: what the model reads, or what you return?",
    ),
    mistake("zero_not_treated", _model(choose=_draw), fails=True).says(
        "At temperature 0 you divide the logits by 0.",
        "What is left to draw when the likeliest token is certain?",
    ),
    mistake(
        "drawn_at_0",
        _model(choose=lambda x, t, k, g: _draw(x, max(t, 1e-8), k, g)),
        twins=(_model(choose=lambda x, t, k, g: _draw(x, t or 1e-8, k, None if t == 0 else g)),),
    ).says(
        "At temperature 0 you still draw, at a tiny temperature. The token is right, but it uses "
        "up a random number; at 0 nothing should be drawn.",
        "Which function finds the likeliest token without drawing?",
    ),
    _said("temperature_multiplied", _drawing(lambda x, t, k, g: (x, 1 / t, k, g))),
    _said("temperature_ignored", _drawing(lambda x, t, k, g: (x, 1.0, k, g))),
    _said(
        "top_k_ignored",
        _drawing(lambda x, t, k, g: (x, t, None, g)),
        twins=(_drawing(lambda x, t, k, g: (_restricted(x, k, 0.0), t, None, g)),),
    ),
    mistake("place_for_token", _drawing(lambda x, t, k, g: (_largest(x, k), t, None, g))).says(
        "With `top_k` you append the rank among the k largest logits, 0 for the likeliest, "
        "instead of the token that has this rank.",
        "What does `topk` return besides the largest numbers?",
    ),
    mistake(
        "always_the_likeliest",
        _model(choose=lambda logits, *options: logits.argmax(-1, keepdim=True)),
    ).says(
        "The likeliest token always comes next, at every temperature.",
        "Where does your code draw?",
    ),
    mistake("global_rng", _drawing(lambda x, t, k, g: (x, t, k, None))).says(
        "`generator` is not used: the random numbers are torch's global ones.",
        "Which argument makes `torch.multinomial` draw from `generator`?",
    ),
    mistake("mode_left_alone", _model(before="as_it_was")).says(
        "You leave the model in whatever mode it came; in train mode, dropout disturbs it.",
        "What do layers with dropout do in train mode?",
    ),
)
