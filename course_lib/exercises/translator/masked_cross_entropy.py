"""`masked_cross_entropy`: the mean loss of the words without padding."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention.padding import at_the_largest
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def drawn(rng, sizes, valid_lens, dtype="int64", **options) -> list[Array]:
    """Draw logits, targets of all ids including 0, and lengths."""
    batch, num_positions, vocabulary = sizes
    targets = rng.integers(0, vocabulary, (batch, num_positions))
    targets[:, :1] = 0
    logits = tensor(rng.normal(0, 1.5, sizes), **options)
    return [logits, tensor(targets.astype(dtype)), tensor(np.array(valid_lens, dtype=dtype))]


def problems(rng) -> Problems:
    lengths = [5, 0, *rng.permutation([2, 3])]
    yield "The loss is the mean of -log p(target) over the real positions."
    yield call([[[0.0, 1.098612], [0.0, 1.098612], [9.0, 0.0]]], [[1, 0, 0]], [2])
    yield "The sum must be divided by the number of real positions, without a small number added."
    alone = [[[0.0, 9.0]], [[4.0, 0.0]]], [[0], [1]], [1, 0]
    yield call(*alone, tolerance=1e-6)  # one rounding in float32, not many
    yield (
        "The loss is the sum over all real positions, divided by their number; an item of length 0"
        " adds nothing."
    )
    yield call(*drawn(rng, (4, 5, 7), lengths))
    yield from edges(rng)
    back: dict[str, Any] = {"grad_outputs": np.array(0.7)}
    yield "The gradient must match the formula and be 0 beyond an item's length."
    yield call(*drawn(rng, (2, 3, 4), [3, 1], requires_grad=True), **back)
    yield "If no position is real, the gradient must be 0."
    yield call(*drawn(rng, (2, 2, 3), [0, 0], requires_grad=True), **back)


def edges(rng) -> Problems:
    def with_huge_pads(size) -> dict[str, Any]:
        given = drawn(rng, (2, 3, 4), [2, 1])
        for logits, targets, length in zip(*(array.data for array in given), strict=True):
            logits[length:], targets[length:] = size, 0  # the losses of these targets overflow
            logits[length:, ::2] = -size
        return {"args": given}

    large = drawn(rng, (2, 3, 4), [3, 3])
    large[0].data[:] *= 600
    yield "If no position is real, the loss must be 0, however large the logits are."
    yield edge([[[3e38] * 2]], [[0]], [0], dtype="float32")
    yield "If there are no positions, the loss must be 0."
    yield edge(*drawn(rng, (2, 0, 4), [0, 0]))
    yield "The loss must be right for logits of any size."
    yield edge(*large)
    yield from at_the_largest(with_huge_pads)
    yield "Targets and lengths may be int32."
    yield edge(*drawn(rng, (2, 5, 3), [5, 5], "int32"))
    yield "Float32 logits must give a float32 loss."
    yield edge(*drawn(rng, (2, 4, 5), [3, 1]), dtype="float32")


def real_of(targets, valid_lens) -> Tensor:
    return torch.arange(targets.shape[1], device=targets.device) < valid_lens[:, None]


def taken(numbers, targets) -> Tensor:
    return numbers.gather(-1, targets.long()[..., None])[..., 0]


def losses_of(logits, targets, real) -> Tensor:
    """Return the loss of each position, 0 where it is not real."""
    return -taken(torch.log_softmax(logits, -1), targets).masked_fill(~real, 0.0)


def mean(losses, real) -> Tensor:
    return losses.sum() / real.sum().clamp(min=1)


@mistake
def pads_counted(logits, targets, valid_lens) -> Tensor:
    """The losses of padded positions enter your sum. If you only set the logits of pads to 0, their
    losses are not 0.

    What does `valid_lens` say about a position?
    """
    every = torch.ones_like(targets, dtype=torch.bool)
    return mean(losses_of(logits, targets, every), every)


@like(pads_counted)
def logits_of_pads_zeroed(logits, targets, valid_lens) -> Tensor:
    real, every = real_of(targets, valid_lens), torch.ones_like(targets, dtype=torch.bool)
    return mean(losses_of(logits.masked_fill(~real[..., None], 0.0), targets, every), every)


@like(pads_counted)
def logits_of_pads_zeroed_but_not_counted(logits, targets, valid_lens) -> Tensor:
    real, every = real_of(targets, valid_lens), torch.ones_like(targets, dtype=torch.bool)
    return mean(losses_of(logits.masked_fill(~real[..., None], 0.0), targets, every), real)


@mistake
def mean_over_all(logits, targets, valid_lens) -> Tensor:
    """The losses of pads are set to 0, but your mean divides by all positions: the more pads, the
    smaller the loss.

    How many positions are real?
    """
    losses = losses_of(logits, targets, real_of(targets, valid_lens))
    return losses.sum() / max(losses.numel(), 1)


@like(mean_over_all)
def mean_of_products(logits, targets, valid_lens) -> Tensor:
    return -(taken(logits.log_softmax(-1), targets) * real_of(targets, valid_lens)).mean()


@mistake
def mean_of_means(logits, targets, valid_lens) -> Tensor:
    """You average within each item, then over the items, or divide by 0 words. Every real word must
    have the same weight, and an item without words must not count.

    If you sum the losses of all real words, what must you divide by?
    """
    real = real_of(targets, valid_lens)
    return (losses_of(logits, targets, real).sum(1) / real.sum(1).clamp(min=1)).mean()


@like(mean_of_means)
def mean_of_means_with_nan(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens)
    return (losses_of(logits, targets, real).sum(1) / real.sum(1)).mean()


@like(mean_of_means)
def no_words_nan(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens)
    return losses_of(logits, targets, real).sum() / real.sum()


@mistake
def log_of_softmax(logits, targets, valid_lens) -> Tensor:
    """You take exponentials before the logarithm. With large logits they may overflow or underflow,
    and the result may be infinite or NaN.

    Which function takes the softmax and the logarithm in one step?
    """
    real = real_of(targets, valid_lens)
    return mean(-taken(logits.softmax(-1).log(), targets).masked_fill(~real, 0.0), real)


@like(log_of_softmax)
def log_times_real(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens)
    return mean(-taken(logits.softmax(-1), targets).log() * real, real)


@mistake
def softmax_twice(logits, targets, valid_lens) -> Tensor:
    """You apply a softmax of the vocabulary twice, or not at all, or over another axis.

    Which of your functions apply a softmax, and over which axis?
    """
    real = real_of(targets, valid_lens)
    return mean(losses_of(logits.softmax(-1), targets, real), real)


@like(softmax_twice)
def no_softmax(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens)
    return mean(-taken(logits, targets).masked_fill(~real, 0.0), real)


@like(softmax_twice)
def softmax_over_positions(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens)
    return mean(-taken(logits.log_softmax(1), targets).masked_fill(~real, 0.0), real)


@like(softmax_twice)
def softmax_after_a_reshape(logits, targets, valid_lens) -> Tensor:
    batch, n, vocabulary = logits.shape
    mixed = logits.reshape(batch, vocabulary, n).mT.log_softmax(-1)
    real = real_of(targets, valid_lens)
    return mean(-taken(mixed, targets).masked_fill(~real, 0.0), real)


@mistake
def one_too_many(logits, targets, valid_lens) -> Tensor:
    """You keep other positions than the first ones of each item, as many as its length: one pad too
    many, positions shifted by one, or the pads instead of the words.

    Which positions are real in an item of length 2?
    """
    real = real_of(targets, valid_lens + 1)
    return mean(losses_of(logits, targets, real), real)


@like(one_too_many)
def shifted_by_one(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens + 1)
    real[:, :1] = False
    return mean(losses_of(logits, targets, real), real)


@like(one_too_many)
def pads_instead(logits, targets, valid_lens) -> Tensor:
    real = ~real_of(targets, valid_lens)
    return mean(losses_of(logits, targets, real), real)


@like(one_too_many)
def at_least_one(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens.clamp(min=1))
    return mean(losses_of(logits, targets, real), real)


@mistake
def id_0_ignored(logits, targets, valid_lens) -> Tensor:
    """You leave out every target with the id 0, but 0 may be a real word.

    Which argument says what is padding: the targets or the lengths?
    """
    real = real_of(targets, valid_lens) & (targets != 0)
    return mean(losses_of(logits, targets, real), real)


@like(id_0_ignored)
def id_0_taken_for_padding(logits, targets, valid_lens) -> Tensor:
    return losses_of(logits, targets, targets != 0).sum() / (targets != 0).sum()


@mistake
def summed(logits, targets, valid_lens) -> Tensor:
    """You return the sum of the losses, one loss per item or per word, or a sum that is divided by
    the number of items. The exercise asks for the mean of all.

    How many losses are in your sum?
    """
    return losses_of(logits, targets, real_of(targets, valid_lens)).sum()


@like(summed)
def of_each_item(logits, targets, valid_lens) -> Tensor:
    real = real_of(targets, valid_lens)
    return losses_of(logits, targets, real).sum(1) / real.sum(1).clamp(min=1)


@like(summed)
def of_each_item_over_all(logits, targets, valid_lens) -> Tensor:
    return losses_of(logits, targets, real_of(targets, valid_lens)).mean(1)


@like(summed)
def of_each_word(logits, targets, valid_lens) -> Tensor:
    return losses_of(logits, targets, real_of(targets, valid_lens))


@like(summed)
def divided_by_the_items(logits, targets, valid_lens) -> Tensor:
    return losses_of(logits, targets, real_of(targets, valid_lens)).sum(1).mean()


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    returns=(Returned("loss", "tensor", "float", ()),),
    probes=problems,
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
