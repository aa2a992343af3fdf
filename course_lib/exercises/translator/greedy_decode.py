"""`greedy_decode`: the most likely word, again and again."""

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
    asked,
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
    adding = Built("adding_translator", {"size": 10, "start": 0, "end": 6, "pad": 9})
    counts = tensor([[1, 1, 0], [1, 1, 1]])
    lengths = [[1, 4, 2], [2, 4, 1], [1, 2, 4]][rng.integers(3)]  # the longest is never first
    return [
        _given("worked_number", adding, counts, [2, 3], 5).says(
            "The model adds the item's length to the last word: 2, 4, 6 and 3, 6. The second item "
            "ends first and is filled up with pads."
        ),
        _one_translation(rng),
        _given("several", scripted(rng), sources(rng, 3, 5), lengths, 7).says(
            "Each item ends at its own `end` and has pads after it, while the others go on."
        ),
        _given("one_without_an_end", scripted(rng), sources(rng, 3, 5), [5, 1, 2], 4).says(
            "An item that has not ended after `max_len` words is cut there, even if others have "
            "ended."
        ),
    ]


def _one_translation(rng) -> Probe:
    """Drawn until each word depends on all words before it, in their order."""
    source = sources(rng, 1, 6)

    def words_of(model, read) -> list[list[int]]:
        made, ids = oracle.translator(model.name, model.options), model.options

        def reading(item, length, words) -> np.ndarray:
            return made(item, length, [words[0], *read(words[1:])])

        lens = np.array([5])
        given = source, lens, ids["start"], ids["end"], 8
        return oracle.greedy_decode(reading, ids["pad"], *given).outputs.tolist()

    while True:
        model = scripted(rng)
        right = words_of(model, list)
        if all(words_of(model, read) != right for read in _READ_OTHERWISE):
            says = "Each word is the most likely one after `start` and all words before it."
            return _given("one_translation", model, source, [5], 8).says(says)


_READ_OTHERWISE = (
    lambda words: words[::-1],
    lambda words: words[-1:],
    lambda words: words[-2:],
    lambda words: words[:1],
)


def _edges(rng) -> list[Probe]:
    edge = functools.partial(_given, part="edges")
    int32 = sources(rng, 2, 4, dtype="int32")
    pads = scripted(rng, says_pads=True)
    return [
        edge("empty_source", scripted(rng), sources(rng, 3, 4), [2, 0, 3], 6).says(
            "A source of length 0 is translated like any other; here it ends at once."
        ),
        edge("no_words", scripted(rng), sources(rng, 2, 3), [3, 1], 0).says(
            "With `max_len=0` there are no words: the shape is (B, 0)."
        ),
        edge("pad_is_said", pads, sources(rng, 2, 5), [4, 2], 8).says(
            "Only `end` ends a translation: if the model says the pad's id, that is a word."
        ),
        edge("int32", scripted(rng), int32, [2, 4], 7).says("The source may be int32."),
        edge("another_device", scripted(rng), sources(rng, 2, 3), [1, 3], 5, **ELSEWHERE).says(
            ON_A_GPU
        ),
    ]


def _modes(rng) -> list[Probe]:
    return [
        _given(name, scripted(rng, **options), sources(rng, 2, 4), [2, 3], 7, "edges").says(says)
        for name, (options, says) in MODES.items()
    ]


def _first_wrong_word(probe, outputs) -> str | None:
    """Where the words of an item go on after its end."""
    words = outputs.items[0].data if 0 in outputs.items else None
    end, pad = probe.args["end"], probe.args["model"].options["pad"]
    if words is None or words.ndim != 2:
        return None
    for item, row in enumerate(words.tolist()):
        if end in row and any(word != pad for word in row[row.index(end) + 1 :]):
            behind = row[row.index(end) + 1 :]
            return f"Item {item} ends with {end}, and after it you have {behind} instead of pads."
    return None


