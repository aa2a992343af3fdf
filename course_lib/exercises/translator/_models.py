"""Scripted translators for both exercises about a model, and the oracle's calls of them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem, close
from course_lib.checks.judge.definitions import Returned
from course_lib.checks.observe.probe import Built
from course_lib.reference import Expected
from course_lib.reference import translator as oracle

WORDS, TOKENS, FEATURES = 9, 6, 4  # sizes of vocabulary, source and query
WITH_MODEL: dict[str, Any] = {"scenario": "with_a_model", "compare": "as_run"}
LOOKED_AT = (Returned("graph built", "bool"), Returned("mode changed", "bool"))

MODES: tuple[
    tuple[dict[str, Any], str], ...
] = (  # how the model is called: options of `scripted`, and what is said
    (
        {"training": True, "looked_at": "mode"},
        "A model passed in train mode must run in eval mode, and be in train mode afterwards.",
    ),
    (
        {"looked_at": "graph and mode"},
        "The model must run without building a graph for gradients. If it is passed in eval "
        "mode, it must be in eval mode afterwards.",
    ),
)
GRAPH_KEPT = (
    "The model ran with gradients enabled, so autograd built a graph in each call.",
    "What does `torch.no_grad()` do?",
)
MODE_CHANGED = (
    "The call does not restore the mode (train or eval) that the model was in.",
    "What was `model.training` before you changed it?",
)


def scripted(rng, *, size=1.0, says_pads=False, **options) -> Built:
    """Make a translator from random tables that ends a translation where its source ends."""
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
    options = {**tables, **ids, "near": 2.0, "stop": 60.0, **options}
    says = "a small translator made of random tables" + ", in train mode" * ("training" in options)
    return Built("scripted_translator", options, says)


def sources(rng, *shape, dtype="int64") -> np.ndarray:
    """Return the ids of a source without equal neighbors."""
    first = rng.integers(0, TOKENS, (shape[0], 1))
    steps = rng.integers(1, TOKENS, (shape[0], shape[1]))
    return ((first + steps.cumsum(1)) % TOKENS).astype(dtype)


def asked(exercise: Callable, id_needed: str) -> Callable:
    """Return the oracle of an exercise for a `Built` model, with no graph and no changed mode."""

    def expected(model, *args) -> Expected:
        made = oracle.translator(model.name, model.options)
        found = exercise(made, model.options[id_needed], *args)
        return Expected((found.outputs, False, False))

    return expected


@contextlib.contextmanager
def running(model) -> Iterator[None]:
    """Run the model in eval mode without gradients, and restore its mode."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(was_training)


def _as_run(probe, expected, recorded) -> Problem | None:
    """Report a graph that was built or a mode that was changed, then compare the result."""
    result, *looked_at = recorded.items.values()
    causes = Cause("graph_kept", *GRAPH_KEPT), Cause("mode_changed", *MODE_CHANGED)
    noted = next((c for c, seen in zip(causes, looked_at, strict=True) if seen.data), None)
    return noted or close(probe, expected[0], result)


AS_RUN = {"as_run": _as_run}
