"""Oracle of lesson 09: batches item by item, losses word by word, translations step by step.

A model here is a function of NumPy arrays, `model(source, length, words) -> logits of the next
word` for one item, with `allowed` to leave source positions out.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.bug_hunt import causal_self_attention
from course_lib.reference.multi_head import linear, multi_head_attention

Numbers = dict[str, np.ndarray]
Construct = dict[str, int]


def pad_batch(sequences: list[np.ndarray], pad: int) -> Expected:
    """Pad each sequence to the length of the longest."""
    rows = [[int(token) for token in sequence] for sequence in sequences]
    longest = max(len(row) for row in rows)
    tokens = [row + [pad] * (longest - len(row)) for row in rows]
    shaped = np.array(tokens, dtype=np.int64).reshape(len(rows), longest)
    return Expected((shaped, np.array([len(row) for row in rows])))


def shift_right(targets: np.ndarray, start: int) -> Expected:
    """Move each word one position later, and put the start at the first position."""
    inputs = np.empty(targets.shape, dtype=np.int64)
    for item, position in np.ndindex(targets.shape):
        inputs[item, position] = targets[item, position - 1] if position else start
    return Expected(inputs)


def log_probability(logits: np.ndarray, word: int) -> float:
    """Return log softmax(logits)[word] of plain numbers."""
    largest = float(np.max(logits))
    total = math.fsum(math.exp(float(logit) - largest) for logit in logits)
    return float(logits[word]) - largest - math.log(total)


def masked_cross_entropy(
    logits: np.ndarray, targets: np.ndarray, valid_lens: np.ndarray
) -> Expected:
    """Return minus the mean log-probability of the words, without padding; 0 without words."""
    assert targets.max(initial=0) < logits.shape[-1]
    found = [
        log_probability(logits[item, position], targets[item, position])
        for item, length in enumerate(valid_lens)
        for position in range(length)
    ]
    return Expected(np.array(-math.fsum(found) / len(found) if found else 0.0))


def greedy_decode(
    model: Callable,
    pad: int,
    source: np.ndarray,
    valid_lens: np.ndarray,
    start: int,
    end: int,
    max_len: int,
) -> Expected:
    """Decode each item by taking the largest logit until the end token is chosen."""
    assert start != end
    translations = []
    for item, length in zip(source, valid_lens, strict=True):
        words = [start]
        while len(words) <= max_len and words[-1] != end:
            words.append(int(np.argmax(model(item, int(length), words))))
        translations.append(np.array(words[1:], dtype=np.int64))
    return Expected(pad_batch(translations, pad).outputs[0])


def effect_of_masking(
    model: Callable,
    start: int,
    source: np.ndarray,
    valid_lens: np.ndarray,
    target: np.ndarray,
    position: int,
) -> Expected:
    """Return each word's log-probability without the position, minus that with it."""
    item, length = source[0], int(valid_lens[0])
    if not 0 <= position < len(item):
        raise ValueError("`position` must be one of the source")
    others = {j for j in range(len(item)) if j != position}
    words = [start, *(int(word) for word in target[0])]
    changes = np.empty(len(words) - 1)
    for step in range(len(changes)):
        before, word = words[: step + 1], words[step + 1]
        masked = log_probability(model(item, length, before, allowed=others), word)
        changes[step] = masked - log_probability(model(item, length, before), word)
    return Expected(changes)


def translator(name: str, options: dict) -> Callable:
    """Return the scripted models of the checks, for one item and its next word."""
    return functools.partial(_KINDS[name], **options)


def _adding(source, length, words, allowed=None, *, size: int, **ids) -> np.ndarray:
    return np.eye(size)[(words[-1] + length) % size]


def _voting(source, length, words, allowed=None, *, size: int, **ids) -> np.ndarray:
    votes = np.ones(size)
    for j in range(length):
        if allowed is None or j in allowed:
            votes[source[j]] += 1
    return np.log(votes)


def _scripted(
    source, length, words, allowed=None, *, queries, keys, values, previous, near, stop, end, **ids
) -> np.ndarray:
    """Attend to the source, with a decaying memory of words and a fixed end."""
    step, logits = len(words) - 1, np.zeros(previous.shape[1])
    seen = [j for j in range(length) if allowed is None or j in allowed]
    if seen:
        query = queries[words[-1]]
        scores = [float(query @ keys[source[j]]) + near * (j == step) for j in seen]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        for j, exponential in zip(seen, exponentials, strict=True):
            logits += exponential / math.fsum(exponentials) * values[source[j]]
    for age, word in enumerate(reversed(words)):
        logits += 0.7**age * previous[word]
    logits[end] += stop if step == length else -stop
    return logits


_KINDS: dict[str, Callable] = {
    "adding_translator": _adding,
    "voting_translator": _voting,
    "scripted_translator": _scripted,
}


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps=1e-5) -> np.ndarray:
    """Subtract the mean of each position's features, divide by their deviation, then rescale."""
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    return centered / np.sqrt(variance + eps) * weight + bias


def encoder_block(
    construct: Construct,
    state: Numbers,
    x: np.ndarray,
    valid_lens: np.ndarray | None = None,
    eps=1e-5,
) -> Expected:
    """Attend among the positions, then apply the network, each added to its input."""
    first = layer_norm(x, **part(state, "norm_1"), eps=eps)
    weights = part(state, "attention")
    x = x + multi_head_attention(construct, weights, first, first, first, valid_lens).outputs
    second = layer_norm(x, **part(state, "norm_2"), eps=eps)
    return Expected(x + _feed_forward(part(state, "feed_forward"), second))


def decoder_block(
    construct: Construct,
    state: Numbers,
    y: np.ndarray,
    memory: np.ndarray,
    valid_lens: np.ndarray | None = None,
    eps=1e-5,
) -> Expected:
    """Attend to the past, then to the memory, then apply the network, each added to its input."""
    first = layer_norm(y, **part(state, "norm_1"), eps=eps)
    y = y + causal_self_attention(construct, part(state, "self_attention"), first).outputs
    second = layer_norm(y, **part(state, "norm_2"), eps=eps)
    weights = part(state, "cross_attention")
    y = y + multi_head_attention(construct, weights, second, memory, memory, valid_lens).outputs
    third = layer_norm(y, **part(state, "norm_3"), eps=eps)
    return Expected(y + _feed_forward(part(state, "feed_forward"), third))


def part(state: Numbers, name: str) -> Numbers:
    """Return the weights of one layer, by their names within it."""
    own = {key: value for key, value in state.items() if key.startswith(f"{name}.")}
    return {key.removeprefix(f"{name}."): value for key, value in own.items()}


def _feed_forward(state: Numbers, x: np.ndarray) -> np.ndarray:
    hidden = linear(x, state["0.weight"], state["0.bias"])
    return linear(np.where(hidden > 0, hidden, 0.0), state["2.weight"], state["2.bias"])
