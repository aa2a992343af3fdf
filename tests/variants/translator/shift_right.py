"""Answers to `shift_right`, as different hands would write them."""

import torch
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong


@right
def column_in_front(targets, start):
    column = targets.new_full((targets.shape[0], 1), start)
    return torch.cat([column, targets], dim=1)[:, : targets.shape[1]]


@right
def rolled_and_replaced(targets, start):
    inputs = torch.roll(targets, 1, dims=1)
    inputs[:, :1] = start
    return inputs


@right
def padded_and_cut(targets, start):
    return F.pad(targets, (1, 0), value=start)[:, : targets.shape[-1]]


@right
def word_by_word(targets, start):
    inputs = targets.clone()
    for t in range(targets.shape[1]):
        inputs[:, t] = targets[:, t - 1] if t else start
    return inputs


@wrong("wrong_shape")
def start_thought_to_be_there(targets, start):
    return targets[:, :-1]


@wrong("input_mutated")
def in_place(targets, start):
    targets[:, 1:] = targets[:, :-1].clone()
    targets[:, :1] = start
    return targets


@wrong("cpu_tensor")
def column_of_ones(targets, start):
    column = torch.ones(len(targets), 1, dtype=torch.long) * start
    return torch.cat([column, targets], dim=1)[:, : targets.shape[1]]


@wrong("cpu_tensor")
def through_a_list(targets, start):
    rows = [[start, *row][: targets.shape[1]] for row in targets.tolist()]
    return torch.tensor(rows, dtype=targets.dtype).reshape(targets.shape)


@faulty("on the cpu", "always a start", "one for start")
def slips(faults):
    def shift_right(targets, start):
        device = "cpu" if "on the cpu" in faults else targets.device
        first = 1 if "one for start" in faults else start
        column = torch.full((len(targets), 1), first, device=device)
        if "always a start" in faults:
            return torch.cat([column, targets[:, :-1]], dim=1)
        return torch.cat([column, targets], dim=1)[:, : targets.shape[1]]

    return shift_right
