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


def decoded(model, source, valid_lens, start, most, ends, *, goes_on=False, until=torch.all,
            read=slice(None), choose=None, fill=None) -> Tensor:  # fmt: skip
    """Return `start` and at most `most` words; `ends(words)` tells which words end an item.

    `choose` gets the logits and returns words, and `fill` is written after the end of an item.
    """
    choose = choose or (lambda logits: logits[:, -1].argmax(-1))
    fill = model.pad if fill is None else fill
    words = torch.full((len(source), 1), start, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    with running(model):
        while words.shape[1] <= most and not until(ended):
            following = choose(model(source, valid_lens, words[:, read]))
            if not goes_on:
                following = following.masked_fill(ended, fill)
            ended = ended | ends(following)
            words = torch.cat([words, following[:, None]], dim=1)
    return words


@mistake
def goes_on_after_end(model, source, valid_lens, start, end, max_len) -> Tensor:
    """Your result does not hold each item's words, then its `end`, then pads: `end` is missing, or
    other ids follow it, such as words that the model predicts or 0.

    What belongs after the last word, and what after `end`?
    """
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words == end, goes_on=True)[:, 1:]


@like(goes_on_after_end)
def filled_with_end(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words == end, fill=end)[:, 1:]


@like(goes_on_after_end)
def filled_with_0(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words == end, fill=0)[:, 1:]


@like(goes_on_after_end)
def never_ends(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words < 0)[:, 1:]


@like(goes_on_after_end)
def end_left_out(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len
    words = decoded(*given, lambda words: words == end)[:, 1:]
    return words.masked_fill(words == end, model.pad)


@mistake
def stops_at_first_end(model, source, valid_lens, start, end, max_len) -> Tensor:
    """All your translations stop as soon as one of them has ended.

    When may the loop stop?
    """
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words == end, until=torch.any)[:, 1:]


@like(stops_at_first_end)
def stops_with_the_first_item(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len
    until = lambda ended: len(ended) and ended[0]  # noqa: E731
    return decoded(*given, lambda words: words == end, until=until)[:, 1:]


@mistake
def pad_ends_too(model, source, valid_lens, start, end, max_len) -> Tensor:
    """A predicted pad ends your translation, but only `end` may end it.

    Which single token ends a translation?
    """
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: (words == end) | (words == model.pad))[:, 1:]


@mistake
def start_returned(model, source, valid_lens, start, end, max_len) -> Tensor:
    """Your result begins with `start`, which is not a word of the translation.

    Which column did you put there yourself?
    """
    return decoded(model, source, valid_lens, start, max_len, lambda words: words == end)


@mistake
def last_word_only(model, source, valid_lens, start, end, max_len) -> Tensor:
    """You do not choose the most likely word after all words so far: the model reads only the last
    word, or you use other logits than the largest at the last position.

    What must the model read, and which of its logits decide about the next word?
    """
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words == end, read=slice(-1, None))[:, 1:]


def _chosen_by(choose) -> Any:
    def answer(model, source, valid_lens, start, end, max_len) -> Tensor:
        given = model, source, valid_lens, start, max_len
        return decoded(*given, lambda words: words == end, choose=choose)[:, 1:]

    return answer


like(last_word_only)(_chosen_by(lambda logits: logits[:, 0].argmax(-1)))
like(last_word_only)(_chosen_by(lambda logits: logits[:, -1].argmin(-1)))
like(last_word_only)(_chosen_by(lambda logits: logits.argmax(1)[:, -1]))
like(last_word_only)(_chosen_by(lambda logits: logits[:, -1, 1:].argmax(-1) + 1))


@mistake
def another_number_of_words(model, source, valid_lens, start, end, max_len) -> Tensor:
    """Your result has the wrong number of columns: it must be as wide as the longest translation,
    which has at most `max_len` words.

    How many columns does your result have, and how many words are in the longest translation?
    """
    given = model, source, valid_lens, start, max_len - 1
    return decoded(*given, lambda words: words == end)[:, 1:]


@like(another_number_of_words)
def one_word_more(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len + 1
    return decoded(*given, lambda words: words == end)[:, 1:]


@like(another_number_of_words)
def always_max_len(model, source, valid_lens, start, end, max_len) -> Tensor:
    given = model, source, valid_lens, start, max_len
    return decoded(*given, lambda words: words == end, until=lambda ended: False)[:, 1:]


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
