"""Answers to `masked_cross_entropy`, as different hands would write them."""

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


def real_positions(targets, valid_lens):
    return torch.arange(targets.shape[1], device=targets.device) < valid_lens.unsqueeze(1)


@right
def gathered(logits, targets, valid_lens):
    chosen = logits.log_softmax(-1).gather(2, targets.long().unsqueeze(2)).squeeze(2)
    real = real_positions(targets, valid_lens)
    return -chosen.masked_fill(~real, 0.0).sum() / max(int(real.sum()), 1)


@right
def torchs_own_unreduced(logits, targets, valid_lens):
    losses = F.cross_entropy(logits.mT, targets.long(), reduction="none")
    real = real_positions(targets, valid_lens)
    return torch.where(real, losses, 0.0).sum() / torch.clamp(real.sum(), min=1)


@right
def only_the_real(logits, targets, valid_lens):
    real = real_positions(targets, valid_lens)
    if not real.any():
        return (logits * 0).sum()
    return F.cross_entropy(logits[real], targets[real].long())


@wrong("not_a_number")
def sum_times_0(logits, targets, valid_lens):
    if valid_lens.sum() == 0:
        return logits.sum() * 0
    return only_the_real(logits, targets, valid_lens)


@right
def item_by_item(logits, targets, valid_lens):
    total, count = logits[:, :0].sum(), 0
    for item, words, length in zip(logits, targets, valid_lens.tolist(), strict=True):
        log_p = torch.log_softmax(item[:length], dim=-1)
        for position in range(length):
            total = total - log_p[position, int(words[position])]
            count += 1
    return total / count if count else total


def steps(
    logits,
    targets,
    valid_lens,
    *,
    real=real_positions,
    log_p=lambda logits: torch.log_softmax(logits, dim=-1),
    average=lambda losses, real: losses.sum() / real.sum().clamp(min=1),
):
    positions = real(targets, valid_lens)
    losses = -log_p(logits).gather(-1, targets.long()[..., None])[..., 0]
    return average(torch.where(positions, losses, 0.0), positions)


but = wrong_in(steps)
small_number_added = but(
    "precision_lost", average=lambda losses, real: losses.sum() / (real.sum() + 1e-5)
)
one_loss_each = but("wrong_shape", average=lambda losses, real: losses.sum(1) / real.sum(1))
guessed_from_zero = but("wrong_values", real=lambda targets, lens: targets != 0)
positions_on_the_cpu = but(
    "cpu_tensor", real=lambda targets, lens: torch.arange(targets.shape[1]) < lens[:, None]
)
in_float32 = but(log_p=lambda logits: logits.float().log_softmax(-1))
detached = but("gradient_cut", log_p=lambda logits: logits.detach().log_softmax(-1))


@wrong("input_mutated")
def pads_written_into_the_targets(logits, targets, valid_lens):
    real = real_positions(targets, valid_lens)
    targets[~real] = -100
    words = targets.flatten().long()
    return F.cross_entropy(logits.flatten(0, 1), words, reduction="sum") / max(int(real.sum()), 1)


@faulty("nan", "int64 only", "log of softmax", "over all")
def slips(faults):
    def masked_cross_entropy(logits, targets, valid_lens):
        words = targets if "int64 only" in faults else targets.long()
        real = real_positions(targets, valid_lens)
        log_p = logits.softmax(-1).log() if "log of softmax" in faults else logits.log_softmax(-1)
        losses = F.nll_loss(log_p.mT, words, reduction="none").masked_fill(~real, 0.0)
        count = real.numel() if "over all" in faults else real.sum()
        return losses.sum() / (count if "nan" in faults else max(int(count), 1))

    return masked_cross_entropy


@wrong("not_a_number")
def times_zero(logits, targets, valid_lens):
    losses = F.cross_entropy(logits.mT, targets.long(), reduction="none")
    real = real_positions(targets, valid_lens)
    return (losses * real).sum() / real.sum().clamp(min=1)
