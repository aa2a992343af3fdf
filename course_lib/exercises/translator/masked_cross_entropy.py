"""`masked_cross_entropy`: the mean loss of the words without padding."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import (
    FLOAT32,
    LOG_OF_SOFTMAX,
    Given,
    at_the_largest,
    case,
    edge,
    in_steps,
    mistake,
)


def _drawn(rng, sizes, valid_lens, dtype="int64", requires_grad=False, **options) -> Given:
    """Draw logits, targets of all ids including 0, and lengths."""
    batch, num_positions, vocabulary = sizes
    targets = rng.integers(0, vocabulary, (batch, num_positions))
    targets[:, :1] = 0
    return {
        "logits": tensor(rng.normal(0, 1.5, sizes), requires_grad=requires_grad, **options),
        "targets": tensor(targets.astype(dtype), **options),
        "valid_lens": np.array(valid_lens, dtype=dtype),
    }


def _plain(rng) -> list[Probe]:
    lengths = [5, 0, *rng.permutation([2, 3])]
    alone = {"logits": [[[0.0, 9.0]], [[4.0, 0.0]]], "targets": [[0], [1]], "valid_lens": [1, 0]}
    worked = [[[0.0, 1.098612], [0.0, 1.098612], [9.0, 0.0]]]
    return [
        case("worked_number", logits=worked, targets=[[1, 0, 0]], valid_lens=[2]).says(
            "The loss is the mean of -log p(target) over the real positions."
        ),
        case("one_position", **alone, tolerance=1e-6).says(  # one rounding in float32, not many
            "The sum must be divided by the number of real positions, without a small number added."
        ),
        case("several", **_drawn(rng, (4, 5, 7), lengths)).says(
            "The loss is the sum over all real positions, divided by their number; an item of "
            "length 0 adds nothing."
        ),
    ]


def _edges(rng) -> list[Probe]:
    def with_huge_pads(size) -> Given:
        given = _drawn(rng, (2, 3, 4), [2, 1])
        arrays = given["logits"].data, given["targets"].data, given["valid_lens"]
        for logits, targets, length in zip(*arrays, strict=True):
            logits[length:], targets[length:] = size, 0  # the losses of these targets overflow
            logits[length:, ::2] = -size
        return given

    large = _drawn(rng, (2, 3, 4), [3, 3])
    large["logits"].data[:] *= 600
    return [
        edge(
            "large_but_empty", logits=[[[3e38] * 2]], targets=[[0]], valid_lens=[0], **FLOAT32
        ).says("If no position is real, the loss must be 0, however large the logits are."),
        edge("no_positions", **_drawn(rng, (2, 0, 4), [0, 0])).says(
            "If there are no positions, the loss must be 0."
        ),
        edge("large_logits", **large).says("The loss must be right for logits of any size."),
        *at_the_largest(with_huge_pads),
        edge("int32", **_drawn(rng, (2, 5, 3), [5, 5], "int32")).says(
            "Targets and lengths may be int32."
        ),
        edge("float32", **_drawn(rng, (2, 4, 5), [3, 1]), **FLOAT32).says(
            "Float32 logits must give a float32 loss."
        ),
    ]


def _gradients(rng) -> list[Probe]:
    back: Given = {"grad_outputs": np.array(0.7)}
    return [
        case("gradient", **_drawn(rng, (2, 3, 4), [3, 1], requires_grad=True), **back).says(
            "The gradient must match the formula and be 0 beyond an item's length."
        ),
        case(
            "gradient_all_empty", **_drawn(rng, (2, 2, 3), [0, 0], requires_grad=True), **back
        ).says("If no position is real, the gradient must be 0."),
    ]


def _real(targets, valid_lens) -> torch.Tensor:
    return torch.arange(targets.shape[1], device=targets.device) < valid_lens[:, None]


def _taken(numbers, targets) -> torch.Tensor:
    return numbers.gather(-1, targets.long()[..., None])[..., 0]


@in_steps(
    losses=lambda logits, targets: -_taken(torch.log_softmax(logits, -1), targets),
    real=_real,
    average=lambda kept, real: kept.sum() / real.sum().clamp(min=1),
)
def _loss(losses, real, average) -> Callable:
    """Return a wrong loss, which is a correct one with a changed step."""

    def masked_cross_entropy(logits, targets, valid_lens) -> torch.Tensor:
        positions = real(targets, valid_lens)
        return average(losses(logits, targets).masked_fill(~positions, 0.0), positions)

    return masked_cross_entropy


def _mean(losses, real) -> torch.Tensor:
    return losses.sum() / max(losses.numel(), 1)


def _mean_of_products(logits, targets, valid_lens) -> torch.Tensor:
    return -(_taken(logits.log_softmax(-1), targets) * _real(targets, valid_lens)).mean()


def _all(targets, valid_lens) -> torch.Tensor:
    return torch.ones_like(targets, dtype=torch.bool)


def _logged_first(logits, targets) -> torch.Tensor:
    return -_taken(logits.softmax(-1).log(), targets)


def _taken_first(logits, targets) -> torch.Tensor:
    return -_taken(logits.softmax(-1), targets).log()


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    returns=(Returned("loss", "tensor", "float", ()),),
    probes=lambda rng: [*_plain(rng), *_edges(rng), *_gradients(rng)],
    mistakes=(
        mistake("pads_counted", _loss(real=_all)).says(
            "Your loss is the mean over all positions, including pads.",
            "What does `valid_lens` say about a position?",
        ),
        mistake("mean_over_all", _loss(average=_mean), twins=(_mean_of_products,)).says(
            "The losses of pads are set to 0, but your mean divides by all positions: the more "
            "pads, the smaller the loss.",
            "How many positions are real?",
        ),
        mistake(
            "mean_of_means",
            _loss(average=lambda kept, real: (kept.sum(1) / real.sum(1).clamp(min=1)).mean()),
        ).says(
            "You average within each item, then over the items. Every real word must have the "
            "same weight, and an item without words must not count.",
            "If you sum the losses of all real words, what must you divide by?",
        ),
        mistake(
            "log_of_softmax", _loss(losses=_logged_first), twins=(_loss(losses=_taken_first),)
        ).says(*LOG_OF_SOFTMAX),
        mistake("one_too_many", _loss(real=lambda t, lens: _real(t, lens + 1))).says(
            "You count one pad of each item that has any: a length of 2 keeps positions 0, 1 and "
            "2.",
            "Which is the last real position of an item of length 2?",
        ),
        mistake("id_0_ignored", _loss(real=lambda t, lens: _real(t, lens) & (t != 0))).says(
            "You leave out every target with the id 0, but 0 may be a real word.",
            "Which argument says what is padding: the targets or the lengths?",
        ),
        mistake(
            "summed",
            _loss(average=lambda kept, real: kept.sum()),
            twins=(_loss(average=lambda kept, real: kept.sum(1).mean()),),
        ).says(
            "You return the sum of the losses, or divide it by the number of items. The exercise "
            "asks for their mean.",
            "How many losses are in your sum?",
        ),
    ),
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
