"""Answers to `shift_right`, as different hands would write them."""

import torch
from torch.nn import functional as F

from course_lib.exercises.variants import faulty, right, wrong


@right
def column_in_front(targets, start):
    column = targets.new_full((targets.shape[0], 1), start)
    return torch.cat([column, targets], dim=1)[:, : targets.shape[1]]


@right
def copied_over(targets, start):
    inputs = torch.full_like(targets, start)
    inputs[:, 1:] = targets[:, :-1]
    return inputs


@right
def rolled_and_replaced(targets, start):
    inputs = torch.roll(targets, 1, dims=1)
    inputs[:, :1] = start
    return inputs


@right
def padded_and_cut(targets, start):
    return F.pad(targets, (1, 0), value=start)[:, : targets.shape[-1]]


@right
def indexed(targets, start):
    before = torch.arange(targets.shape[1], device=targets.device) - 1
    return torch.where(before < 0, start, targets[:, before.clamp(min=0)])


@right
def word_by_word(targets, start):
    inputs = targets.clone()
    for t in range(targets.shape[1]):
        inputs[:, t] = targets[:, t - 1] if t else start
    return inputs


@right
def one_step_with_narrow(targets, start):
    if targets.shape[1] == 0:
        return targets.clone()
    first = torch.full_like(targets[:, :1], start)
    return torch.hstack((first, targets.narrow(1, 0, targets.shape[1] - 1)))


@right
def columns_stacked(targets, start):
    columns = [torch.full_like(c, start) for c in targets.unbind(1)[:1]] + list(targets.unbind(1))
    return torch.stack(columns[:-1], dim=1) if targets.shape[1] else targets + 0


@wrong("shifted_left")
def the_other_way(targets, start):
    inputs = torch.full_like(targets, start)
    inputs[:, :-1] = targets[:, 1:]
    return inputs


@wrong()
def rolled_the_other_way(targets, start):
    inputs = targets.roll(-1, 1)
    inputs[:, :1] = start
    return inputs


@wrong("rolled_around")
def just_rolled(targets, start):
    return targets.roll(1, dims=1)


@wrong()
def rolled_over_everything(targets, start):
    return targets.roll(1)


@wrong("rolled_around")
def last_in_front(targets, start):
    return torch.cat([targets[:, -1:], targets[:, :-1]], dim=1)


@wrong("column_dropped")
def start_thought_to_be_there(targets, start):
    return targets[:, :-1]


@wrong("column_too_many")
def nothing_dropped(targets, start):
    return torch.cat([targets.new_full((len(targets), 1), start), targets], dim=1)


@wrong("nothing_shifted")
def as_it_is(targets, start):
    return targets.clone()


@wrong("first_replaced")
def start_written_over(targets, start):
    inputs = targets.clone()
    inputs[:, :1] = start
    return inputs


@wrong("input_mutated")
def in_place(targets, start):
    targets[:, 1:] = targets[:, :-1].clone()
    targets[:, :1] = start
    return targets


@wrong("column_on_the_cpu")
def column_of_ones(targets, start):
    column = torch.ones(len(targets), 1, dtype=torch.long) * start
    return torch.cat([column, targets], dim=1)[:, : targets.shape[1]]


@wrong()
def always_a_start(targets, start):
    return torch.cat([targets.new_full((len(targets), 1), start), targets[:, :-1]], dim=1)


@wrong()
def one_for_start(targets, start):
    return F.pad(targets, (1, 0), value=1)[:, : targets.shape[1]]


@wrong()
def overlapping_copy(targets, start):
    inputs = targets.clone()
    for t in range(1, targets.shape[1]):
        inputs[:, t] = inputs[:, t - 1]
    inputs[:, :1] = start
    return inputs


@wrong()
def two_starts(targets, start):
    return F.pad(targets, (2, 0), value=start)[:, : targets.shape[1]]


@wrong()
def first_row_only(targets, start):
    inputs = targets.roll(1, 1)
    inputs[:1, :1] = start
    return inputs


@wrong()
def items_shifted(targets, start):
    inputs = torch.full_like(targets, start)
    inputs[1:] = targets[:-1]
    return inputs


@wrong("wrong_dtype_kind")
def float_inputs(targets, start):
    column = torch.full((len(targets), 1), float(start), device=targets.device)
    return torch.cat([column, targets], dim=1)[:, : targets.shape[1]]


@wrong("input_mutated")
def written_into_the_argument(targets, start):
    if targets.shape[1]:
        targets[:, 1:] = targets[:, :-1].clone()
        targets[:, 0] = start
    return targets


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
