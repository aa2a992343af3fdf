"""`masked_cross_entropy`: the loss of the words that are there."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import (
    FLOAT32,
    STRIDED,
    Given,
    at_the_largest,
    case,
    edge,
    mistake,
)


def _drawn(rng, sizes, valid_lens, dtype="int64", requires_grad=False, **options) -> Given:
    """Logits, targets of all ids, those of class 0 among them, and lengths."""
    batch, num_positions, vocabulary = sizes
    targets = rng.integers(0, vocabulary, (batch, num_positions))
    targets[:, :1] = 0
    return {
        "logits": tensor(rng.normal(0, 1.5, sizes), requires_grad=requires_grad, **options),
        "targets": tensor(targets.astype(dtype), **options),
        "valid_lens": np.array(valid_lens, dtype=dtype),
    }


def _with_garbage(given: Given, size: float) -> Given:
    """The same with huge logits beyond each item's length."""
    for i, length in enumerate(given["valid_lens"]):
        given["logits"].data[i, length:] = size
        given["logits"].data[i, length:, ::2] = -size
    return given


def _plain(rng) -> list[Probe]:
    lengths = [5, 0, *rng.permutation([2, 3])]
    worked = [[[0.0, 1.098612], [0.0, 1.098612], [9.0, 0.0]]]
    alike = _drawn(rng, (2, 4, 3), [4, 2])
    alike["logits"].data[:] = alike["logits"].data[:, :, :1]
    return [
        case("worked_number", logits=worked, targets=[[1, 0, 0]], valid_lens=[2]).says(
            "The two real words have probabilities 3/4 and 1/4, so the loss is the mean of "
            "ln(4/3) and ln 4."
        ),
        case("several", **_drawn(rng, (4, 5, 7), lengths)).says(
            "The loss is the sum over all real positions, divided by their number; an item of "
            "length 0 adds nothing."
        ),
        case("nothing_known", **alike).says(
            "A model that finds all 3 words equally likely has the loss ln 3, whatever the lengths."
        ),
        case("one_long_one_short", **_drawn(rng, (2, 6, 4), [6, 1])).says(
            "Each real word counts the same: those of a short item no more than those of a long "
            "one."
        ),
    ]


def _edges(rng) -> list[Probe]:
    large = _drawn(rng, (2, 3, 4), [3, 3])
    large["logits"].data[:] *= 600
    return [
        edge("all_empty", **_drawn(rng, (2, 3, 4), [0, 0])).says(
            "If no position is real, the loss is 0."
        ),
        edge("no_positions", **_drawn(rng, (2, 0, 4), [0, 0])).says(
            "If there are no positions, the loss is 0."
        ),
        edge("large_logits", **large).says("The loss is finite for logits of any size."),
        edge("garbage_in_pads", **_with_garbage(_drawn(rng, (3, 4, 6), [2, 4, 1]), 1e6)).says(
            "Whatever lies beyond an item's length changes nothing, however large it is."
        ),
        *at_the_largest(lambda size: _with_garbage(_drawn(rng, (2, 3, 4), [2, 1]), size)),
        edge("int32", **_drawn(rng, (2, 5, 3), [5, 5], "int32")).says(
            "Targets and lengths may be int32."
        ),
        edge("strided", **_drawn(rng, (2, 4, 5), [3, 4], strided=True)).says(STRIDED),
        edge("float32", **_drawn(rng, (2, 4, 5), [3, 1]), **FLOAT32).says(
            "Float32 logits give a float32 loss."
        ),
        edge(
            "another_device", **_drawn(rng, (2, 3, 4), [3, 1]), scenario="after_another_device"
        ).says(
            "Tensors on a GPU must work: a tensor made without `device=` is on the CPU, and the "
            "two do not mix."
        ),
    ]


def _gradients(rng) -> list[Probe]:
    wanted: Given = {"requires_grad": True}
    back: Given = {"grad_outputs": np.array(0.7)}
    garbage = _with_garbage(_drawn(rng, (2, 3, 4), [1, 2], **wanted), 1e6)
    return [
        case("gradient", **_drawn(rng, (2, 3, 4), [3, 1], **wanted), **back).says(
            "The gradient is that of the formula, and 0 beyond an item's length."
        ),
        case("gradient_of_garbage", **garbage, **back).says(
            "Whatever lies beyond an item's length gets a gradient of 0, however large it is."
        ),
        case("gradient_all_empty", **_drawn(rng, (2, 2, 3), [0, 0], **wanted), **back).says(
            "If no position is real, the gradient is 0."
        ),
    ]


def _real(targets, valid_lens) -> torch.Tensor:
    return torch.arange(targets.shape[1], device=targets.device) < valid_lens[:, None]


