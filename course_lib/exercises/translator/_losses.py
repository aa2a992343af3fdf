"""What goes wrong in `masked_cross_entropy`."""

from collections.abc import Callable
from dataclasses import replace

import torch

from course_lib.exercises._rows import mistake


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


def _averaged(average) -> Callable:
    """A wrong mean: `average(losses, real)` of the right losses."""
    return lambda logits, targets, valid_lens: average(
        _losses(logits, targets), _real(targets, valid_lens)
    )


def _of(losses, average=_average) -> Callable:
    """The right mean of wrong losses, `losses(logits, targets)`."""
    return lambda logits, targets, valid_lens: average(
        losses(logits, targets), _real(targets, valid_lens)
    )


def _mean_of_means(losses, real) -> torch.Tensor:
    sums = losses.masked_fill(~real, 0.0).sum(1)
    return (sums / real.sum(1).clamp(min=1)).mean()


def _zero_ignored(logits, targets, valid_lens) -> torch.Tensor:
    return _average(_losses(logits, targets), targets != 0)


def _class_zero(logits, targets, valid_lens) -> torch.Tensor:
    return _mean(_losses(logits, targets.masked_fill(~_real(targets, valid_lens), 0)))


def _logits_zeroed(logits, targets, valid_lens) -> torch.Tensor:
    real = _real(targets, valid_lens)
    return _mean(_losses(logits * real[..., None], targets))


def _logged_first(logits, targets) -> torch.Tensor:
    return -_taken(logits.softmax(-1).log(), targets)


def _taken_first(logits, targets) -> torch.Tensor:
    return -_taken(logits.softmax(-1), targets).log()


def _times_real(losses, real) -> torch.Tensor:
    return (losses * real).sum() / real.sum().clamp(min=1)


def _one_more(logits, targets, valid_lens) -> torch.Tensor:
    return _average(_losses(logits, targets), _real(targets, valid_lens + 1))


MISTAKES = (
    mistake("pads_counted", _averaged(lambda losses, real: _mean(losses))).says(
        "Your loss is the mean over all positions, including pads.",
        "What does `valid_lens` say about a position?",
    ),
    mistake(
        "mean_over_all",
        _averaged(lambda losses, real: _mean(losses.masked_fill(~real, 0.0))),
    ).says(
        "The losses of pads are set to 0, but your mean divides by all positions: the more pads, "
        "the smaller the loss.",
        "How many losses are in your sum?",
    ),
    mistake("mean_of_means", _averaged(_mean_of_means)).says(
        "You average within each item, then over the items, so a word of a short item weighs more "
        "than one of a long item.",
        "Should one word count more than another because its sentence is short?",
    ),
    replace(
        mistake("summed", _averaged(_sum)).says(
            "You do not divide your sum over the real words by their number.",
            "What is the loss a mean of?",
        ),
        twins=(_averaged(lambda losses, real: _sum(losses, real) / len(losses)),),
    ),
    mistake("pads_as_class_zero", _class_zero).says(
        "You set the targets of pads to 0 and still count them: the model learns to say word 0 "
        "there.",
        "What loss should a position have that is not there?",
    ),
    mistake("zero_is_ignored", _zero_ignored).says(
        "You leave out the targets that are 0 (`ignore_index=0`?). A real word may have the id 0, "
        "and a pad another.",
        "What says which positions are real?",
    ),
    mistake("logits_zeroed", _logits_zeroed).says(
        "You set the logits of pads to 0. Equal logits still count: each pad adds the log of the "
        "vocabulary's size to your loss.",
        "At which step can you leave a position out without a trace?",
    ),
    mistake(
        "log_forgotten", _of(lambda logits, targets: -_taken(logits.softmax(-1), targets))
    ).says(
        "Your loss averages probabilities instead of their logarithms.",
        "What is the loss of a word that the model thinks impossible?",
    ),
    mistake(
        "softmax_twice", _of(lambda logits, targets: _losses(logits.softmax(-1), targets))
    ).says(
        "You take the softmax twice: `cross_entropy` and `log_softmax` expect logits.",
        "Which of your functions contains a softmax?",
    ),
    mistake(
        "softmax_over_positions",
        _of(lambda logits, targets: -_taken(torch.log_softmax(logits, 1), targets)),
    ).says(
        "Your softmax runs over the positions instead of the words.",
        "Along which axis of (batch, positions, vocabulary) do the candidates compete?",
    ),
    replace(
        mistake("log_of_softmax", _of(_logged_first)).says(
            "You take the softmax, then its logarithm. A small probability underflows to 0, and "
            "the logarithm of 0 is -inf, so with large logits the loss is no longer finite.",
            "Which torch function takes both steps at once, and why can it not overflow?",
        ),
        twins=(
            _of(_taken_first),
            _of(_logged_first, _times_real),
            _of(_taken_first, _times_real),
        ),
    ),
    mistake("sign", _of(lambda logits, targets: -_losses(logits, targets))).says(
        "Your loss has the wrong sign: the better the model, the larger it is.",
        "Is the logarithm of a probability positive or negative?",
    ),
    mistake("one_position_more", _one_more).says(
        "One pad of each item counts: position j is real if j is smaller than the length.",
        "Which position is the last real one in an item of length 2?",
    ),
    mistake(
        "nan_without_words",
        _averaged(lambda losses, real: _sum(losses, real) / real.sum()),
    ).says(
        "If no position is real, your loss is 0/0, which is NaN, and so is every gradient.",
        "What is the smallest number that you may divide by?",
    ),
)
