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


@wrong("blocks_read_twice")
def two_passes_over_a_stream(blocks):
    """The second pass finds nothing left."""
    m = functools.reduce(torch.maximum, [b.amax(-1) for b in blocks])
    return m, sum((b - m[..., None]).exp().sum(-1) for b in blocks)


@wrong("blocks_read_twice")
def two_loops(blocks):
    m = torch.tensor(-math.inf)
    for b in blocks:
        m = torch.maximum(m, b.amax(-1))
    s = torch.zeros_like(m)
    for b in blocks:
        s = s + (b - m[..., None]).exp().sum(-1)
    return m, s


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


def of_results(change):
    """The right statistics, changed."""
    return lambda blocks: change(*running(blocks))


@wrong("starts_at_zero")
def from_zero(blocks):
    m = s = torch.tensor(0.0)
    for b in blocks:
        new = torch.maximum(m, b.amax(-1))
        s, m = s * (m - new).exp() + (b - new[..., None]).exp().sum(-1), new
    return m, s


@wrong("spent_peak")
def concatenated(blocks):
    return by_block([torch.cat(list(blocks), dim=-1)])


but = wrong_in(by_block)
never_rescaled = but("sum_not_rescaled", fade=lambda m, shift: 1.0)
unguarded = but("empty_row", shift=lambda m: m)
overwrites_the_blocks = but(
    "input_mutated", exponentials=lambda b, shift: b.sub_(shift.unsqueeze(-1)).exp_()
)
log_of_sum = wrong("logsumexp_returned")(of_results(lambda m, s: (m, torch.log(s))))


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
