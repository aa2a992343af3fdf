"""Answers to `softmax_statistics`."""

import functools
import math

import torch

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
def folded(blocks):
    """Each block's own statistics, then two of them merged at a time."""

    def of_one(block):
        top = block.amax(-1)
        safe = top.clamp(min=torch.finfo(top.dtype).min)
        return top, torch.exp(block - safe.unsqueeze(-1)).sum(-1)

    def merge(left, right):
        top = torch.maximum(left[0], right[0])
        safe = top.clamp(min=torch.finfo(top.dtype).min)
        return top, sum(total * torch.exp(m - safe) for m, total in (left, right))

    return functools.reduce(merge, map(of_one, blocks))


@right
def running(blocks):
    m = s = None
    for b in blocks:
        bm = b.max(dim=-1).values
        new = bm if m is None else torch.maximum(m, bm)
        safe = torch.where(torch.isinf(new), torch.zeros_like(new), new)
        here = (b - safe[..., None]).exp().sum(-1)
        s = here if s is None else s * (m - safe).exp() + here
        m = new
    return m, s


@right
def through_logsumexp(blocks):
    """log sum exp of a block is one number; logaddexp joins two of them."""
    m = lse = None
    for b in blocks:
        part, top = torch.logsumexp(b, -1), b.amax(-1)
        lse = part if lse is None else torch.logaddexp(lse, part)
        m = top if m is None else torch.maximum(m, top)
    return m, torch.where(m == -math.inf, torch.zeros_like(m), (lse - m).exp())


def guarded(m):
    return torch.where(m == -math.inf, 0.0, m)


def by_block(
    blocks,
    *,
    carry=torch.maximum,
    shift=guarded,
    exponentials=lambda b, shift: (b - shift[..., None]).exp(),
    fade=lambda m, shift: (m - shift).exp(),
):
    """A right answer in steps; what follows changes one of them."""
    m = s = None
    for b in blocks:
        new = b.amax(-1) if m is None else carry(m, b.amax(-1))
        here = exponentials(b, shift(new)).sum(-1)
        s = here if s is None else s * fade(m, shift(new)) + here
        m = new
    return m, s


@wrong("spent_peak")
def concatenated(blocks):
    return by_block([torch.cat(list(blocks), dim=-1)])


but = wrong_in(by_block)
overwrites_the_blocks = but(
    "input_mutated", exponentials=lambda b, shift: b.sub_(shift.unsqueeze(-1)).exp_()
)


@faulty("not_rescaled", "no_guard", "in_place", "all_kept")
def slips_of_a_loop(faults):
    def softmax_statistics(blocks):
        m = s = None
        for block in list(blocks) if "all_kept" in faults else blocks:
            new = block.amax(-1) if m is None else torch.maximum(m, block.amax(-1))
            safe = new if "no_guard" in faults else torch.where(new.isinf(), 0.0, new)
            if s is None:
                s = torch.zeros_like(new)
            elif "not_rescaled" not in faults:
                s = s * torch.exp(m - safe)
            shifted = torch.sub(block, safe[..., None], out=block if "in_place" in faults else None)
            s = s + shifted.exp().sum(-1)
            m = new
        return m, s

    return softmax_statistics