def _losses(logits, targets) -> torch.Tensor:
    return -_taken(torch.log_softmax(logits, -1), targets)


def _taken(numbers, targets) -> torch.Tensor:
    return numbers.gather(-1, targets.long()[..., None])[..., 0]


def _sum(losses, real) -> torch.Tensor:
    return losses.masked_fill(~real, 0.0).sum()


def _average(losses, real) -> torch.Tensor:
    return _sum(losses, real) / real.sum().clamp(min=1)


def _mean(losses) -> torch.Tensor:
    return losses.sum() / max(losses.numel(), 1)


def _of(losses, average=_average) -> Callable:
    """The loss with other losses or another average of them."""
    return lambda logits, targets, valid_lens: average(
        losses(logits, targets), _real(targets, valid_lens)
    )


def _mean_of_means(losses, real) -> torch.Tensor:
    sums = losses.masked_fill(~real, 0.0).sum(1)
    return (sums / real.sum(1).clamp(min=1)).mean()


def _logged_first(logits, targets) -> torch.Tensor:
    return -_taken(logits.softmax(-1).log(), targets)


def _taken_first(logits, targets) -> torch.Tensor:
    return -_taken(logits.softmax(-1), targets).log()


def _times_real(losses, real) -> torch.Tensor:
    return (losses * real).sum() / real.sum().clamp(min=1)


_MISTAKES = (
    mistake("pads_counted", _of(_losses, lambda losses, real: _mean(losses))).says(
        "Your loss is the mean over all positions, including pads.",
        "What does `valid_lens` say about a position?",
    ),
    mistake(
        "mean_over_all",
        _of(_losses, lambda losses, real: _mean(losses.masked_fill(~real, 0.0))),
    ).says(
        "The losses of pads are set to 0, but your mean divides by all positions: the more pads, "
        "the smaller the loss.",
        "How many losses are in your sum?",
    ),
    mistake("mean_of_means", _of(_losses, _mean_of_means)).says(
        "You average within each item, then over the items, so a word of a short item weighs more "
        "than one of a long item.",
        "Should one word count more than another because its sentence is short?",
    ),
    mistake(
        "summed",
        _of(_losses, _sum),
        twins=(_of(_losses, lambda losses, real: _sum(losses, real) / len(losses)),),
    ).says(
        "You do not divide the sum of the losses by the number of real words.",
        "What is the loss a mean of?",
    ),
    mistake("zero_is_ignored", lambda x, t, lens: _average(_losses(x, t), t != 0)).says(
        "You leave out the targets that are 0 (`ignore_index=0`?). A real word may have the id 0, "
        "and a pad another.",
        "Which argument tells you which positions are real?",
    ),
    mistake(
        "softmax_twice", _of(lambda logits, targets: _losses(logits.softmax(-1), targets))
    ).says(
        "You take the softmax twice: `cross_entropy` and `log_softmax` expect logits.",
        "Which of your functions contains a softmax?",
    ),
    mistake(
        "log_of_softmax",
        _of(_logged_first),
        twins=(_of(_taken_first), _of(_logged_first, _times_real), _of(_taken_first, _times_real)),
    ).says(
        "You take the softmax, then its logarithm. A small probability underflows to 0, and the "
        "logarithm of 0 is -inf, so with large logits the loss is no longer finite.",
        "Which torch function takes both steps at once, and why can it not overflow?",
    ),
    mistake(
        "one_position_more", lambda x, t, lens: _average(_losses(x, t), _real(t, lens + 1))
    ).says(
        "One pad of each item counts: position j is real if j is smaller than the length.",
        "Which position is the last real one in an item of length 2?",
    ),
    mistake(
        "nan_without_words",
        _of(_losses, lambda losses, real: _sum(losses, real) / real.sum()),
    ).says(
        "If no position is real, your loss is 0/0, which is NaN, and so is every gradient.",
        "What is the smallest number that you may divide by?",
    ),
)


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    returns=(Returned("loss", "tensor", "float", ()),),
    probes=lambda rng: [*_plain(rng), *_edges(rng), *_gradients(rng)],
    builds_on=("length_mask",),
    mistakes=_MISTAKES,
    hints=(
        "First compute the loss of every position, including pads: a (B, t) table. Which cells "
        "may enter the sum, and what do you divide it by?",
        "Take `log_softmax` over the last axis and pick each target's number from it with "
        "`gather` (which wants int64). Use the lengths to set the pads to 0, sum, and divide by "
        "the number of real positions, or by 1 if there are none.",
        "losses = -torch.log_softmax(...).gather(-1, <targets as (B, t, 1)>)[..., 0]\n"
        "real = length_mask(...)\n"
        "return torch.where(real, losses, 0.0).sum() / <at least 1>",
    ),
)
