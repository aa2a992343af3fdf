"""`effect_of_masking`: measure whether a word depends on the attended position."""

from typing import Any

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises.kit import Problems, call, like, mistake, worded_like
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
from course_lib.exercises.translator.masked_cross_entropy import log_of_softmax as of_the_loss
from course_lib.reference import translator as oracle

_NAMES = ("model", "source", "valid_lens", "target", "position")


def drawn(rng, sizes, position, dtype="int64", model=None, part="edges") -> Probe:
    """Draw a problem of `sizes`: source positions, real ones among them, and words."""
    num_positions, length, num_words = sizes
    model = scripted(rng) if model is None else model
    source = sources(rng, 1, num_positions, dtype=dtype)
    target = rng.integers(0, WORDS, (1, num_words)).astype(dtype)
    args: Any = model, source, [length], target, position
    return call(*args, names=_NAMES, part=part, **WITH_MODEL)


def problems(rng) -> Problems:
    ids = {"size": 3, "start": 0, "end": 0, "pad": 0}
    voting = Built("voting_translator", ids, "each position seen is a vote for its word")
    yield (
        "A change is the log-probability of a word with `position` masked, minus that with only "
        "the padding masked."
    )
    yield call(voting, [[1, 2, 1]], [3], [[1, 2]], 0, names=_NAMES, **WITH_MODEL)
    yield "There must be one change for each word of the target."
    yield drawn(rng, (4, 4, 6), 1, part="values")
    yield "Pads of the source must stay masked by its length."
    yield drawn(rng, (6, 3, 4), 2, part="values")
    yield "A position beyond the length is masked anyway: all changes must be 0."
    yield drawn(rng, (5, 2, 3), 4)
    yield "If the only position is masked, the model sees none. That is a valid case too."
    yield drawn(rng, (1, 1, 1), 0)
    yield "A target without words gives no numbers: the shape must be (0,)."
    yield drawn(rng, (4, 3, 0), 2)
    yield (
        "The changes must be finite, however sure the model is: never take the logarithm of a "
        "probability that has become 0."
    )
    yield drawn(rng, (4, 4, 5), 1, model=scripted(rng, size=500.0))
    yield "Source and target may be int32."
    yield drawn(rng, (4, 3, 5), 1, dtype="int32")
    for options, says in MODES:
        yield says
        yield drawn(rng, (4, 3, 3), 1, model=scripted(rng, **options))


def at(source, position) -> Tensor:
    return (torch.arange(source.shape[1], device=source.device) == position)[None]


def chosen(model, source, valid_lens, inputs, target, number, mask=None) -> Tensor:
    """Return `number(logits)` of the target's words."""
    with running(model):
        numbers = number(model(source, valid_lens, inputs, mask))
        return numbers.gather(-1, target.long()[..., None])[0, :, 0]


def changes(model, source, valid_lens, target, position, number) -> Tensor:
    """Return the changes of `number(logits)`."""
    inputs = shifted(model, target)
    given = model, source, valid_lens, inputs, target, number
    return chosen(*given, mask=~at(source, position)) - chosen(*given)


def shifted(model, target) -> Tensor:
    inputs = torch.cat([target.new_full((1, 1), model.start), target[:, :-1]], dim=1)
    return inputs[:, : target.shape[1]]


def log_softmax(logits) -> Tensor:
    return torch.log_softmax(logits, -1)


@mistake
def sign(model, source, valid_lens, target, position) -> Tensor:
    """Your changes have the wrong sign: they are positive where a word becomes less likely.

    Which of the two comes after the masking, and which do you subtract?
    """
    return -changes(model, source, valid_lens, target, position, log_softmax)


@mistake
def probabilities(model, source, valid_lens, target, position) -> Tensor:
    """You compare probabilities or logits instead of log-probabilities.

    Which function turns logits into log-probabilities?
    """
    given = model, source, valid_lens, target, position
    return changes(*given, lambda logits: torch.softmax(logits, -1))


