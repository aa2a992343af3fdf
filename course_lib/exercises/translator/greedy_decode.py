"""`greedy_decode`: choose the most likely word at each step."""

import functools
from typing import Any

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Built, Probe
from course_lib.exercises import kit
from course_lib.exercises.kit import Problems, like, mistake
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

_NAMES = ("model", "source", "valid_lens", "start", "end", "max_len")


def call(model, source, valid_lens, max_len, **fields: Any) -> Probe:
    start, end = model.options["start"], model.options["end"]
    args = model, source, valid_lens, start, end, max_len
    return kit.call(*args, names=_NAMES, **WITH_MODEL, **fields)


def problems(rng) -> Problems:
    ids = {"size": 10, "start": 0, "end": 6, "pad": 8}
    says = "adds the item's length to the id of the last word; its pad is 8"
    adding = Built("adding_translator", ids, says)
    lengths = [[1, 4, 2], [2, 4, 1], [1, 2, 4]][rng.integers(3)]  # the longest is never first
    yield (
        "Each word must be the most likely one after `start` and all words before it. After its "
        "`end`, an item must get pads."
    )
    yield call(adding, [[1, 1, 0], [1, 1, 1]], [2, 3], 5)
    yield "Each item must end at its own `end` and have pads after it, while the others go on."
    yield call(scripted(rng), sources(rng, 3, 5), lengths, 7)
    yield "An item without `end` must be cut after `max_len` words, even if others have ended."
    yield call(scripted(rng), sources(rng, 3, 5), [5, 1, 2], 4)
    edge = functools.partial(call, part="edges")
    int32 = sources(rng, 2, 4, dtype="int32")
    pads = scripted(rng, says_pads=True)
    yield "With `max_len=0` there are no words: the shape must be (B, 0)."
    yield edge(scripted(rng), sources(rng, 2, 3), [3, 1], 0)
    yield "Only `end` may end a translation: if the model predicts the pad's id, that is a word."
    yield edge(pads, sources(rng, 2, 5), [5, 2], 4)
    yield "The source may be int32."
    yield edge(scripted(rng), int32, [2, 4], 7)
    for options, says in MODES:
        yield says
        yield edge(scripted(rng, **options), sources(rng, 2, 4), [2, 3], 7)


def decoded(
    model,
    source,
    valid_lens,
    start,
    end,
    max_len,
    *,
    goes_on=False,
    until=torch.all,
    read=slice(None),
    choose=lambda logits: logits[:, -1].argmax(-1),
    ends=(),
    fill=None,
    first=1,
) -> Tensor:
    """Return the correct words, with steps that a mistake changes.

    `choose` gets the logits and returns words, an item ends at each of `ends`, after which `fill`
    is written, and `first` is the first column of the result.
    """
    ends = torch.tensor(ends or [end], device=source.device)
    fill = model.pad if fill is None else fill
    words = torch.full((len(source), 1), start, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with running(model):
        while words.shape[1] <= max_len and not until(ended):
            following = choose(model(source, valid_lens, words[:, read]))
            if not goes_on:
                following = following.masked_fill(ended, fill)
            ended = ended | torch.isin(following, ends)
            words = torch.cat([words, following[:, None]], dim=1)
    return words[:, first:]


@mistake
def goes_on_after_end(*given) -> Tensor:
    """Your result does not hold each item's words, then its `end`, then pads: `end` is missing, or
    other ids follow it, such as words that the model predicts or 0.

    What belongs after the last word, and what after `end`?
    """
    return decoded(*given, goes_on=True)


@like(goes_on_after_end)
def filled_with_end(model, source, valid_lens, start, end, max_len) -> Tensor:
    return decoded(model, source, valid_lens, start, end, max_len, fill=end)


@like(goes_on_after_end)
def filled_with_0(*given) -> Tensor:
    return decoded(*given, fill=0)


@like(goes_on_after_end)
def never_ends(*given) -> Tensor:
    return decoded(*given, ends=[-1])


@like(goes_on_after_end)
def end_left_out(model, source, valid_lens, start, end, max_len) -> Tensor:
    words = decoded(model, source, valid_lens, start, end, max_len)
    return words.masked_fill(words == end, model.pad)


@mistake
def stops_at_first_end(*given) -> Tensor:
    """All your translations stop as soon as one of them has ended.

    When may the loop stop?
    """
    return decoded(*given, until=torch.any)


@like(stops_at_first_end)
def stops_with_the_first_item(*given) -> Tensor:
    return decoded(*given, until=lambda ended: len(ended) and ended[0])


@mistake
def pad_ends_too(model, source, valid_lens, start, end, max_len) -> Tensor:
    """A predicted pad ends your translation, but only `end` may end it.

    If the model predicts the id of the pad, what is that?
    """
    return decoded(model, source, valid_lens, start, end, max_len, ends=[end, model.pad])


@mistake
def start_returned(*given) -> Tensor:
    """Your result begins with `start`, which is not a word of the translation.

    Which column did you put there yourself?
    """
    return decoded(*given, first=0)


@mistake
def last_word_only(*given) -> Tensor:
    """You do not choose the most likely word after all words so far: the model reads only the last
    word, or you use other logits than the largest at the last position.

    What must the model read, and which of its logits decide about the next word?
    """
    return decoded(*given, read=slice(-1, None))


for choose in (
    lambda logits: logits[:, 0].argmax(-1),
    lambda logits: logits[:, -1].argmin(-1),
    lambda logits: logits.argmax(1)[:, -1],
    lambda logits: logits[:, -1, 1:].argmax(-1) + 1,
):
    like(last_word_only)(functools.partial(decoded, choose=choose))


@mistake
def another_number_of_words(model, source, valid_lens, start, end, max_len) -> Tensor:
    """Your result has the wrong number of columns: it must be as wide as the longest translation,
    which has at most `max_len` words.

    How many columns does your result have, and how many words are in the longest translation?
    """
    return decoded(model, source, valid_lens, start, end, max_len - 1)


@like(another_number_of_words)
def one_word_more(model, source, valid_lens, start, end, max_len) -> Tensor:
    return decoded(model, source, valid_lens, start, end, max_len + 1)


@like(another_number_of_words)
def always_max_len(*given) -> Tensor:
    return decoded(*given, until=lambda ended: False)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("words", "tensor", "int", ("batch", "num_words")), *LOOKED_AT),
    probes=problems,
    oracle=asked(oracle.greedy_decode, "pad"),
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
    marking=Marking(comparisons=AS_RUN, exact=tuple(AS_RUN)),
)
