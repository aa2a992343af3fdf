"""Models that generate text, their expected texts, and the expected frequency of each token."""

import functools
import math
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.observe.probe import Built, Probe
from course_lib.reference import Expected
from course_lib.reference import language_model as oracle

Call = tuple[Built, np.ndarray, int]  # a model, a prompt and a number of tokens
ROWS = 3000  # texts from which frequencies are computed
CLEAR = 0.05  # least gap between the two largest logits of a likeliest text


def model_of(tables, training=False) -> Built:
    options = {"tables": tables, "training": training}
    says = f"random tables, with context_length = {len(tables)}" + ", in train mode" * training
    return Built("table_model", options, says)


def next_logits(tables) -> Any:
    """Return `next_logits(context)`, in which each token adds the row of its distance."""

    @functools.cache
    def sums(context: tuple[int, ...]) -> np.ndarray:
        return np.sum([tables[k][token] for k, token in enumerate(reversed(context))], axis=0)

    return lambda context: sums(tuple(context))


def likeliest(model, prompt, num_tokens, temperature=1.0, top_k=None, generator=None) -> Expected:
    """Return the expected text if there is only one, and otherwise the expected shape."""
    tables = model.options["tables"]
    rows, places = np.unique(prompt, axis=0, return_inverse=True)  # many prompts are equal
    texts = oracle.generate(next_logits(tables), len(tables), rows, num_tokens, temperature, top_k)
    return Expected(texts.outputs[places.ravel()])


def text_problem(rng, batch, n, num_tokens, context, vocabulary=7, training=False) -> Call:
    """Make a model and prompts whose likeliest texts are unambiguous."""
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
            return model_of(tables, training), prompt, num_tokens


def frequency_problem(rng, num_tokens) -> Call:
    """Repeat one prompt of one token, with probabilities of about 45, 27, 15, 9 and 4%."""
    chances = np.log([0.45, 0.27, 0.15, 0.09, 0.04])
    near = 3 + np.stack([rng.permutation(chances) for _ in chances])  # 3 changes no probability
    tables = np.stack([near, rng.uniform(-0.3, 0.3, near.shape)])
    prompt = np.full((ROWS, 1), rng.integers(len(chances)))
    return model_of(tables), prompt, num_tokens


# For each frequency. A probe has at most 40 of them, and the exercise six such probes, so a correct
# answer is rejected with a probability below 1e-6.
FALSE_ALARM = 1e-9  # the tolerance for 3000 texts is 0.06, and each mistake has an error of 0.09


def _off_by(count: int) -> float:
    """Bound the error of a frequency in `count` draws, exceeded with P < `FALSE_ALARM`."""
    return math.sqrt(math.log(2 / FALSE_ALARM) / (2 * count))


class Drawn:
    """The tokens that were drawn, in groups of equal contexts."""

    def __init__(self, probe: Probe, texts: np.ndarray):
        given = probe.inputs()
        tables = given["model"].options["tables"]
        self.asked = {key: given[key] for key in ("temperature", "top_k") if key in given}
        self.vocabulary, self.groups, self.contexts = tables.shape[1], [], []
        self.begin, logits = given["prompt"].data.shape[1], next_logits(tables)
        self.first = texts[:, self.begin]
        for end in range(self.begin, texts.shape[1]):
            contexts = texts[:, max(0, end - len(tables)) : end]
            for context in np.unique(contexts, axis=0):
                drawn = texts[(contexts == context).all(axis=1), end]
                shares = np.bincount(drawn, minlength=self.vocabulary) / len(drawn)
                self.groups.append((logits(context.tolist()), shares, len(drawn)))
                self.contexts.append(context.tolist())

    def fits(self, **changed: Any) -> bool:
        """Return whether all frequencies are near those with this temperature and `top_k`."""
        options = self.asked | changed
        return all(
            np.abs(shares - oracle.next_probabilities(logits, **options)).max() <= _off_by(count)
            for logits, shares, count in self.groups
        )

    def farthest(self) -> str:
        """Describe the frequency with the largest error relative to its tolerance."""
        found = []
        for context, (logits, shares, count) in zip(self.contexts, self.groups, strict=True):
            chances = oracle.next_probabilities(logits, **self.asked)
            gaps = np.abs(shares - chances) / _off_by(count)
            found.append((gaps.max(), context, int(gaps.argmax()), shares, chances))
        _, context, token, shares, chances = max(found, key=lambda one: one[0])
        return (
            f"After the tokens {context}, your next token is {token} in {shares[token]:.0%} of the "
            f"texts instead of {chances[token]:.0%}."
        )

    def outside(self) -> bool:
        """Return whether a token was drawn that `top_k` rules out."""
        return any(
            shares[oracle.next_probabilities(logits, **self.asked) == 0].any()
            for logits, shares, _ in self.groups
        )

    def left_out(self) -> str:
        """Describe a token that is never drawn although this is nearly impossible, or return ""."""
        for context, (logits, shares, count) in zip(self.contexts, self.groups, strict=True):
            chances = oracle.next_probabilities(logits, **self.asked)
            never = (shares == 0) & ((1 - chances) ** count < FALSE_ALARM)
            if never.any():
                token = int(never.argmax())
                return (
                    f"After the tokens {context}, the token {token} has a probability of "
                    f"{chances[token]:.0%}, but you never draw it."
                )
        return ""

    def is_together(self) -> bool:
        """Return whether neighboring rows agree more or less often than by chance."""
        pairs = len(self.first) // 2
        agree = (self.first[: 2 * pairs : 2] == self.first[1 : 2 * pairs : 2]).mean()
        chances = oracle.next_probabilities(self.groups[0][0], **self.asked)
        return abs(agree - float((chances**2).sum())) > _off_by(pairs)


