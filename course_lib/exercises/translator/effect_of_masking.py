"""`effect_of_masking`: does a word depend on what was looked at?"""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._rows import Case, case, in_steps, mistake
from course_lib.exercises.translator._models import (
    AS_BEFORE,
    ELSEWHERE,
    LOOKED_AT,
    MODES,
    ON_A_GPU,
    WITH_MODEL,
    WORDS,
    asked,
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


def _drawn(
    rng, name, sizes, position, part="values", model=None, dtype="int64", strided=False, **options
) -> Case:
    """A problem of so many source positions, of which so many are real, and so many words."""
    num_positions, length, num_words = sizes
    model = scripted(rng) if model is None else model
    source = tensor(sources(rng, 1, num_positions, dtype=dtype), strided=strided)
    target = rng.integers(0, WORDS, (1, num_words)).astype(dtype)
    target = tensor(target, strided=strided)
    return _given(name, model, source, length, target, position, part, **options)


def _plain(rng) -> list[Probe]:
    voting = Built("voting_translator", {"size": 3, "start": 0, "end": 0, "pad": 0})
    votes = tensor([[1, 2, 1]])
    return [
        _given("worked_number", voting, votes, 3, [[1, 2]], 0).says(
            "With all three votes the words have probabilities 3/6 and 2/6; without the first "
            "vote, 2/5 and 2/5. The changes are ln(4/5) and ln(6/5)."
        ),
        _drawn(rng, "several_words", (4, 4, 6), 1).says(
            "One number for each word: its log-probability without the position, minus that with "
            "it."
        ),
        _drawn(rng, "last_position", (3, 3, 5), 2).says(
            "The last position may be masked like any other."
        ),
        _drawn(rng, "with_pads", (6, 3, 4), 2).says(
            "Pads of the source stay masked by its length."
        ),
    ]


def _edges(rng) -> list[Probe]:
    edge = functools.partial(_drawn, rng, part="edges")
    return [
        edge("beyond_the_length", (5, 2, 3), 4).says(
            "A position beyond the length is masked anyway: all changes are 0."
        ),
        edge("one_position", (1, 1, 1), 0).says(
            "If the only position is masked, the model sees none. That is a valid case too."
        ),
        edge("no_words", (4, 3, 0), 2).says(
            "A target without words gives no numbers: the shape is (0,)."
        ),
        edge("very_sure", (4, 4, 5), 1, model=scripted(rng, size=500.0)).says(
            "The changes are finite, however sure the model is: never take the logarithm of a "
            "probability that has become 0."
        ),
        edge("int32", (4, 3, 5), 1, dtype="int32").says("Source and target may be int32."),
        edge("another_device", (4, 3, 3), 2, **ELSEWHERE).says(ON_A_GPU),
    ]


def _modes(rng) -> list[Probe]:
    edge = functools.partial(_drawn, rng, part="edges")
    return [
        edge(name, (4, 3, 3), 1, model=scripted(rng, **options)).says(says)
        for name, (options, says) in MODES.items()
    ]


def _effect_beyond(probe, outputs) -> str | None:
    changes = outputs.items[0].data if 0 in outputs.items else None
    inside = probe.args["position"] < probe.args["valid_lens"].data[0]
    if inside or changes is None or not np.abs(np.nan_to_num(changes)).max(initial=0) > 1e-7:
        return None
    return (
        "The position is beyond the source's length, so the model cannot see it either way, and "
        "yet your numbers are not 0."
    )


def _positions(source) -> torch.Tensor:
    return torch.arange(source.shape[1], device=source.device)


@in_steps(
    read=lambda target, model: torch.cat([target.new_full((1, 1), model.start), target], dim=1)[
        :, : target.shape[1]
    ],
    source_masked=lambda source, position, model: source,
    lens_masked=lambda valid_lens, position: valid_lens,
    mask=lambda source, position: (_positions(source) != position)[None],
    number=lambda logits: torch.log_softmax(logits, -1),
    change=lambda masked, whole: masked - whole,
    before=lambda model: model.eval(),
    after=lambda model, was_training: model.train(was_training),
    graph=False,
)
def _effect(
    read,
    source_masked,
    lens_masked,
    mask,
    number,
    change,
    before,
    after,
    graph,
) -> Callable:
    """A wrong measure of what masking does: a right one with another step."""

    def effect_of_masking(model, source, valid_lens, target, position) -> torch.Tensor:
        was_training, inputs = model.training, read(target, model)
        before(model)
        with torch.set_grad_enabled(graph):
            whole = number(model(source, valid_lens, inputs))
            masked = model(
                source_masked(source, position, model),
                lens_masked(valid_lens, position),
                inputs,
                mask(source, position),
            )
            chosen = target.long()[..., None]
            parts = (n.gather(-1, chosen)[0, :, 0] for n in (number(masked), whole))
            changes = change(*parts)
        after(model, was_training)
        return changes

    return effect_of_masking


def _without_mask(source, position) -> None:
    """For a model that is to leave the position out in another way."""


def _in_its_place(source, position, id) -> torch.Tensor:
    """The source with another id at the position."""
    return torch.where(_positions(source) == position, id, source)


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    returns=(Returned("changes", "tensor", "float", ("num_words",)), *LOOKED_AT),
    probes=lambda rng: [*_plain(rng), *_edges(rng), *_modes(rng)],
    oracle=asked(oracle.effect_of_masking, "start"),
    builds_on=("shift_right",),
    mistakes=(
        mistake("sign", _effect(change=lambda masked, whole: whole - masked)).says(
            "Your changes have the wrong sign: they are positive where a word becomes less likely.",
            "Which of the two comes after the masking, and which do you subtract?",
        ),
        mistake("probabilities", _effect(number=lambda logits: torch.softmax(logits, -1))).says(
            "You compare probabilities instead of their logarithms.",
            "Which of the two tells 0.001 from 0.01 as clearly as 0.1 from 1?",
        ),
        mistake(
            "only_this_position",
            _effect(mask=lambda source, at: (_positions(source) == at)[None]),
        ).says(
            "Your mask allows that one position and hides all others.",
            "What does True mean in this course's masks?",
        ),
        mistake("nothing_masked", _effect(mask=_without_mask)).says(
            "In both of your calls the model sees every position, so all changes are 0.",
            "Do you pass the mask to `model` in one of the calls?",
        ),
        mistake(
            "pad_in_its_place",
            _effect(
                mask=_without_mask,
                source_masked=lambda source, at, model: _in_its_place(source, at, model.pad),
            ),
        ).says(
            "You write the pad into the source instead of masking: within the length, the model "
            "attends to a pad like any other id, and its source may not even know that id.",
            "How do you tell `model` not to attend to a position?",
        ),
        mistake(
            "cut_off_there",
            _effect(
                mask=_without_mask,
                lens_masked=lambda lens, at: lens.clamp(max=at),
            ),
        ).says(
            "You cut the source off at the position, which also hides everything after it.",
            "Which positions may the model still attend to?",
        ),
        mistake("target_read", _effect(read=lambda target, model: target)).says(
            "Your decoder reads the target as it is: it reads each word while it has to predict "
            "that word, and never reads the start.",
            "Which exercise turned the targets into the decoder's inputs?",
        ),
        mistake("graph_kept", _effect(graph=True)).says(
            "The numbers are correct, but the model ran with gradients on, so autograd built a "
            "graph of each call.",
            "What does `torch.no_grad()` do?",
        ),
        mistake(
            "train_mode_kept",
            _effect(before=lambda model: None, after=lambda model, was: None),
        ).says(
            "A model that comes in train mode stays in it, so dropout is part of your numbers.",
            "Which method turns dropout off?",
        ),
        mistake("left_in_eval_mode", _effect(after=lambda model, was: None)).says(
            "The numbers are right, but you leave a model that came in train mode in eval mode.",
            "Which attribute says which mode a module is in?",
        ),
    ),
    properties=(
        *AS_BEFORE,
        Property(
            "effect_of_a_pad",
            _effect_beyond,
            "What differs between your two calls besides the mask?",
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
