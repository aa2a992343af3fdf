"""Oracle of lesson 10: one position, one token, one head at a time."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from course_lib.reference import Expected
from course_lib.reference.masked_softmax import softmax_of
from course_lib.reference.multi_head import linear
from course_lib.reference.translator import layer_norm, log_probability, part


def next_token_loss(logits: np.ndarray, tokens: np.ndarray) -> Expected:
    """Average minus the log-probability of the next token, over all positions that have one."""
    assert tokens.max(initial=0) < logits.shape[-1]
    losses = [
        -log_probability(scores, int(following))
        for item, text in zip(logits, tokens, strict=True)
        for scores, following in zip(item, text[1:], strict=False)
    ]
    return Expected(np.array(math.fsum(losses) / len(losses)))


def language_model(
    construct: dict[str, Any], state: dict[str, np.ndarray], tokens: np.ndarray
) -> Expected:
    """Add the positions, go through the blocks, and return the logits of the last norm.

    Each attention returns the mean of the positions so far, times its `scale`.
    """
    x = np.array([[state["tokens.weight"][token] for token in text] for text in tokens])
    x = x + construct["positions"][: tokens.shape[1]]
    for number in range(len(construct["attentions"])):
        block = part(state, f"blocks.{number}")
        normed = layer_norm(x, **part(block, "norm_1"))  # pyright: ignore[reportArgumentType] - a part has no `eps`
        for i in range(tokens.shape[1]):
            mean = sum(normed[:, j] for j in range(i + 1)) / (i + 1)
            x[:, i] = x[:, i] + block["attention.scale"] * mean
        if construct.get("hidden_dim"):
            network = part(block, "feed_forward")
            normed = layer_norm(x, **part(block, "norm_2"))  # pyright: ignore[reportArgumentType] - a part has no `eps`
            hidden = linear(normed, network["0.weight"], network["0.bias"])
            for at, z in np.ndenumerate(hidden):  # times the normal distribution function
                hidden[at] = z * (1 + math.erf(z / math.sqrt(2))) / 2
            x = x + linear(hidden, network["2.weight"], network["2.bias"])
    last = layer_norm(x, **part(state, "norm"))  # pyright: ignore[reportArgumentType] - a part has no `eps`
    return Expected(linear(last, state["to_logits.weight"], state["to_logits.bias"]))


def next_probabilities(
    logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None
) -> np.ndarray:
    """Return the probability of each token."""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    kept = order[:1] if temperature == 0 else order[:top_k]
    probabilities = np.zeros(len(logits))
    probabilities[kept] = softmax_of([logits[token] / (temperature or 1.0) for token in kept])
    return probabilities


def generate(
    next_logits: Callable[[list[int]], np.ndarray],
    context_length: int,
    prompt: np.ndarray,
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> Expected:
    """Return each prompt continued with the most likely token at every step."""
    texts = [[int(token) for token in text] for text in prompt]
    for text in texts:
        for _ in range(num_tokens):
            logits = next_logits(text[-context_length:])
            text.append(int(np.argmax(next_probabilities(logits, temperature, top_k))))
    return Expected(np.array(texts))


def induction_score(attention_weights: np.ndarray, period: int | None = None) -> Expected:
    """Return the mean over all positions after the first period, or 0 if there are none."""
    if period is None:
        period = max(attention_weights.shape[-1] // 2, 1)
    scores = np.zeros(len(attention_weights))
    for h, weights in enumerate(attention_weights):
        found = [float(weights[i, i - period + 1]) for i in range(period, len(weights))]  # pyright: ignore[reportOperatorIssue, reportArgumentType] - `period` is a number here
        scores[h] = math.fsum(found) / len(found) if found else 0.0
    return Expected(scores)


# The heads that are off at a moment of one or two nested `with` blocks: the first (0) or second
# (1).
SWITCHED_OFF = {
    "inside": (0,),
    "inside, after a step of training": (0,),
    "inside both": (0, 1),
    "inside the outer, after the inner": (0,),
    "inside the second": (1,),
    "after the with, after a step from inside": (),
    "after the with": (),
    "after an error inside the with": (),
}


def ablate_head(
    model: Any,
    tokens: np.ndarray,
    layer: int,
    head: int,
    second_layer: int = -1,
    second_head: int = -1,
    *,
    model_runs: str,
) -> Expected:
    """Return logits at one of the moments, and that no state differs from before.

    Args:
        model: its `options` "embedding", "layers" and "num_heads".
        tokens: `(batch, num_positions)`.
        layer, head, second_layer, second_head: the heads that nested `with` blocks switch off.
        model_runs: one of `SWITCHED_OFF`.
    """
    heads = (layer, head), (second_layer, second_head)
    off = [heads[i] for i in SWITCHED_OFF[model_runs]]
    given = dict(model.options)
    if "step" in model_runs:
        given = _after_a_step(given, tokens, layer, heads[:1])
    return Expected((logits_without(given, tokens, off), "nothing"))


def _after_a_step(model, tokens, layer, off) -> dict[str, Any]:
    """Return the model after a step of gradient descent with these heads off.

    The step changes the embedding and, unless it is frozen with the first block, `W_o` of the
    layer. The loss is half the sum of squared logits, and the step 0.01 times the gradient.
    """
    layers = [dict(each) for each in model["layers"]]
    near, step = {**model, "embedding": model["embedding"].copy(), "layers": layers}, 1e-5
    weights = [near["embedding"]]
    if layer > 0:
        layers[layer]["W_o"] = layers[layer]["W_o"].copy()
        weights.append(layers[layer]["W_o"])
    gradients = [np.zeros(weight.shape) for weight in weights]
    for weight, gradient in zip(weights, gradients, strict=True):
        for place in np.ndindex(weight.shape):
            kept, losses = weight[place], []
            for sign in (1, -1):
                weight[place] = kept + sign * step
                losses.append(float((logits_without(near, tokens, off) ** 2).sum()) / 2)
            weight[place] = kept
            gradient[place] = (losses[0] - losses[1]) / (2 * step)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight -= 0.01 * gradient
    return near


def logits_without(
    model: Mapping[str, Any], tokens: np.ndarray, off: Collection[tuple[int, int]]
) -> np.ndarray:
    """Return the small model's logits with some heads switched off, one head at a time."""
    x = model["embedding"][tokens]
    for number, layer in enumerate(model["layers"]):
        head_dim = layer["W_o"].shape[1] // model["num_heads"]
        read = linear(x, layer["read"])
        heads = np.zeros(read.shape)
        for h in range(model["num_heads"]):
            if (number, h) not in off:
                own = slice(h * head_dim, (h + 1) * head_dim)
                for i in range(x.shape[1]):  # the mean of the positions so far
                    heads[:, i, own] = sum(read[:, j, own] for j in range(i + 1)) / (i + 1)
        x = x + linear(heads, layer["W_o"], layer["bias"])
    return linear(x, model["embedding"])
