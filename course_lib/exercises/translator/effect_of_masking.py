"""`effect_of_masking`: measure whether a word depends on the attended position."""

import functools
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._builders import LOG_OF_SOFTMAX, Case, case, in_steps, mistake
from course_lib.exercises.translator._models import (
    AS_RUN,
    LOOKED_AT,
    MODES,
    WITH_MODEL,
    WORDS,
    asked,
    running,
    scripted,
    sources,
)
from course_lib.reference import translator as oracle


def _given(name, model, source, length, target, position, part="values", **options) -> Case:
    args = {
        "model": model,
        "source": source,
        "valid_lens": tensor([length]),
        "target": target,
        "position": position,
    }
    return case(name, part=part, args=args, **{**WITH_MODEL, **options})


def _drawn(rng, name, sizes, position, dtype="int64", model=None, **options) -> Case:
    """Draw a problem of `sizes`: source positions, real ones among them, and words."""
    num_positions, length, num_words = sizes
    model = scripted(rng) if model is None else model
    source = sources(rng, 1, num_positions, dtype=dtype)
    target = rng.integers(0, WORDS, (1, num_words)).astype(dtype)
    return _given(name, model, source, length, target, position, **options)


def _plain(rng) -> list[Probe]:
    ids = {"size": 3, "start": 0, "end": 0, "pad": 0}
    voting = Built("voting_translator", ids, "each position seen is a vote for its word")
    votes = tensor([[1, 2, 1]])
    return [
        _given("worked_number", voting, votes, 3, [[1, 2]], 0).says(
            "A change is the log-probability of a word with `position` masked, minus that with "
            "only the padding masked."
        ),
        _drawn(rng, "several_words", (4, 4, 6), 1).says(
            "There must be one change for each word of the target."
        ),
        _drawn(rng, "with_pads", (6, 3, 4), 2).says(
            "Pads of the source must stay masked by its length."
        ),
    ]


def _edges(rng) -> list[Probe]:
    edge = functools.partial(_drawn, rng, part="edges")
    return [
        edge("beyond_the_length", (5, 2, 3), 4).says(
            "A position beyond the length is masked anyway: all changes must be 0."
        ),
        edge("one_position", (1, 1, 1), 0).says(
            "If the only position is masked, the model sees none. That is a valid case too."
        ),
        edge("no_words", (4, 3, 0), 2).says(
            "A target without words gives no numbers: the shape must be (0,)."
        ),
        edge("very_sure", (4, 4, 5), 1, model=scripted(rng, size=500.0)).says(
            "The changes must be finite, however sure the model is: never take the logarithm of a "
            "probability that has become 0."
        ),
        edge("int32", (4, 3, 5), 1, dtype="int32").says("Source and target may be int32."),
        *(
            edge(name, (4, 3, 3), 1, model=scripted(rng, **options)).says(says)
            for name, (options, says) in MODES.items()
        ),
    ]


def _at(source, position) -> torch.Tensor:
    return (torch.arange(source.shape[1], device=source.device) == position)[None]


@in_steps(
    read=lambda target, start: torch.cat([target.new_full((1, 1), start), target[:, :-1]], dim=1),
    masked=lambda model, source, position: (source, ~_at(source, position)),
    number=lambda logits: torch.log_softmax(logits, -1),
    change=torch.sub,
)
def _effect(read, masked, number, change) -> Callable:
    """Return a wrong measure, which is a correct one with a changed step."""

    def effect_of_masking(model, source, valid_lens, target, position) -> torch.Tensor:
        inputs = read(target, model.start)[:, : target.shape[1]]
        other, mask = masked(model, source, position)
        with running(model):
            logits = model(other, valid_lens, inputs, mask), model(source, valid_lens, inputs)
            chosen = target.long()[..., None]
            return change(*(number(x).gather(-1, chosen)[0, :, 0] for x in logits))

    return effect_of_masking


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    builds_on=("shift_right",),
    returns=(Returned("changes", "tensor", "float", ("num_words",)), *LOOKED_AT),
    probes=lambda rng: [*_plain(rng), *_edges(rng)],
    oracle=asked(oracle.effect_of_masking, "start"),
    comparisons=AS_RUN,
    exact=tuple(AS_RUN),
    mistakes=(
        mistake("sign", _effect(change=lambda masked, whole: whole - masked)).says(
            "Your changes have the wrong sign: they are positive where a word becomes less likely.",
            "Which of the two comes after the masking, and which do you subtract?",
        ),
        mistake(
            "probabilities",
            _effect(number=lambda logits: torch.softmax(logits, -1)),
            twins=(_effect(number=lambda logits: logits),),
        ).says(
            "You compare probabilities or logits instead of log-probabilities.",
            "Which function turns logits into log-probabilities?",
        ),
        mistake("log_of_softmax", _effect(number=lambda logits: logits.softmax(-1).log())).says(
            *LOG_OF_SOFTMAX
        ),
        mistake(
            "only_this_position",
            _effect(masked=lambda model, source, position: (source, _at(source, position))),
        ).says(
            "Your mask allows only this position and hides all others.",
            "What does True mean in this course's masks?",
        ),
        mistake("target_read", _effect(read=lambda target, start: target)).says(
            "Your decoder reads the target unshifted: at each position it reads the word that it "
            "has to predict.",
            "Which exercise turned the targets into the decoder's inputs?",
        ),
    ),
    hints=(
        "Call the model twice, and change nothing but one entry of a mask. What do you read off "
        "the two answers?",
        "The decoder reads the target shifted by one place. The mask is True except in one "
        "column. Take `log_softmax` of both results over the vocabulary, pick the numbers of the "
        "target's words with `gather`, and subtract. Switch to eval mode before, and back to the "
        "old mode afterwards.",
        "inputs = shift_right(...)\n"
        "mask = <True of the source's shape, False in one column>\n"
        "with torch.no_grad():\n"
        "    logits = model(...), model(..., mask=mask)\n"
        "return <log-probabilities of target, second minus first>[0]",
    ),
)