def _told(drawn: Drawn) -> Problem | None:
    """Return the problem with the way in which the tokens were drawn, if any."""
    if (drawn.first == drawn.first[0]).all():
        return Cause(
            "all_texts_equal",
            f"All {len(drawn.first)} texts with the same prompt continue with the same token.",
            "Does your code draw at all, and does each text of a batch get a draw of its own?",
        )
    if not drawn.outside() and (left_out := drawn.left_out()):
        return Cause(
            "tokens_left_out", left_out, "Which tokens does your code rule out, and for which text?"
        )
    if drawn.fits() and not drawn.outside():
        if not drawn.is_together():
            return None
        return Cause(
            "rows_drawn_together",
            "Neighboring texts of a batch continue in the same way too often, or too rarely, for "
            "independent draws.",
            "Does each text of a batch get a draw of its own?",
        )
    if drawn.outside():
        return Cause(
            "top_k_ignored",
            "You also draw tokens that are not among the `top_k` likeliest ones.",
            "Which tokens can your code draw? For which logit is a token's probability 0?",
        )
    temperature = drawn.asked.get("temperature", 1.0)
    if temperature != 1 and drawn.fits(temperature=1.0):
        asked = " and ".join(f"{name}={value}" for name, value in drawn.asked.items())
        return Cause(
            "temperature_ignored",
            f"With {asked}, your tokens are as frequent as they should be at temperature 1.",
            "Do you use the temperature before the softmax, even with these options?",
        )
    for other in temperature * 1.1 ** np.arange(-24, 25):
        if drawn.fits(temperature=other):
            return Cause(
                "another_temperature",
                f"At temperature {temperature}, your tokens are about as frequent as they should "
                f"be at temperature {other:.2g}.",
                "What do you do with the temperature before the softmax?",
            )
    return Problem(
        "wrong_frequencies",
        drawn.farthest(),
        "Which probabilities do you draw from, and does each step of each text get its own draw?",
    )


def frequencies(probe, expected, recorded) -> Problem | None:
    """Check that the tokens are as frequent as they should be and independent of each other."""
    texts = recorded.numbers.astype(int)
    if len(texts) < ROWS:  # a shrunken input is too small for frequencies
        return None
    prompt = probe.inputs()["prompt"].data
    vocabulary = probe.inputs()["model"].options["tables"].shape[1]
    if not np.array_equal(texts[:, : prompt.shape[1]], prompt):
        return Problem("prompt_changed", "Not all of your texts begin with their prompts.")
    if texts.min() < 0 or texts.max() >= vocabulary:
        return Problem(
            "outside_the_vocabulary",
            f"Your texts hold tokens outside 0..{vocabulary - 1}.",
            "Which tokens do the smallest and the largest random number give?",
        )
    return _told(Drawn(probe, texts))
