"""What both exercises about a model share: scripted translators, and how the oracle drives them."""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.exercise import Property, Returned
from course_lib.checks.observe.probe import Built
from course_lib.exercises._rows import Given
from course_lib.reference import Expected
from course_lib.reference import translator as oracle

WORDS, TOKENS, FEATURES = 9, 6, 4  # of the vocabulary, of the source, of a query
WITH_MODEL: Given = {"scenario": "with_a_model"}
ELSEWHERE: Given = {"scenario": "with_a_model_elsewhere"}
ON_A_GPU = (
    "A model and a source on a GPU must work: a tensor made without `device=` is on the CPU, and "
    "the two do not mix."
)
LOOKED_AT = (Returned("a graph was built", "bool"), Returned("another mode than before", "bool"))


def _noted(place: int, sentence: str) -> Callable:
    """Return a check that says the sentence where the noted bool is True."""

    def violated(probe, outputs) -> str | None:
        return sentence if bool(outputs.items[place].numbers.any()) else None

    return violated


AS_BEFORE = (
    Property(
        "graph_built",
        _noted(1, "The model ran with gradients on, so autograd built a graph of every call."),
        "Which context manager turns gradients off for a few lines?",
    ),
    Property(
        "another_mode_afterwards",
        _noted(2, "After the call the model is not in the mode it was in before."),
        "What was `model.training` before you changed it?",
    ),
)

MODES = {  # probes of how the model is called: options of `scripted`, and what is said
    "comes_in_train_mode": (
        {"training": True},
        "The model runs in eval mode, even if it comes in train mode.",
    ),
    "back_in_train_mode": (
        {"training": True, "looked_at": "mode"},
        "A model that came in train mode is in train mode afterwards.",
    ),
    "still_in_eval_mode": (
        {"looked_at": "mode"},
        "A model that came in eval mode is in eval mode afterwards.",
    ),
    "no_graph": (
        {"looked_at": "graph"},
        "The model is called without building a graph for gradients.",
    ),
}


def scripted(rng, *, size=1.0, says_pads=False, **options) -> Built:
    """A translator of random tables, which ends a translation where its source ends.

    Args:
        size: of its numbers.
        says_pads: its most likely word is the pad; else it never says pad or start.
        options: `training`, the mode it comes in, and `looked_at`, "graph" or "mode".
    """
    start, end, pad = (int(word) for word in rng.permutation(np.arange(1, WORDS))[:3])
    tables = {
        "queries": rng.normal(0, 1, (WORDS, FEATURES)),
        "keys": rng.normal(0, 1, (TOKENS, FEATURES)),
        "values": rng.normal(0, 2 * size, (TOKENS, WORDS)),
        "previous": rng.normal(0, 2 * size, (WORDS, WORDS)),
    }
    tables["previous"][:, [start, pad]] -= 20
    if says_pads:
        tables["previous"][:, pad] += 40
    ids = {"start": start, "end": end, "pad": pad}
    return Built("scripted_translator", {**tables, **ids, "near": 2.0, "stop": 60.0, **options})


def sources(rng, *shape, dtype="int64") -> np.ndarray:
    """Ids of a source, of which no two neighbours are alike."""
    first = rng.integers(0, TOKENS, (shape[0], 1))
    steps = rng.integers(1, TOKENS, (shape[0], shape[1]))
    return ((first + steps.cumsum(1)) % TOKENS).astype(dtype)


def asked(exercise: Callable, id_needed: str) -> Callable:
    """The oracle of an exercise, asked with a `Built` model: builds no graph, changes no mode."""

    def expected(model, *args) -> Expected:
        made = oracle.translator(model.name, model.options)
        found = exercise(made, model.options[id_needed], *args)
        return Expected((found.outputs, False, False))

    return expected