@like(probabilities)
def plain_logits(model, source, valid_lens, target, position) -> Tensor:
    return changes(model, source, valid_lens, target, position, lambda logits: logits)


@mistake
def ratio(model, source, valid_lens, target, position) -> Tensor:
    """You divide one log-probability by the other instead of subtracting one from the other.

    Which operation on log-probabilities corresponds to dividing the probabilities?
    """
    given = model, source, valid_lens, shifted(model, target), target, log_softmax
    return chosen(*given, mask=~at(source, position)) / chosen(*given)


@mistake
@worded_like(of_the_loss)
def log_of_softmax(model, source, valid_lens, target, position) -> Tensor:
    given = model, source, valid_lens, target, position
    return changes(*given, lambda logits: logits.softmax(-1).log())


@mistake
def only_this_position(model, source, valid_lens, target, position) -> Tensor:
    """Your mask allows only this position and hides all others.

    What does True mean in this course's masks?
    """
    given = model, source, valid_lens, shifted(model, target), target, log_softmax
    return chosen(*given, mask=at(source, position)) - chosen(*given)


@mistake
def other_positions(model, source, valid_lens, target, position) -> Tensor:
    """You mask other positions of the source than `position`, or more of them.

    For position 1 of a source of three, what is your mask?
    """
    return changes(model, source, valid_lens, target, position + 1, log_softmax)


@like(other_positions)
def position_before(model, source, valid_lens, target, position) -> Tensor:
    return changes(model, source, valid_lens, target, position - 1, log_softmax)


def with_mask(allowed) -> Any:
    def answer(model, source, valid_lens, target, position) -> Tensor:
        places = torch.arange(source.shape[1], device=source.device)[None]
        given = model, source, valid_lens, shifted(model, target), target, log_softmax
        return chosen(*given, mask=allowed(places, position)) - chosen(*given)

    return answer


like(other_positions)(with_mask(lambda places, position: places < position))
like(other_positions)(with_mask(lambda places, position: places > position))


@like(other_positions)
def last_position(model, source, valid_lens, target, position) -> Tensor:
    given = shifted(model, target), target, log_softmax
    one_less = chosen(model, source, valid_lens - 1, *given)
    return one_less - chosen(model, source, valid_lens, *given)


@mistake
def target_read(model, source, valid_lens, target, position) -> Tensor:
    """Your decoder gets the wrong inputs. Either it reads the target unshifted, so that it sees
    each word that it has to predict, or its first input is a constant id instead of `model.start`.

    Which ids must the decoder read for a target of three words?
    """
    given = model, source, valid_lens, target, target, log_softmax
    return chosen(*given, mask=~at(source, position)) - chosen(*given)


def starting_with(start) -> Any:
    def answer(model, source, valid_lens, target, position) -> Tensor:
        inputs = torch.cat([target.new_full((1, 1), start), target[:, :-1]], dim=1)
        given = model, source, valid_lens, inputs[:, : target.shape[1]], target, log_softmax
        return chosen(*given, mask=~at(source, position)) - chosen(*given)

    return answer


like(target_read)(starting_with(0))
like(target_read)(starting_with(1))


@mistake
def token_replaced(model, source, valid_lens, target, position) -> Tensor:
    """You replace the token at `position` with another token instead of masking the position, so
    the model can still attend to that position.

    Which argument of the model excludes a single position of the source?
    """
    other = source.clone()
    other[:, position] = 0
    given = valid_lens, shifted(model, target), target, log_softmax
    return chosen(model, other, *given) - chosen(model, source, *given)


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    builds_on=("shift_right",),
    returns=(Returned("changes", "tensor", "float", ("num_words",)), *LOOKED_AT),
    probes=problems,
    oracle=asked(oracle.effect_of_masking, "start"),
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
    marking=Marking(comparisons=AS_RUN, exact=tuple(AS_RUN)),
)
