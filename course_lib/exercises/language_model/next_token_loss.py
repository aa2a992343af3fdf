"""`next_token_loss`: match each prediction with the next token."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import (
    FLOAT32,
    LOG_OF_SOFTMAX,
    RESHAPED,
    Given,
    case,
    edge,
    mistake,
)

_MEAN = "The loss is the mean of -log p(token i + 1) at position i, over all but the last."


def _tokens(rng, batch, n, vocabulary) -> np.ndarray:
    """Draw tokens without repeats in a row, so that confusing neighbors has an effect."""
    return rng.integers(1, vocabulary, (batch, n)).cumsum(1) % vocabulary


def _drawn(rng, *sizes, **options) -> Given:
    logits = tensor(rng.normal(0, 1.5, sizes), **options)
    return {"logits": logits, "tokens": tensor(_tokens(rng, *sizes))}


def _values(rng) -> list[Probe]:
    worked = [[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [5.0, 5.0, 0.0]]]
    return [
        case("worked_number", logits=worked, tokens=[[0, 1, 1]]).says(_MEAN),
        case("random", **_drawn(rng, 2, 6, 4)).says(_MEAN),
        case("longer", **_drawn(rng, 3, 7, 5)).says(_MEAN),
    ]


def _edges(rng) -> list[Probe]:
    far = 30 * rng.normal(0, 1.5, (2, 4, 3))
    far[:, 0] = [[900.0, 0.0, 0.0], [-900.0, -1800.0, -1800.0]]  # token 0 is certain
    int32 = _drawn(rng, 2, 5, 3)
    int32["tokens"] = tensor(int32["tokens"].data.astype(np.int32))
    small = _drawn(rng, 2, 3, 4, requires_grad=True)
    return [
        edge("large_logits", logits=far, tokens=[[1, 1, 0, 2], [1, 2, 2, 0]]).says(
            "The loss must be finite and right for logits of any size."
        ),
        edge("int32", **int32).says("Tokens may be int32 or int64."),
        edge("float32", **_drawn(rng, 2, 4, 5), **FLOAT32).says(
            "Float32 logits must give a float32 loss."
        ),
        case("gradient", grad_outputs=np.array(1.7), **small).says(
            "The gradient must reach the logits."
        ),
    ]


def _of_each(logits, tokens) -> torch.Tensor:
    """Return minus log p of each token, `(batch, n)`."""
    picked = logits.log_softmax(-1).gather(-1, tokens.long()[..., None])
    return -picked[..., 0]


def _right_pairs(logits, tokens) -> torch.Tensor:
    return _of_each(logits[:, :-1], tokens[:, 1:])


def _reshaped(logits, tokens) -> torch.Tensor:
    batch, n, vocabulary = logits.shape
    swapped = logits[:, :-1].reshape(batch, vocabulary, n - 1)
    return F.cross_entropy(swapped, tokens[:, 1:].long())


def _log_of_softmax(logits, tokens) -> torch.Tensor:
    chances = logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None].long())
    return -chances.log().mean()


def _log_of_shares(logits, tokens) -> torch.Tensor:
    e = logits[:, :-1].exp()
    return -(e / e.sum(-1, keepdim=True)).gather(-1, tokens[:, 1:, None].long()).log().mean()


EXERCISE = Exercise(
    points=2,
    minutes=6,
    difficulty=1,
    returns=(Returned("loss", "tensor", "float"),),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    mistakes=(
        mistake(
            "no_shift",
            lambda logits, tokens: _of_each(logits, tokens).mean(),
            twins=(lambda logits, tokens: _of_each(logits[:, :-1], tokens[:, :-1]).mean(),),
        ).says(
            "You compare each position with the token that it has just read, so a model that "
            "copies would be perfect.",
            "Position i has read tokens 0 to i. Which is the first one it does not know?",
        ),
        mistake(
            "shifted_the_other_way",
            lambda logits, tokens: _of_each(logits[:, 1:], tokens[:, :-1]).mean(),
        ).says(
            "You shift the wrong way: your position i predicts token i - 1.",
            "Which of the two must lose its first entry, and which its last?",
        ),
        mistake(
            "last_position_counted", lambda x, tokens: _of_each(x, tokens.roll(-1, 1)).mean()
        ).says(
            "You also count the last position, with the first token as its target.",
            "How many predictions does a text of n tokens test?",
        ),
        mistake(
            "summed",
            lambda logits, tokens: _right_pairs(logits, tokens).sum(),
            twins=(
                lambda logits, tokens: _right_pairs(logits, tokens).sum() / tokens.numel(),
                lambda logits, tokens: _right_pairs(logits, tokens).sum(1).mean(),
                lambda logits, tokens: _right_pairs(logits, tokens).sum(0).mean(),
            ),
        ).says(
            "You do not divide the sum of the losses by the number of predictions, which is n - 1 "
            "for each text, or you divide it by another number.",
            "How many predictions does a text of n tokens test?",
        ),
        mistake("reshaped", _reshaped).says(*RESHAPED),
        mistake("log_of_softmax", _log_of_softmax, twins=(_log_of_shares,)).says(*LOG_OF_SOFTMAX),
    ),
    hints=(
        "Write the tokens in a row, and beneath each the token that its position must predict. "
        "Which position has nothing beneath it?",
        "Drop the last position of the logits and the first token, join batch and positions into "
        "one axis, and take the mean cross-entropy of the two.",
        "predicted = logits[:, ...]  # all positions but the last\n"
        "wanted = tokens[:, ...]  # all tokens but the first\n"
        "return F.cross_entropy(predicted.flatten(0, 1), ...)",
    ),
)
