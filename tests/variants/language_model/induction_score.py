"""Answers to `induction_score`."""

import torch

from course_lib.exercises.variants import faulty, right, wrong, wrong_in


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
def fancy_index(attention_weights, period=None):
    n = attention_weights.shape[-1]
    period = period or max(n // 2, 1)
    i = torch.arange(min(period, n), n)
    found = attention_weights[:, i, i - period + 1]
    return found.sum(dim=1) / max(len(i), 1)


@right
def a_square_of_it(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else min(period, n)
    square = attention_weights[:, p:, 1 : n - p + 1]
    return torch.einsum("hii->h", square) / max(n - p, 1)


@right
def masked_sum(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = period if period is not None else n // 2
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    place = (j == i - p + 1) & (i >= p)
    return (attention_weights * place).sum((1, 2)) / place.sum().clamp(min=1)


@right
def head_by_head(attention_weights, period=None):
    n = attention_weights.shape[-1]
    if period is None:
        period = n // 2
    scores = []
    for head in attention_weights:
        seen = [head[i, i - period + 1].item() for i in range(period, n) if n > 1]
        scores.append(sum(seen) / len(seen) if seen else 0.0)
    return torch.tensor(scores, dtype=attention_weights.dtype)


@right
def nan_replaced(attention_weights, period=None):
    n = attention_weights.shape[1]
    p = period or max(n // 2, 1)
    return attention_weights[:, p:, 1:].diagonal(dim1=1, dim2=2).mean(-1).nan_to_num(0.0)


@right
def rolled(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else period
    if p >= n:
        return attention_weights.new_zeros(len(attention_weights))
    moved = attention_weights.roll(p - 1, dims=-1)
    return moved.diagonal(dim1=-2, dim2=-1)[:, p:].mean(-1)


def stepwise(
    attention_weights,
    period=None,
    *,
    half=lambda n: n // 2,
    places=lambda n, p: range(p, n),
    key=lambda i, p: i - p + 1,
    count=lambda n, p: n - p,
    empty=0.0,
    result=lambda scores: scores,
):
    """A right answer in steps; what follows changes one of them."""
    n = attention_weights.shape[-1]
    p = half(n) if period is None else period
    seen = [attention_weights[:, i, key(i, p)] for i in places(n, p) if -n <= key(i, p) < n]
    if not seen or count(n, p) < 1:
        return result(attention_weights.new_full((len(attention_weights),), empty))
    return result(sum(seen) / count(n, p))


but = wrong_in(stepwise)
where_it_was = but("same_token", key=lambda i, p: i - p)
after_the_next = but("one_too_far", key=lambda i, p: i - p + 2)
the_whole_diagonal = but(
    "first_half_counted", places=lambda n, p: range(p - 1, n), count=lambda n, p: n - p + 1
)
one_too_late = but(
    "first_repeat_missed", places=lambda n, p: range(p + 1, n), count=lambda n, p: n - p - 1
)
over_all_positions = but("divided_by_n", count=lambda n, p: n)
over_a_period = but("divided_by_period", count=lambda n, p: p)
not_divided = but("summed", count=lambda n, p: 1)
not_a_number = but("nan_of_nothing", empty=float("nan"))
rounded_up = but("rounded_up", half=lambda n: (n + 1) // 2)
never_given = but(half=lambda n: n)
one_of_all = but("over_heads", result=lambda scores: scores.mean())
a_number_each = but("wrong_type", result=lambda scores: scores.tolist())
in_numpy = but("wrong_type", result=lambda scores: scores.numpy())
single_precision = but("dtype_changed", result=lambda scores: scores.float())
the_previous_token = but(key=lambda i, p: i - 1)
the_first_round_only = but(places=lambda n, p: range(p), count=lambda n, p: p)
one_less_counted = but(count=lambda n, p: n - p - 1 or 1)


@wrong("wraps_around")
def from_the_start(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else period
    if p > n:
        return attention_weights.new_zeros(len(attention_weights))
    return sum(attention_weights[:, i, i - p + 1] for i in range(n)) / n


@wrong("first_half_counted")
def mean_of_the_diagonal(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = n // 2 if period is None else period
    return attention_weights.diagonal(offset=1 - p, dim1=1, dim2=2).mean(-1)


@wrong()
def as_many_from_the_diagonal_as_it_starts_late(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = n // 2 if period is None else period
    return attention_weights.diagonal(offset=1 - p, dim1=1, dim2=2)[:, p:].mean(-1)


@wrong()
def two_unless_told(attention_weights, period=2):
    return stepwise(attention_weights, period)


@wrong()
def every_place_that_followed_the_token(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else period
    total = attention_weights.new_zeros(len(attention_weights))
    for i in range(p, n):
        for j in range(i % p + 1, i + 1, p):
            total = total + attention_weights[:, i, j]
    return total / max(n - p, 1)


@wrong("transposed")
def keys_first(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else min(period, n)
    i = torch.arange(p, n)
    return attention_weights[:, i - p + 1, i].sum(-1) / max(n - p, 1)


@wrong("period_ignored")
def always_half(attention_weights, period=None):
    return stepwise(attention_weights)


@wrong("one_repeat_only")
def up_to_two_periods(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else period
    i = torch.arange(min(p, n), min(2 * p, n))
    return attention_weights[:, i, i - p + 1].sum(-1) / max(len(i), 1)


@wrong()
def anywhere_after_the_same(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else min(period, n)
    best = attention_weights[:, p:].argmax(-1) == torch.arange(1, n - p + 1)
    return best.to(attention_weights.dtype).sum(-1) / max(n - p, 1)


@wrong()
def diagonal_of_the_lower_left_block(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else min(period, n)
    return attention_weights[:, p:, :p].diagonal(1, 1, 2).mean(-1).nan_to_num()


@wrong("input_mutated")
def clears_the_first_round(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = max(n // 2, 1) if period is None else min(period, n)
    attention_weights[:, :p] = 0
    return attention_weights.diagonal(1 - p, 1, 2).sum(-1) / max(n - p, 1)


@wrong("raised")
def fails_for_long_periods(attention_weights, period=None):
    n = attention_weights.shape[-1]
    p = n // 2 if period is None else period
    return torch.stack([attention_weights[:, i, i - p + 1] for i in range(p, n)]).mean(0)


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


@wrong("same_token")
def where_it_was_if_any(attention_weights, period=None):
    n = attention_weights.shape[-1]
    if n < 2:
        return attention_weights.new_zeros(len(attention_weights))
    period = n // 2 if period is None else period
    if period >= n:
        return attention_weights.new_zeros(len(attention_weights))
    return attention_weights.diagonal(-period, 1, 2).mean(-1)
