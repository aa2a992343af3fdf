"""Models that write, what they are asked for, and the texts that are expected."""

import functools
from typing import Any

import numpy as np

from course_lib.checks.observe.probe import Built
from course_lib.exercises._rows import Given
from course_lib.reference import Expected
from course_lib.reference import language_model as oracle

ROWS = 3000  # of which frequencies are taken
CLEAR = 0.05  # between the two largest logits where a text has to be the likeliest


def model_of(tables, training=False) -> Built:
    return Built("table_model", {"tables": tables, "training": training})


def next_logits(tables) -> Any:
    """`next_logits(context)`: each token adds the row of its distance."""

    @functools.cache
    def sums(context: tuple[int, ...]) -> np.ndarray:
        return np.sum([tables[k][token] for k, token in enumerate(reversed(context))], axis=0)

    return lambda context: sums(tuple(context))


def likeliest(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None) -> Expected:
    """The text that is expected where one is; elsewhere its shape is."""
    tables = model.options["tables"]
    rows, places = np.unique(prompt, axis=0, return_inverse=True)  # many texts begin alike
    texts = oracle.generate(next_logits(tables), len(tables), rows, num_tokens, temperature, top_k)
    return Expected(texts.outputs[places.ravel()])


def text_problem(rng, batch, n, num_tokens, context, vocabulary=7, training=False) -> Given:
    """A model and prompts whose likeliest texts leave no doubt about any token."""
    while True:
        tables = rng.normal(0, 1.5, (context, vocabulary, vocabulary))
        prompt = rng.integers(0, vocabulary, (batch, n))
        texts = likeliest(model_of(tables), prompt, num_tokens, 0.0).outputs
        logits = next_logits(tables)
        pairs = [
            np.sort(logits(text[max(0, end - context) : end].tolist()))[-2:]
            for text in texts
            for end in range(n, n + num_tokens)
        ]
        if all(second < first - CLEAR for second, first in pairs):
            made = model_of(tables, training)
            return {"model": made, "prompt": prompt, "num_tokens": num_tokens}


def frequency_problem(rng, num_tokens) -> Given:
    """One prompt of one token many times, and chances of 45, 27, 15, 9 and 4 %, more or less."""
    chances = np.log([0.45, 0.27, 0.15, 0.09, 0.04])
    near = 3 + np.stack([rng.permutation(chances) for _ in chances])  # 3 changes no chance
    tables = np.stack([near, rng.uniform(-0.3, 0.3, near.shape)])
    prompt = np.full((ROWS, 1), rng.integers(len(chances)))
    return {"model": model_of(tables), "prompt": prompt, "num_tokens": num_tokens}
