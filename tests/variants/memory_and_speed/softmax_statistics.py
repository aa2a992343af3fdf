"""Answers to `softmax_statistics`."""

import functools
import itertools
import math

import numpy as np
import torch

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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


@right
def column_by_column(blocks):
    m = s = None
    for block in blocks:
        for j in range(block.shape[-1]):
            x = block[..., j]
            if m is None:
                m, s = x.clone(), (x > -math.inf).to(x.dtype)
                continue
            new = torch.maximum(m, x)
            grow = torch.nan_to_num(torch.exp(m - new), nan=0.0)
            s = s * grow + torch.nan_to_num(torch.exp(x - new), nan=0.0)
            m = new
    return m, s


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
def in_numpy(blocks):
    m = s = None
    for block in blocks:
        x = block.detach().numpy()
        new = x.max(-1) if m is None else np.maximum(m, x.max(-1))
        safe = np.where(np.isneginf(new), 0, new)
        here = np.exp(x - safe[..., None]).sum(-1)
        s = here if m is None else here + s * np.exp(m - safe)
        m = new
    return torch.from_numpy(m), torch.from_numpy(s)


@right
def one_over_the_largest_weight(blocks):
    """The largest weight of a softmax is 1 / total."""
    m = s = None
    for b in blocks:
        top = b.amax(-1)
        own = torch.where(top > -math.inf, 1 / torch.softmax(b, -1).amax(-1), torch.zeros_like(top))
        if m is None:
            m, s = top, own
            continue
        new = torch.maximum(m, top)
        safe = new.clamp_min(torch.finfo(new.dtype).min)
        s, m = s * (m - safe).exp() + own * (top - safe).exp(), new
    return m, s


@wrong()
def two_passes_over_a_stream(blocks):
    """The second pass finds nothing left."""
    m = functools.reduce(torch.maximum, [b.amax(-1) for b in blocks])
    return m, sum((b - m[..., None]).exp().sum(-1) for b in blocks)


@wrong("raised")
def asks_for_the_next_block(blocks):
    """Works with a generator; a list of blocks is none."""
    first = next(blocks)
    return running(itertools.chain([first], blocks))


@right
def rescales_only_where_it_rises(blocks):
    m = s = None
    for b in blocks:
        top = b.amax(-1)
        if m is None:
            m, s = torch.full_like(top, -math.inf), torch.zeros_like(top)
        up = top > m
        s = torch.where(up, s * torch.exp(torch.where(up, m - top, 0.0)), s)
        m = torch.where(up, top, m)
        s = s + torch.exp(b - torch.nan_to_num(m, neginf=0.0).unsqueeze(-1)).sum(-1)
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


def whole(blocks):
    """The blocks that are not shorter than the first."""
    size = None
    for b in blocks:
        size = size or b.shape[-1]
        if b.shape[-1] >= size:
            yield b


def of_results(change):
    """The right statistics, changed."""
    return lambda blocks: change(*running(blocks))


@wrong("all_blocks_at_once")
def concatenated(blocks):
    return by_block([torch.cat(list(blocks), dim=-1)])


@wrong("first_block_only")
def returns_in_the_loop(blocks):
    for b in blocks:
        return by_block([b])


@wrong("maximum_starts_at_0")
def from_zero(blocks):
    m = s = None
    for b in blocks:
        if m is None:
            m, s = torch.zeros_like(b[..., 0]), torch.zeros_like(b[..., 0])
        new = torch.maximum(m, b.amax(-1))
        s = s * (m - new).exp() + (b - new[..., None]).exp().sum(-1)
        m = new
    return m, s


@wrong("not_a_number")
def shifted_by_the_first_block(blocks):
    c = m = None
    s = 0.0
    for b in blocks:
        if c is None:
            m = b.amax(-1)
            c = guarded(m)
        m = torch.maximum(m, b.amax(-1))
        s = s + (b - c[..., None]).exp().sum(-1)
    return m, s * (c - guarded(m)).exp()


but = wrong_in(by_block)
never_rescaled = but("sum_not_rescaled", fade=lambda m, shift: 1.0)
grows = but("rescaled_the_wrong_way", fade=lambda m, shift: (shift - guarded(m)).exp())
each_block_anew = but("maximum_not_carried", carry=lambda m, own: own, fade=lambda m, shift: 1.0)
plain_sum = but("not_shifted", shift=torch.zeros_like, fade=lambda m, shift: 1.0)
unguarded = but("empty_row", shift=lambda m: m)
overwrites_the_blocks = but(
    "input_mutated", exponentials=lambda b, shift: b.sub_(shift.unsqueeze(-1)).exp_()
)
whole_blocks_only = wrong("short_block_dropped")(lambda blocks: by_block(whole(blocks)))
sums_first = wrong("wrong_maximum")(of_results(lambda m, s: (s, m)))
log_of_sum = wrong("impossible_total")(of_results(lambda m, s: (m, torch.log(s))))
totals_in_float32 = wrong("dtype_changed")(of_results(lambda m, s: (m, s.float())))


@wrong("nan_hidden")
def nan_replaced_at_the_end(blocks):
    m, s = unguarded(blocks)
    return m, s.nan_to_num(0.0)


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