@in_steps(
    before=lambda model: model.eval(),
    after=lambda model, was_training: model.train(was_training),
    graph=False,
    read=lambda inputs, source: inputs,
    choose=lambda logits: logits[:, -1].argmax(-1),
    fill=lambda words, ended, pad: words.masked_fill(ended, pad),
    is_over=lambda ended: ended.all(),
    most=lambda max_len: max_len,
    finish=lambda words, end, pad: words[:, 1:],
)
def _decoder(before, after, graph, read, choose, fill, is_over, most, finish) -> Callable:
    """A wrong decoder: a right one with another step."""

    def greedy_decode(model, source, valid_lens, start, end, max_len) -> torch.Tensor:
        was_training = model.training
        before(model)
        words = torch.full((len(source), 1), start, device=source.device)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        with torch.set_grad_enabled(graph):
            while words.shape[1] <= most(max_len) and not is_over(ended):
                following = choose(model(source, valid_lens, read(words, source)))
                following = fill(following, ended, model.pad)
                ended = ended | (following == end)
                words = torch.cat([words, following[:, None]], dim=1)
        after(model, was_training)
        return finish(words, end, model.pad)

    return greedy_decode


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("words", "tensor", "int", ("batch", "num_words")), *LOOKED_AT),
    probes=lambda rng: [*_plain(rng), *_edges(rng), *_modes(rng)],
    oracle=asked(oracle.greedy_decode, "pad"),
    mistakes=(
        mistake("goes_on_after_end", _decoder(fill=lambda words, ended, pad: words)).says(
            "An item goes on after its end: your result contains words that the model predicts "
            "after `end`.",
            "What belongs after `end`?",
        ),
        mistake("stops_at_first_end", _decoder(is_over=lambda ended: ended.any())).says(
            "All translations stop as soon as one of them has ended.",
            "Which item may end the loop?",
        ),
        mistake("start_returned", _decoder(finish=lambda words, end, pad: words)).says(
            "Your result begins with `start`, which is not a word of the translation.",
            "Which column did you put there yourself?",
        ),
        mistake(
            "end_left_out",
            _decoder(
                finish=lambda words, end, pad: words[:, 1:].masked_fill(words[:, 1:] == end, pad)
            ),
        ).says(
            "You remove `end` from the result. It is the last word of a finished translation.",
            "How can a reader tell a finished translation from one cut at `max_len`?",
        ),
        mistake("one_word_short", _decoder(most=lambda max_len: max_len - 1)).says(
            "Your translations have at most `max_len - 1` words.",
            "Does `start` count as a word?",
        ),
        mistake("last_word_only", _decoder(read=lambda inputs, source: inputs[:, -1:])).says(
            "You pass only the last word to the model. The model has no memory, so it predicts "
            "without the earlier words.",
            "What must `inputs` hold when the third word is chosen?",
        ),
        mistake(
            "first_position_read", _decoder(choose=lambda logits: logits[:, 0].argmax(-1))
        ).says(
            "You use the logits of the first position, so every step predicts the word after "
            "`start`.",
            "At which position does the model predict the word that follows the last one?",
        ),
        mistake("zero_for_pad", _decoder(fill=lambda words, ended, pad: words * ~ended)).says(
            "After `end` you have zeros; this model's pad has another id.",
            "Where does the model keep the id of its pad?",
        ),
        mistake("graph_kept", _decoder(graph=True)).says(
            "The words are right, but each call of the model builds a graph for gradients that "
            "nobody needs.",
            "What does `torch.no_grad()` do?",
        ),
        mistake(
            "train_mode_kept",
            _decoder(before=lambda model: None, after=lambda model, was: None),
        ).says(
            "A model that comes in train mode stays in it, so dropout changes your words.",
            "Which method turns dropout off?",
        ),
        mistake("left_in_eval_mode", _decoder(after=lambda model, was: None)).says(
            "The words are right, but you leave a model that came in train mode in eval mode: "
            "training goes on without dropout.",
            "Which attribute says which mode a module is in?",
        ),
    ),
    properties=(
        *AS_BEFORE,
        Property("words_after_the_end", _first_wrong_word, "Which items have ended by now?"),
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
