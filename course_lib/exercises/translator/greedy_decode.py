"""`greedy_decode`: choose the most likely word at each step."""

import functools
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Built, Probe, tensor
from course_lib.exercises._builders import Case, case, in_steps, mistake
from course_lib.exercises.translator._models import (
    AS_RUN,
    LOOKED_AT,
    MODES,
    WITH_MODEL,
    asked,
    running,
    scripted,
    sources,
)
from course_lib.reference import translator as oracle


def _given(name, model, source, valid_lens, max_len, part="values", **options) -> Case:
    args = {
        "model": model,
        "source": source,
        "valid_lens": tensor(valid_lens),
        **{name: model.options[name] for name in ("start", "end")},
        "max_len": max_len,
    }
    return case(name, part=part, args=args, **{**WITH_MODEL, **options})


def _plain(rng) -> list[Probe]:
    ids = {"size": 10, "start": 0, "end": 6, "pad": 8}
    says = "adds the item's length to the id of the last word; its pad is 8"
    adding = Built("adding_translator", ids, says)
    counts = tensor([[1, 1, 0], [1, 1, 1]])
    lengths = [[1, 4, 2], [2, 4, 1], [1, 2, 4]][rng.integers(3)]  # the longest is never first
    return [
        _given("worked_number", adding, counts, [2, 3], 5).says(
            "Each word must be the most likely one after `start` and all words before it. After "
            "its `end`, an item must get pads."
        ),
        _given("several", scripted(rng), sources(rng, 3, 5), lengths, 7).says(
            "Each item must end at its own `end` and have pads after it, while the others go on."
        ),
        _given("one_without_an_end", scripted(rng), sources(rng, 3, 5), [5, 1, 2], 4).says(
            "An item without `end` must be cut after `max_len` words, even if others have ended."
        ),
    ]


def _edges(rng) -> list[Probe]:
    edge = functools.partial(_given, part="edges")
    int32 = sources(rng, 2, 4, dtype="int32")
    pads = scripted(rng, says_pads=True)
    return [
        edge("no_words", scripted(rng), sources(rng, 2, 3), [3, 1], 0).says(
            "With `max_len=0` there are no words: the shape must be (B, 0)."
        ),
        edge("pad_is_said", pads, sources(rng, 2, 5), [5, 2], 4).says(
            "Only `end` may end a translation: if the model predicts the pad's id, that is a word."
        ),
        edge("int32", scripted(rng), int32, [2, 4], 7).says("The source may be int32."),
        *(
            edge(name, scripted(rng, **options), sources(rng, 2, 4), [2, 3], 7).says(says)
            for name, (options, says) in MODES.items()
        ),
    ]


@in_steps(
    read=lambda inputs: inputs,
    fill=lambda words, ended, pad: words.masked_fill(ended, pad),
    is_over=torch.all,
    most=lambda max_len: max_len,
    first=1,
    ends=lambda words, end, pad: words == end,
)
def _decoder(read, fill, is_over, most, first, ends) -> Callable:
    """Return a wrong decoder, which is a correct one with a changed step."""

    def greedy_decode(model, source, valid_lens, start, end, max_len) -> torch.Tensor:
        words = torch.full((len(source), 1), start, device=source.device)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        with running(model):
            while words.shape[1] <= most(max_len) and not is_over(ended):
                following = model(source, valid_lens, read(words))[:, -1].argmax(-1)
                following = fill(following, ended, model.pad)
                ended = ended | ends(following, end, model.pad)
                words = torch.cat([words, following[:, None]], dim=1)
        return words[:, first:]

    return greedy_decode


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("words", "tensor", "int", ("batch", "num_words")), *LOOKED_AT),
    probes=lambda rng: [*_plain(rng), *_edges(rng)],
    oracle=asked(oracle.greedy_decode, "pad"),
    comparisons=AS_RUN,
    exact=tuple(AS_RUN),
    mistakes=(
        mistake("goes_on_after_end", _decoder(fill=lambda words, ended, pad: words)).says(
            "Your result contains words that the model predicts for an item after its `end`.",
            "What belongs after `end`?",
        ),
        mistake("stops_at_first_end", _decoder(is_over=torch.any)).says(
            "All your translations stop as soon as one of them has ended.",
            "When may the loop stop?",
        ),
        mistake(
            "pad_ends_too", _decoder(ends=lambda words, end, pad: (words == end) | (words == pad))
        ).says(
            "A predicted pad ends your translation, but only `end` may end it.",
            "If the model predicts the id of the pad, what is that?",
        ),
        mistake("start_returned", _decoder(first=0)).says(
            "Your result begins with `start`, which is not a word of the translation.",
            "Which column did you put there yourself?",
        ),
        mistake("last_word_only", _decoder(read=lambda inputs: inputs[:, -1:])).says(
            "You pass only the last word to the model. It remembers nothing, so it predicts "
            "without the earlier words.",
            "What must `inputs` hold when the third word is chosen?",
        ),
        mistake(
            "another_number_of_words",
            _decoder(most=lambda max_len: max_len - 1),
            twins=(
                _decoder(most=lambda max_len: max_len + 1),
                _decoder(is_over=lambda ended: False),
            ),
        ).says(
            "Your result has the wrong number of columns: it must be as wide as the longest "
            "translation, which has at most `max_len` words.",
            "How many columns does your result have, and how many words are in the longest "
            "translation?",
        ),
    ),
    hints=(
        "Go through a batch of two sentences aloud, one longer than the other. What does the "
        "model read at each step, and what do you write for the item that has ended?",
        "Keep two tensors: the words so far, beginning with a column of `start`, and a bool for "
        "each item that says whether it has ended. At each step call the model, take the argmax "
        "at the last position, put pads where an item has ended, note new ends, and append the "
        "column. Stop when all have ended or there are `max_len` words.",
        "First one text, with a model that always answers with the same word: what comes out? "
        "Then one whose second word is `end`. Then both in a batch: what does the text that has "
        "ended get while the other goes on?",
    ),
)
