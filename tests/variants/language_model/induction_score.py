"""Answers to `induction_score`."""

import torch

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
def loop_over_positions(attention_weights, period=None):
    h, n, _ = attention_weights.shape
    p = n // 2 if period is None else period
    total = torch.zeros(h, dtype=attention_weights.dtype, device=attention_weights.device)
    if p >= n or n == 1:
        return total
    for i in range(p, n):
        total += attention_weights[:, i, i - p + 1]
    return total / (n - p)


@right
def masked_sum(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = period if period is not None else n // 2
    at = torch.arange(n, device=attention_weights.device)
    i, j = torch.meshgrid(at, at, indexing="ij")
    place = (j == i - p + 1) & (i >= p)
    return (attention_weights * place).sum((1, 2)) / place.sum().clamp(min=1)


@right
def nan_replaced(attention_weights, period=None):
    n = attention_weights.shape[1]
    p = period or max(n // 2, 1)
    return attention_weights[:, p:, 1:].diagonal(dim1=1, dim2=2).mean(-1).nan_to_num(0.0)


def stepwise(
    attention_weights,
    period=None,
    *,
    key=lambda i, p: i - p + 1,
    count=lambda n, p: n - p,
    empty=0.0,
):
    """A right answer in steps; what follows changes one of them."""
    n = attention_weights.shape[-1]
    p = n // 2 if period is None else period
    seen = [attention_weights[:, i, key(i, p)] for i in range(p, n) if -n <= key(i, p) < n]
    if not seen or count(n, p) < 1:
        return attention_weights.new_full((len(attention_weights),), empty)
    return sum(seen) / count(n, p)


but = wrong_in(stepwise)
not_a_number = but("not_a_number", empty=float("nan"))


@wrong("input_mutated")
def clears_the_first_round(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else min(period, n)
    attention_weights[:, :p] = 0
    return attention_weights.diagonal(1 - p, 1, 2).sum(-1) / max(n - p, 1)


@faulty("off by one", "period ignored", "divided by n", "float32")
def with_faults(faults):
    def score(attention_weights, period=None):
        n = attention_weights.shape[-1]
        ignored = period is None or "period ignored" in faults
        p = max(n // 2, 1) if ignored else min(period, n)
        first = p - ("off by one" in faults)
        line = attention_weights[:, first:].diagonal(1 + first - p, 1, 2)
        counted = n if "divided by n" in faults else max(n - first, 1)
        scores = line.sum(-1) / counted
        return scores.float() if "float32" in faults else scores

    return score
